// What a person at a terminal asked of all programs.
#pragma once

namespace cairn {

// False where NO_COLOR is in the environment, with any value but an empty one (no-color.org). Called while
// the program starts: the environment must not be changed meanwhile.
bool WantsColor();

}  // namespace cairn
