// CIFAR-10's and CIFAR-100's binary files.
#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder ten, hundred;
  const absl::string_view text = fuzz::TextOf(data, size);
  ten.Write("data_batch_1.bin", text);
  ten.Write("test_batch.bin", text);
  fuzz::LoadAndRead({.path = ten.path()});
  hundred.Write("train.bin", text);
  hundred.Write("test.bin", text);
  fuzz::LoadAndRead({.path = hundred.path()});
  return 0;
}
