// IDX, plain or gzip'd: as one array, and as the labels and the images of a data set.
#include "data/array/idx.h"

#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  const std::string images = folder.Write("train-images-idx3-ubyte", fuzz::TextOf(data, size));
  fuzz::CheckArray(data::ReadIdx(images));
  folder.Write("train-labels-idx1-ubyte", {"\0\0\x08\x01\0\0\0\x02\1\2", 10});
  fuzz::LoadAndRead({.path = folder.path()});
  folder.Write("train-labels-idx1-ubyte", fuzz::TextOf(data, size));
  fuzz::LoadAndRead({.path = folder.path()});
  return 0;
}
