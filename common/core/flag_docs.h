// What a program's flags and commands are, for other readers than its own --help: a man page, and what shells
// complete. All of it comes from the tables that the command line is read with.
//
// One thread. ParseCommandLine() answers --help_as=man|bash|zsh with these; the build installs what they
// give.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace CLI {
class App;
}

namespace cairn {

// troff, section 1, with all commands; `version` stands in its foot.
std::string ManPage(const CLI::App& app, absl::string_view version);

// A script for bash, or a function file for zsh named _PROGRAM: commands, flags, the words that a flag takes,
// and files where it takes them.
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);

}  // namespace cairn
