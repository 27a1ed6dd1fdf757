// The head of a .safetensors file, which has the positions of its tensors.
#include "worker/checkpoint/safetensors.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  const auto file = worker::ParseSafetensorsHead(fuzz::TextOf(data, size), size);
  if (!file.ok()) return 0;
  uint64_t end = 0;
  for (const worker::StoredTensor& tensor : file->tensors) {
    FUZZ_CHECK(end == 0 || tensor.offset == end);
    end = tensor.offset + static_cast<uint64_t>(tensor.shape.num_elements()) * sizeof(float);
    FUZZ_CHECK(tensor.offset <= size && end <= size);
  }
  FUZZ_CHECK(file->tensors.empty() || end == size);
  return 0;
}
