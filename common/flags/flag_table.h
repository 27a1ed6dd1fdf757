// Declares the flags of a program as rows of a table: one row per flag, one row per rule between two flags.
//
//   AddFlags(app, "Training",
//            {{"--epochs N", &options.epochs, "Passes over the training set", WholeNumberFrom(1)},
//             {"--[no]shuffle", &options.shuffle, "Shuffle the training examples [yes]"}});
//   AddRules(app, {{"--min_workers", kNeeds, "--elastic"}});
//
// CLI11 parses the flags. --help, the man pages and the completions show the rows (flag_docs.h). Used by each
// main before anything else runs; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
}

namespace cairn {

// Checks the value of a flag. An error reads "--epochs: 'x' is not a whole number of at least 1".
struct FlagCheck {
  std::function<std::string(const std::string&)> fault;  // "'x' is not a ..."; empty: the value is valid
  std::string words{};                                   // "sync|async", if these are the only valid values
};
FlagCheck WholeNumberFrom(int64_t minimum);
FlagCheck WholeNumberBetween(int64_t minimum, int64_t maximum);  // [minimum, maximum]
FlagCheck NumberFrom(double minimum);
FlagCheck NumberAbove(double bound);
FlagCheck NumberBetween(double minimum, double bound);    // [minimum, bound)
FlagCheck NumberAboveUpTo(double bound, double maximum);  // (bound, maximum]
FlagCheck OneOf(std::initializer_list<const char*> words);
// Accepts the texts that `parse` accepts, which returns an absl::StatusOr.
template <typename Parse>
FlagCheck ParsedBy(Parse parse) {
  return {[parse](const std::string& text) { return std::string(parse(text).status().message()); }};
}

// Reads the text of a flag's value. The message of an error follows the flag's name.
using FlagReader = std::function<absl::Status(const std::string&)>;
// Stores what `parse` makes of the text in `value`.
template <typename Value, typename T>
FlagReader Parsed(Value* value, absl::StatusOr<T> (*parse)(absl::string_view)) {
  return [value, parse](const std::string& text) {
    absl::StatusOr<T> parsed = parse(text);
    if (parsed.ok()) *value = *std::move(parsed);
    return parsed.status();
  };
}
// Called with the value of a switch.
using SwitchReader = std::function<void(bool)>;

// Where the value of a flag goes. The variable keeps its value if the flag is not given. A list is separated
// by commas; a bool is a switch, which takes no value.
using FlagValue = std::variant<bool*, int*, int64_t*, uint64_t*, float*, double*, std::string*,
                               std::vector<std::string>*, std::optional<int>*, std::optional<int64_t>*,
                               std::optional<float>*, std::optional<double>*, FlagReader, SwitchReader>;

enum FlagMark {
  kUsual,          // optional; the value of a number or a string before parsing is shown as its default
  kRequired,       // must be given
  kDefaultInText,  // the description tells the default
  kOneWord,        // a list that is one word; other lists also take several words: "--hosts a,b c"
  kRepeatable,     // a list in one word that accumulates if the flag is given several times
  kProgram,        // a positional list: another program and all its arguments, which end the command's flags
};

struct Flag {
  // As --help shows it: "--epochs N", "--[no]shuffle", "-o, --output FILE". A positional argument has no
  // dashes; "MODEL FILE" is one that shells complete as a file. The name of the value may be omitted if the
  // check has words.
  const char* usage;
  FlagValue value;
  const char* what = "";  // the description
  FlagCheck check{};
  FlagMark mark = kUsual;
};

// Titles of groups that several files add to. A group has the same title in every program.
inline constexpr char kLoggingGroup[] = "Logging", kNetworkGroup[] = "Network";

// Adds the flags to `app`, in a group of --help; none: "Options"; an empty one: --help does not show them.
// Every flag is accepted with `_` and with `-`.
void AddFlags(CLI::App& app, const char* group, std::initializer_list<Flag> flags);
void AddFlags(CLI::App& app, std::initializer_list<Flag> flags);

enum FlagRelation { kNeeds, kExcludes };

// "--min_workers needs --elastic": a rule about which flags are given.
struct FlagRule {
  const char* flag;
  FlagRelation relation;
  const char* other;
};
// The flags must have been added to `app`. Parsing refuses a command line that breaks a rule.
void AddRules(CLI::App& app, std::initializer_list<FlagRule> rules);

// A rule about the values of flags, after parsing.
struct FlagUse {
  std::string text;  // "--mode ssp"
  bool used;         // whether the flag has this value
};
struct UseRule {
  FlagUse use;
  FlagRelation relation;
  FlagUse other;
  const char* reason = nullptr;
};
// INVALID_ARGUMENT for the first broken rule: "--mode ssp needs --max_staleness: <reason>", or "--elastic does
// not go with --data_sharding static: <reason>".
absl::Status CheckRules(std::initializer_list<UseRule> rules);

}  // namespace cairn
