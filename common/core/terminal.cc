#include "common/core/terminal.h"

#include <sys/ioctl.h>

#include <cstdlib>

namespace cairn {

bool WantsColor() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

int TerminalColumns(int fd, int otherwise) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col > 0 ? size.ws_col : otherwise;
}

}  // namespace cairn
