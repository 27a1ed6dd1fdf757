#include "common/core/one_line.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(OneLine, EscapesCharactersThatForgeALineOrMoveTheCursor) {
  EXPECT_EQ(OneLine("worker/1\nE0101 forged \x1b[31m\r\x7f"), "worker/1\\nE0101 forged \\x1b[31m\\x0d\\x7f");
  EXPECT_EQ(OneLine("größer als 1 µs"), "größer als 1 µs");
}

TEST(OneLine, CutsTextLongerThan16KiB) {
  EXPECT_EQ(OneLine(std::string((16 << 10) + 7, 'x')), std::string(16 << 10, 'x') + "... (7 more bytes)");
}

}  // namespace
}  // namespace cairn
