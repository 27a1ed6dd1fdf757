// Finds arguments that CLI11 accepts and Cairn refuses: a repeated flag, an empty value, another flag in
// place of a value, and a switch whose value is not a boolean. Separates the flags of a command from the
// program that it starts.
//
// Used by flags.cc before CLI11 reads the arguments; one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cairn {

// Removes the program that a command with kProgram (flag_table.h) starts from the end of `arguments`, and
// returns it with its arguments. It begins after "--", or with the first argument that is neither a flag nor
// the value of one. Returns an empty vector for other commands.
std::vector<std::string> TakeProgram(const CLI::App& app, std::vector<std::string>& arguments);

struct ArgumentFault {
  const CLI::App* command;  // the program or subcommand that the argument belongs to
  std::string text;         // "--epochs is given more than once"
};

// The first fault in `arguments` (without the program's name); nullopt if there is none. Unknown flags are
// left to CLI11. A flag with CLI11's policy TakeAll, or a hidden flag (with an empty group), may be repeated.
std::optional<ArgumentFault> FindArgumentFault(const CLI::App& app, absl::Span<const std::string> arguments);

}  // namespace cairn
