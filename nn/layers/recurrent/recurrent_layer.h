// LSTM, GRU and SimpleRNN.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/layer/layer.h"
#include "nn/layers/recurrent/recurrent_config.h"

namespace cairn::nn {

class RecurrentLayer final : public Layer {
 public:
  RecurrentLayer(std::string name, std::string class_name, RecurrentConfig config)
      : Layer(std::move(name), std::move(class_name)), config_(std::move(config)) {}

  const RecurrentConfig& config() const { return config_; }

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override;
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override;
  bool differs_in_training() const override { return config_.dropout > 0 || config_.recurrent_dropout > 0; }
  MaskUse mask_use() const override {
    return config_.return_sequences ? MaskUse::kTakesAndPasses : MaskUse::kTakes;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override;
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override;

  // The layer's output in ONNX: [batch, steps, units] or [batch, units]. `in_order`: see RecurrentOpParams.
  absl::StatusOr<std::string> OutputInOnnx(OnnxValue input, absl::Span<const OnnxVariable> variables,
                                           bool in_order, OnnxBuilder& onnx) const;

 private:
  const RecurrentConfig config_;
};

}  // namespace cairn::nn
