// The model as Keras' JSON.
#include "tests/fuzz/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cairn;
  fuzz::CheckModel(nn::Model::FromJson(fuzz::TextOf(data, size), "model.json"));
  return 0;
}
