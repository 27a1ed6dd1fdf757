// What a person at a terminal asked of all programs.
#pragma once

namespace cairn {

// False where NO_COLOR is in the environment, with any value but an empty one (no-color.org). Called while
// the program starts: the environment must not be changed meanwhile.
bool WantsColor();

// The width of the terminal at `fd` now; `otherwise` where it does not say, 0 where it is no terminal.
int TerminalColumns(int fd, int otherwise = 80);

}  // namespace cairn
