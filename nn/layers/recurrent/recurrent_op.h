// A recurrent layer in one direction on a device: the projection of its inputs as one dense op, then the recurrence.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"
#include "nn/layers/recurrent/recurrent_config.h"

namespace cairn::nn {

struct RecurrentOpParams {
  kernels::TensorDesc input;  // [n, steps, channels], row-major
  bool needs_input_gradients = true;
  bool in_order = true;  // outputs are in the order of processing, otherwise in the order of the steps
  // The output is part of wider rows: see kernels::RecurrenceParams.
  int64_t y_width = 0, y_column = 0;
  std::string name;  // the layer's: its dropped elements depend on it
};

// Inputs: the sequence and, where steps are masked, the mask. Variables: those of RecurrentConfig.
class RecurrentOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<RecurrentOp>> Create(const RecurrentConfig& config,
                                                             const RecurrentOpParams& params,
                                                             kernels::Device& device);

  // [n, steps, units], or [n, units] without return_sequences. `units` is y_width if that is set.
  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override;
  absl::Status Backward(const BackwardArgs& args) override;

 private:
  explicit RecurrentOp(kernels::TensorDesc output, const RecurrentConfig& config)
      : output_(std::move(output)),
        has_bias_(config.use_bias),
        gate_columns_(config.gates() * config.units) {}
  absl::Status MakeDropouts(const RecurrentConfig& config, const RecurrentOpParams& params,
                            kernels::Device& device);
  kernels::Recurrence::Inputs InputsOf(absl::Span<const float* const> inputs,
                                       absl::Span<const float* const> variables, bool training) const;

  const kernels::TensorDesc output_;
  const bool has_bias_;
  const int64_t gate_columns_;
  bool has_recurrent_bias_ = false;
  std::unique_ptr<LayerOp> projection_;
  std::unique_ptr<kernels::Recurrence> recurrence_;
  std::unique_ptr<kernels::DeviceMemory> z_;  // the projection, then what the recurrence makes of it
  // Null without dropout: the input without its dropped channels, and the gradient of that.
  std::unique_ptr<LayerOp> input_dropout_;
  std::unique_ptr<kernels::DeviceMemory> dropped_, dropped_gradient_;
  // Null without recurrent dropout: the factors of the states, which are drawn once for all steps.
  std::unique_ptr<kernels::Dropout> state_dropout_;
  std::unique_ptr<kernels::DeviceMemory> ones_, state_scale_;
};

}  // namespace cairn::nn
