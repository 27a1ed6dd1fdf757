// Generates a program's man page and shell completions from the CLI11 tables that also parse its command
// line.
//
// One thread. ParseCommandLine() prints the results for --help_as=man|bash|zsh; the build installs them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace CLI {
class App;
}

namespace cairn {

// A man page (troff, section 1) with all commands; `version` is printed in its footer.
std::string ManPage(const CLI::App& app, absl::string_view version);

// Completion scripts: for bash a script, for zsh a function file to be named _PROGRAM. They complete
// commands, flags, the fixed words that a flag takes, and file names.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);

}  // namespace cairn
