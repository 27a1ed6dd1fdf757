// The inputs of a batch, made from floats.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/core/tensor_view.h"
#include "nn/model.h"

namespace cairn {

// The only input of a model: `values` is [examples, elements of an example] and must outlive the views.
inline TensorViews FloatRows(int64_t examples, absl::Span<const float> values) {
  if (examples == 0) return {};
  return {TensorView::OfFloats({examples, static_cast<int64_t>(values.size()) / examples}, values)};
}

// Owns the inputs of a batch in the types that a model takes.
class ModelInputs {
 public:
  ModelInputs() = default;
  // `values`: [examples, all inputs of the model, one after another]; whole numbers where the model takes integers.
  ModelInputs(const nn::Model& model, int64_t examples, absl::Span<const float> values) {
    const auto row = static_cast<size_t>(model.input_shape().num_elements());
    size_t first = 0;  // of the input in a row
    for (const nn::ModelInput& input : model.inputs()) {
      const auto elements = static_cast<size_t>(input.shape.num_elements());
      std::vector<int64_t>& memory =
          memory_.emplace_back(static_cast<size_t>(examples) * elements);  // enough for any type
      views_.push_back({input.dtype, {examples, input.shape.num_elements()}, memory.data()});
      for (size_t i = 0; i < memory.size(); ++i) {
        Set(input.dtype, memory.data(), i, values[i / elements * row + first + i % elements]);
      }
      first += elements;
    }
  }
  ModelInputs(ModelInputs&&) = default;  // the memory of the vectors stays in place
  ModelInputs& operator=(ModelInputs&&) = default;

  const TensorViews& views() const { return views_; }

 private:
  static void Set(DType type, void* memory, size_t at, float value) {
    if (type == DType::kFloat32) {
      static_cast<float*>(memory)[at] = value;
      return;
    }
    WithIntegerType(type, [&](auto zero) {
      static_cast<decltype(zero)*>(memory)[at] = static_cast<decltype(zero)>(value);
    });
  }

  std::vector<std::vector<int64_t>> memory_;
  TensorViews views_;
};

}  // namespace cairn
