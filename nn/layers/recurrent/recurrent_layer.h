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

  int num_states() const override { return config_.num_states(); }
  int num_outputs() const override { return config_.return_state ? 1 + config_.num_states() : 1; }
  std::vector<Shape> OutputShapes(absl::Span<const Shape> inputs) const override;
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override;
  std::vector<VariableSpec> Variables(absl::Span<const Shape> inputs) const override;
  bool differs_in_training() const override { return config_.dropout > 0 || config_.recurrent_dropout > 0; }
  MaskUse mask_use() const override {
    return config_.return_sequences ? MaskUse::kTakesAndPassesFirst : MaskUse::kTakes;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override;
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override;

  struct OnnxOutputs {
    std::string y;                    // [batch, steps, units] or [batch, units]
    std::vector<std::string> states;  // [batch, units] after the last step, with return_state
  };
  // The layer in ONNX. `states` are the first ones, or empty. `in_order`: see RecurrentOpParams.
  absl::StatusOr<OnnxOutputs> OutputsInOnnx(OnnxValue input, absl::Span<const OnnxValue> states,
                                            absl::Span<const OnnxVariable> variables, bool in_order,
                                            OnnxBuilder& onnx) const;

  // The shape of the output without states, for an input of this shape.
  Shape SequenceShape(const Shape& input) const;

 private:
  const RecurrentConfig config_;
};

// The outputs as the value of a layer whose OutputShape() is `shape`.
OnnxValue PackInOnnx(const RecurrentLayer::OnnxOutputs& outputs, const Shape& shape, OnnxBuilder& onnx);

}  // namespace cairn::nn
