// What a model makes of inputs that are bytes. Images of bytes are divided by 255 for layers with weights,
// which expect numbers about 1; layers that scale or index by the bytes themselves get them as they are. The
// layers that read an input decide, so that training, evaluation and prediction agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/nn/model.h"

namespace cairn::nn {

struct ByteInput {
  bool raw = false;  // bytes are passed as they are; otherwise divided by 255
  // The layer that decides: the first on a way from the input that is more than a change of shape or the
  // like. Empty: there is none.
  std::string layer{};
  std::string class_name{};
  int64_t table_rows = 0;  // of an Embedding that looks up the input's values themselves; else 0
};

// [input of the model]. Where several branches read an input, one that takes bytes as they are decides.
std::vector<ByteInput> ByteInputsOf(const Model& model);

}  // namespace cairn::nn
