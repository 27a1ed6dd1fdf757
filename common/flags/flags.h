// Parses the command line of every program with CLI11, with uniform error messages and exit codes. Flags are
// declared by flag_table.h.
//
// Each main uses it before anything else runs; one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/system/fault_points.h"

namespace CLI {
class App;
}

namespace cairn {

// Adds --log_level debug|info|warning|error and --log_format text|json. The variables keep their values when the
// flags are not given.
void AddLogFlags(CLI::App& app, std::string& level, std::string& format);
LogLevel LogLevelOf(absl::string_view name);    // one of the four words
LogFormat LogFormatOf(absl::string_view name);  // one of the two words

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
