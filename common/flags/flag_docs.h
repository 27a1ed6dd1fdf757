// Renders a program's flags and commands as a man page and as completion scripts for bash and zsh, from the
// same declarations that parse the command line.
//
// One thread. ParseCommandLine() prints these texts for --help_as=man|bash|zsh; the build installs them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cairn {

// How --help and the man page show the value of a flag: "N", "HOST:PORT", or "sync|async" if a check allows
// only these words. "..." for a positional argument that may be repeated, empty for others and for switches.
std::string ValueName(const CLI::Option& option);
// The description, followed by the default in brackets, "(required)" and "(needs --other_flag)" if they
// apply.
std::string FullDescription(const CLI::Option& option);

// A man page of section 1 in troff, with all commands; `version` is printed in its footer.
std::string ManPage(const CLI::App& app, absl::string_view version);

// A script for bash, and a function file for zsh that must be named _PROGRAM. They complete commands, flags,
// the words that a flag accepts, and file names.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);

}  // namespace cairn
