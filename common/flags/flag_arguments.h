// Finds arguments that CLI11 accepts and Cairn refuses: a repeated flag, an empty value, another flag in
// place of a value, and a switch whose value is not a boolean.
//
// Used by flags.cc before CLI11 reads the arguments; one thread.
#pragma once

#include <optional>
#include <string>

#include "absl/types/span.h"

namespace CLI {
class App;
}  // namespace CLI

namespace cairn {

struct ArgumentFault {
  const CLI::App* command;  // the program or subcommand that the argument belongs to
  std::string text;         // "--epochs is given more than once"
};

// The first fault in `arguments` (without the program's name); nullopt if there is none. Unknown flags are
// left to CLI11. A flag with CLI11's policy TakeAll, or a hidden flag (with an empty group), may be repeated.
std::optional<ArgumentFault> FindArgumentFault(const CLI::App& app, absl::Span<const std::string> arguments);

}  // namespace cairn
