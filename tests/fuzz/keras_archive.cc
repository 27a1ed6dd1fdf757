// The model as a .keras file, a zip archive.
#include "tests/fuzz/model.h"
#include "worker/export/model_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  static const fuzz::ScratchFolder folder;
  fuzz::CheckModel(worker::ReadModelFile(folder.Write("x.keras", fuzz::TextOf(data, size))));
  return 0;
}
