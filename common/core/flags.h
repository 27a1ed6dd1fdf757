// Parses the command line of every program with CLI11, with uniform spelling of flags, error messages and
// exit codes.
//
// Each main uses it before anything else runs; one thread. Include <CLI/CLI.hpp> where flags are declared.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/fault_points.h"
#include "common/core/log.h"
#include "common/core/status.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace cairn {

// "data_dir" -> "--data_dir,--data-dir": the name for CLI::App::add_option().
std::string FlagNames(absl::string_view name);
// "shuffle" -> "--shuffle,!--noshuffle": the name for CLI::App::add_flag().
std::string SwitchNames(absl::string_view name);

// Validators of a flag's value. An error reads "--epochs: 'x' is not a whole number of at least 1".
CLI::Validator WholeNumberFrom(int64_t minimum);
CLI::Validator WholeNumberBetween(int64_t minimum, int64_t maximum);  // [minimum, maximum]
CLI::Validator NumberFrom(double minimum);
CLI::Validator NumberAbove(double bound);
CLI::Validator NumberBetween(double minimum, double bound);    // [minimum, bound)
CLI::Validator NumberAboveUpTo(double bound, double maximum);  // (bound, maximum]
CLI::Validator MemorySize();                                   // what ParseMemorySize() accepts
CLI::Validator OneOf(std::initializer_list<const char*> words);

// Titles of flag groups that several files add to. A group has the same title in every program.
inline constexpr char kLoggingGroup[] = "Logging", kNetworkGroup[] = "Network";

// --log_level debug|info|warning|error. `level` keeps its value when the flag is not given.
CLI::Option* AddLogLevelFlag(CLI::App& app, std::string& level);
LogLevel LogLevelOf(absl::string_view name);  // one of the four words
// Adds --log_format text|json. `format` keeps its value if the flag is not given.
CLI::Option* AddLogFormatFlag(CLI::App& app, std::string& format);
LogFormat LogFormatOf(absl::string_view name);

// Adds --fault POINT:PASSING:SIGNAL (fault_points.h), which --help does not show.
void AddFaultFlag(CLI::App& app, FaultPoints::Fault& fault);

// The version of Cairn: "0.1.0".
absl::string_view Version();

// Reads the command line into the variables that are registered in `app`. Returns nullopt if the program can
// continue. Otherwise it must end with the returned code: kDone after --help or --version, whose text has
// been printed to stdout; kUsage after a fault, which has been printed to stderr in one line, "cairn-ps:
// <fault>". Does not throw. `app` has the program's name. --version prints `version` after that name; the
// programs pass BuildInfo() of common/build_info/build_info.h.
std::optional<ExitCode> ParseCommandLine(CLI::App& app, int argc, const char* const* argv,
                                         absl::string_view version = Version());
// Parses flags that are meant for another program. INVALID_ARGUMENT with the fault that the other program
// would report; a request for help is a fault.
absl::Status ReadFlags(CLI::App& app, const std::vector<std::string>& flags);
// Reports a usage error found after parsing: prints "cairn-ps: <fault>" in one line on stderr and returns
// kUsage.
ExitCode UsageError(absl::string_view program, absl::string_view fault);

// Returns the flags of the command line that `declares` also has, in the order of `declares`, as arguments
// for another program: {"--epochs=5", "--sync_replicas=true"}. `parsed` has parsed the command line.
std::vector<std::string> GivenFlags(const CLI::App& parsed, const CLI::App& declares);

}  // namespace cairn
