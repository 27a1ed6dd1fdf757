// Properties of the user's terminal.
#pragma once

namespace cairn {

// False if NO_COLOR is set to a non-empty value in the environment (no-color.org). Call it while the program
// starts: no other thread may change the environment meanwhile.
bool WantsColor();

// The current width of the terminal at `fd`; `otherwise` if the terminal does not report it; 0 if `fd` is not
// a terminal.
int TerminalColumns(int fd, int otherwise = 80);

}  // namespace cairn
