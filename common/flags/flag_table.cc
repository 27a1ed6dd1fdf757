#include "common/flags/flag_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

FlagCheck Number(const std::string& what, const std::function<bool(double)>& accepts) {
  return {[what, accepts](const std::string& text) {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && accepts(value)) return std::string();
    return absl::StrCat("'", text, "' is not a ", what);
  }};
}

FlagCheck WholeNumber(const std::string& what, const std::function<bool(int64_t)>& accepts) {
  return {[what, accepts](const std::string& text) {
    int64_t value = 0;
    if (absl::SimpleAtoi(text, &value) && accepts(value)) return std::string();
    return absl::StrCat("'", text, "' is not a whole number ", what);
  }};
}

// "data_dir", before "--" -> "--data_dir,--data-dir".
std::string BothSpellings(absl::string_view dashes, absl::string_view name) {
  const std::string dashed = absl::StrReplaceAll(name, {{"_", "-"}});
  return dashed == name ? absl::StrCat(dashes, name) : absl::StrCat(dashes, name, ",", dashes, dashed);
}

// CLI11's list of names for a name in Flag::usage: "--[no]shuffle" -> "--shuffle,!--noshuffle".
std::string NamesOf(absl::string_view name) {
  if (absl::ConsumePrefix(&name, "--[no]")) {
    return absl::StrCat(BothSpellings("--", name), ",", BothSpellings("!--no", name));
  }
  return absl::ConsumePrefix(&name, "--") ? BothSpellings("--", name) : std::string(name);
}

// Adds an option for each kind of FlagValue.
struct Adder {
  CLI::Option* operator()(bool* value) const { return app.add_flag(names, *value, flag.what); }
  CLI::Option* operator()(const SwitchReader& read) const {
    return app.add_flag_function(
                  names, [read](int64_t yes) { read(yes > 0); }, flag.what)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  CLI::Option* operator()(const FlagReader& read) const {
    const auto name = names.substr(0, names.find(','));
    return app.add_option_function<std::string>(
        names,
        [read, name](const std::string& text) {
          const absl::Status status = read(text);
          if (!status.ok()) throw CLI::ValidationError(name, std::string(status.message()));
        },
        flag.what);
  }
  CLI::Option* operator()(std::vector<std::string>* list) const {
    CLI::Option* option = app.add_option(names, *list, flag.what);
    if (flag.mark == kProgram) {
      app.prefix_command();
      return option->allow_extra_args(false);  // CLI11 would split an argument such as "[1,2]"
    }
    if (option->get_positional()) return option;
    if (flag.mark == kRepeatable) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    return option->delimiter(',')->allow_extra_args(flag.mark != kOneWord && flag.mark != kRepeatable);
  }
  template <typename T>
  CLI::Option* operator()(std::optional<T>* value) const {
    return app.add_option_function<T>(names, [value](const T& given) { *value = given; }, flag.what);
  }
  template <typename T>
  CLI::Option* operator()(T* value) const {
    CLI::Option* option = app.add_option(names, *value, flag.what);
    return flag.mark == kDefaultInText ? option : option->capture_default_str();
  }

  CLI::App& app;
  const Flag& flag;
  const std::string names;
};

CLI::Option* AddFlag(CLI::App& app, const Flag& flag) {
  std::vector<absl::string_view> words = absl::StrSplit(flag.usage, ' ');
  const bool has_value = words.size() > 1 && !absl::StartsWith(words.back(), "-");
  const std::string value(has_value ? words.back() : "");
  if (has_value) words.pop_back();
  std::vector<std::string> names;
  for (absl::string_view word : words) names.push_back(NamesOf(absl::StripSuffix(word, ",")));
  CLI::Option* option = std::visit(Adder{app, flag, absl::StrJoin(names, ",")}, flag.value);
  if (flag.check.fault) option->check(CLI::Validator(flag.check.fault, flag.check.words));
  if (has_value) option->type_name(value);
  return option->required(flag.mark == kRequired);
}

}  // namespace

FlagCheck WholeNumberFrom(int64_t minimum) {
  return WholeNumber(absl::StrCat("of at least ", minimum), [=](int64_t v) { return v >= minimum; });
}
FlagCheck WholeNumberBetween(int64_t minimum, int64_t maximum) {
  return WholeNumber(absl::StrCat("from ", minimum, " to ", maximum),
                     [=](int64_t v) { return v >= minimum && v <= maximum; });
}
FlagCheck NumberFrom(double minimum) {
  return Number(absl::StrCat("number of at least ", minimum), [=](double v) { return v >= minimum; });
}
FlagCheck NumberAbove(double bound) {
  return Number(absl::StrCat("number above ", bound), [=](double v) { return v > bound; });
}
FlagCheck NumberBetween(double minimum, double bound) {
  return Number(absl::StrCat("number from ", minimum, " to below ", bound),
                [=](double v) { return v >= minimum && v < bound; });
}
FlagCheck NumberAboveUpTo(double bound, double maximum) {
  return Number(absl::StrCat("number above ", bound, ", at most ", maximum),
                [=](double v) { return v > bound && v <= maximum; });
}
FlagCheck OneOf(std::initializer_list<const char*> words) {
  const std::vector<std::string> allowed(words.begin(), words.end());
  return {[allowed](const std::string& text) {
            if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return std::string();
            return absl::StrCat("'", text, "' is not one of ", absl::StrJoin(allowed, ", "));
          },
          absl::StrJoin(allowed, "|")};
}

void AddFlags(CLI::App& app, const char* group, std::initializer_list<Flag> flags) {
  for (const Flag& flag : flags) AddFlag(app, flag)->group(group);
}

void AddFlags(CLI::App& app, std::initializer_list<Flag> flags) {
  for (const Flag& flag : flags) AddFlag(app, flag);
}

void AddRules(CLI::App& app, std::initializer_list<FlagRule> rules) {
  for (const FlagRule& rule : rules) {
    CLI::Option* option = app.get_option(rule.flag);
    CLI::Option* other = app.get_option(rule.other);
    rule.relation == kNeeds ? option->needs(other) : option->excludes(other);
  }
}

absl::Status CheckRules(std::initializer_list<UseRule> rules) {
  for (const UseRule& rule : rules) {
    if (!rule.use.used || rule.other.used == (rule.relation == kNeeds)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        rule.use.text, rule.relation == kNeeds ? " needs " : " does not go with ", rule.other.text,
        rule.reason == nullptr ? "" : ": ", rule.reason == nullptr ? "" : rule.reason));
  }
  return absl::OkStatus();
}

}  // namespace cairn
