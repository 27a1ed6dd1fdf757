// How a model takes inputs of bytes. They are divided by 255 for layers with weights, which expect numbers
// of about 1. Layers that scale the bytes themselves, or use them as indices, get them unchanged. The layers
// that read an input decide this, so that training, evaluation and prediction agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "nn/model.h"

namespace cairn::nn {

struct ByteInput {
  // True if bytes are passed unchanged, false if they are divided by 255.
  bool raw = false;
  // The name of the layer that decides: the first layer on a path from the input whose ByteUse is not
  // kPasses. Empty if there is no such layer.
  std::string layer{};
  std::string class_name{};
  int64_t table_rows =
      0;  // rows of the smallest Embedding or CategoryEncoding that takes the values as ids; 0: none does
};

// Returns one ByteInput per input of the model. An input that several branches read is passed unchanged if
// any of them takes bytes unchanged.
// `any_id`: layers whose tables take any id, which are not counted in table_rows.
std::vector<ByteInput> ByteInputsOf(const Model& model, absl::Span<const std::string> any_id = {});

}  // namespace cairn::nn
