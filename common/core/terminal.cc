#include "common/core/terminal.h"

#include <cstdlib>

namespace cairn {

bool WantsColor() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

}  // namespace cairn
