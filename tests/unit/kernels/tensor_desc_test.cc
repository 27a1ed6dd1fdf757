#include <gtest/gtest.h>

#include "kernels/device.h"

namespace cairn::kernels {
namespace {

TEST(TensorDesc, BlockedLayoutsPadTheChannels) {
  EXPECT_EQ((TensorDesc{{2, 3, 4, 5}, Layout::kRowMajor}.num_floats()), 120);
  EXPECT_EQ((TensorDesc{{2, 3, 4, 5}, Layout::kBlocked8}.num_floats()), 192);
  EXPECT_EQ((TensorDesc{{2, 3, 4, 17}, Layout::kBlocked16}.num_floats()), 768);
}

TEST(TensorDesc, PrintsItsLayoutWhenItIsBlocked) {
  EXPECT_EQ((TensorDesc{{64, 28, 28, 1}, Layout::kRowMajor}.ToString()), "[64,28,28,1]");
  EXPECT_EQ((TensorDesc{{64, 26, 26, 32}, Layout::kBlocked16}.ToString()), "[64,26,26,32] blocked16");
}

}  // namespace
}  // namespace cairn::kernels
