// NumPy's .npz: each array in it, and all of it as a data set.
#include "data/array/npz.h"

#include "tests/fuzz/data.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  const std::string path = folder.Write("x.npz", fuzz::TextOf(data, size));
  const auto file = data::NpzFile::Open(path);
  if (!file.ok()) {
    FUZZ_CHECK(!file.status().message().empty());
    return 0;
  }
  for (const std::string& name : file->Names()) fuzz::CheckArray(file->Read(name));
  fuzz::LoadAndRead({.path = path});
  return 0;
}
