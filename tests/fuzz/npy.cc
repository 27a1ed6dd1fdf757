// NumPy's .npy, plain or gzip'd: as one array, and as the labels and the inputs of a data set.
#include "data/array/npy.h"

#include "data/file/byte_reader.h"
#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  const std::string inputs = folder.Write("x_train.npy", fuzz::TextOf(data, size));
  const auto reader = data::OpenPlainOrGzip(inputs);
  FUZZ_CHECK(reader.ok());
  fuzz::CheckArray(data::ReadNpy(**reader));
  folder.Write("y_train.npy", fuzz::TextOf(data, size));
  fuzz::LoadAndRead({.path = folder.path()});
  return 0;
}
