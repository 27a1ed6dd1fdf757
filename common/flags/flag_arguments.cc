#include "common/flags/flag_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cairn {
namespace {

constexpr absl::string_view kYesOrNo[] = {"true", "false", "yes", "no", "on", "off", "1", "0"};

const CLI::App* SubcommandNamed(const CLI::App& app, absl::string_view name) {
  const auto found = app.get_subcommands([name](const CLI::App* sub) { return sub->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

// A flag in an argument, and the value attached to it: "--batch-size" and "3" of "--batch-size=3", "-o" and
// "FILE" of "-oFILE".
struct FlagWord {
  std::string name;
  std::optional<std::string> value;
};

std::optional<FlagWord> AsFlag(absl::string_view word) {
  if (word.size() < 2 || word[0] != '-') return std::nullopt;
  if (absl::StartsWith(word, "--")) {
    const size_t equals = word.find('=');
    if (equals == absl::string_view::npos) return FlagWord{std::string(word), std::nullopt};
    return FlagWord{std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))};
  }
  if (!absl::ascii_isalpha(static_cast<unsigned char>(word[1]))) return std::nullopt;  // a negative number
  if (word.size() == 2) return FlagWord{std::string(word), std::nullopt};
  return FlagWord{std::string(word.substr(0, 2)), std::string(word.substr(2))};
}

const CLI::Option* OptionNamed(const CLI::App& app, const std::string& name) {
  const auto found = app.get_options(
      [&](const CLI::Option* option) { return !option->get_positional() && option->check_name(name); });
  return found.empty() ? nullptr : found.front();
}

std::string NameOf(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_name() : absl::StrCat("--", option.get_lnames()[0]);
}

bool TakesValue(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

// Whether `word`, which stands where a value is expected, is more likely the next flag.
bool LooksLikeFlag(const CLI::App& app, absl::string_view word) {
  if (absl::StartsWith(word, "--")) return true;
  const std::optional<FlagWord> flag = AsFlag(word);
  return flag.has_value() && OptionNamed(app, flag->name) != nullptr;
}

std::string FaultOfValue(const CLI::Option& option, absl::string_view value) {
  if (value.empty()) return absl::StrCat(NameOf(option), ": the value is empty");
  if (TakesValue(option)) return "";
  const std::string lower = absl::AsciiStrToLower(value);
  if (std::find(std::begin(kYesOrNo), std::end(kYesOrNo), lower) != std::end(kYesOrNo)) return "";
  return absl::StrCat(NameOf(option), ": '", value, "' is neither true nor false");
}

bool MayBeRepeated(const CLI::Option& option) {
  return option.get_group().empty() || option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
}

std::string FaultOfRepetition(const CLI::Option& option) {
  const bool takes_list = option.get_items_expected_max() > 1;
  return absl::StrCat(NameOf(option), " is given more than once",
                      takes_list ? ": its values go between commas" : "");
}

}  // namespace

std::vector<std::string> TakeProgram(const CLI::App& app, std::vector<std::string>& arguments) {
  const CLI::App* command = &app;
  size_t flags = 0;  // the number of arguments before the program
  for (; flags < arguments.size() && arguments[flags] != "--"; ++flags) {
    const std::optional<FlagWord> flag = AsFlag(arguments[flags]);
    if (flag.has_value()) {
      const CLI::Option* option = OptionNamed(*command, flag->name);
      if (option != nullptr && TakesValue(*option) && !flag->value.has_value()) ++flags;
    } else if (command->get_prefix_command()) {
      break;
    } else if (const CLI::App* sub = SubcommandNamed(*command, arguments[flags])) {
      command = sub;
    }
  }
  if (!command->get_prefix_command() || flags >= arguments.size()) return {};
  const auto end = arguments.begin() + static_cast<std::ptrdiff_t>(flags);
  std::vector<std::string> program(*end == "--" ? end + 1 : end, arguments.end());
  arguments.erase(end, arguments.end());
  return program;
}

std::optional<ArgumentFault> FindArgumentFault(const CLI::App& app, absl::Span<const std::string> arguments) {
  const CLI::App* command = &app;
  std::set<const CLI::Option*> seen;
  const auto fault = [&](std::string text) { return ArgumentFault{command, std::move(text)}; };
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::optional<FlagWord> flag = AsFlag(arguments[i]);
    if (!flag.has_value()) {
      if (arguments[i].empty()) return fault(absl::StrCat("argument ", i + 1, " is empty"));
      if (const CLI::App* sub = SubcommandNamed(*command, arguments[i])) command = sub;
      continue;
    }
    const CLI::Option* option = OptionNamed(*command, flag->name);
    if (option == nullptr) continue;
    if (!seen.insert(option).second && !MayBeRepeated(*option)) return fault(FaultOfRepetition(*option));
    std::optional<std::string> value = flag->value;
    if (!value.has_value() && TakesValue(*option)) {
      if (i + 1 == arguments.size()) continue;  // CLI11 reports the missing value
      const bool optional = option->get_items_expected_min() == 0;
      if (optional && LooksLikeFlag(*command, arguments[i + 1])) continue;
      value = arguments[++i];
      if (LooksLikeFlag(*command, *value)) {
        return fault(absl::StrCat(NameOf(*option), " needs a value before ", *value));
      }
    }
    if (!value.has_value()) continue;
    if (std::string text = FaultOfValue(*option, *value); !text.empty()) return fault(std::move(text));
  }
  return std::nullopt;
}

}  // namespace cairn
