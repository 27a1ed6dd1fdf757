// A recurrent layer in one direction on a device: the projection of its inputs as one dense op, then the recurrence.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"
#include "nn/layers/recurrent/packed_states_op.h"
#include "nn/layers/recurrent/recurrent_config.h"

namespace cairn::nn {

struct RecurrentOpParams {
  kernels::TensorDesc input;      // [n, steps, channels], row-major
  bool has_first_states = false;  // h, and c of an LSTM, are given: [n, units], of the type of `input`
  bool needs_input_gradients = true;
  bool in_order = true;  // outputs are in the order of processing, otherwise in the order of the steps
  // The output is part of wider rows: see kernels::RecurrenceParams.
  int64_t y_width = 0, y_column = 0;
  std::string name;  // the layer's: its dropped elements depend on it
};

// Inputs: the sequence, the first states if they are given and, where steps are masked, the mask. Variables: those of
// RecurrentConfig.
class RecurrentOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<RecurrentOp>> Create(const RecurrentConfig& config,
                                                             const RecurrentOpParams& params,
                                                             kernels::Device& device);

  // [n, steps, units], or [n, units] without return_sequences. `units` is y_width if that is set.
  const kernels::TensorDesc& output() const override { return output_; }
  // The number of first states that are given.
  size_t num_first_states() const { return first_.size(); }
  // With return_state: h, and c of an LSTM, after the last step.
  std::vector<LastState> last_states() const;
  absl::Status Forward(const ForwardArgs& args) override;
  absl::Status Backward(const BackwardArgs& args) override;

 private:
  explicit RecurrentOp(kernels::TensorDesc output, const RecurrentConfig& config)
      : output_(std::move(output)),
        has_bias_(config.use_bias),
        gate_columns_(config.gates() * config.units) {}
  // Memory of the states that are returned, and conversions of the first states if `params` has them.
  absl::Status MakeStates(const RecurrentConfig& config, const RecurrentOpParams& params,
                          kernels::Device& device);
  absl::Status MakeDropouts(const RecurrentConfig& config, const RecurrentOpParams& params,
                            kernels::Device& device);
  // Writes the gradients of the first states in the types of the inputs.
  absl::Status ConvertGradients(const BackwardArgs& args);
  // Where the recurrence writes the gradient of first state i; null: it is not needed.
  float* FirstGradient(size_t i, const BackwardArgs& args) const;
  kernels::Recurrence::Inputs InputsOf(absl::Span<const float* const> inputs,
                                       absl::Span<const float* const> variables, bool training) const;

  using Memory = std::unique_ptr<kernels::DeviceMemory>;
  struct FirstState {
    // Null if the input has the type of the gates.
    std::unique_ptr<kernels::Reorder> convert{}, convert_back{};
    Memory value{}, gradient{};
  };
  struct StateMemory {
    Memory value{}, gradient{};
  };

  const kernels::TensorDesc output_;
  const bool has_bias_;
  const int64_t gate_columns_;
  bool has_recurrent_bias_ = false;
  std::unique_ptr<LayerOp> projection_;
  std::unique_ptr<kernels::Recurrence> recurrence_;
  kernels::TensorDesc state_;                 // [n, units]
  std::vector<FirstState> first_;             // empty: the first states are 0
  std::vector<StateMemory> last_;             // empty without return_state
  std::unique_ptr<kernels::DeviceMemory> z_;  // the projection, then what the recurrence makes of it
  // Null without dropout: the input without its dropped channels, and the gradient of that.
  std::unique_ptr<LayerOp> input_dropout_;
  std::unique_ptr<kernels::DeviceMemory> dropped_, dropped_gradient_;
  // Null without recurrent dropout: the factors of the states, which are drawn once for all steps.
  std::unique_ptr<kernels::Dropout> state_dropout_;
  std::unique_ptr<kernels::DeviceMemory> ones_, state_scale_;
};

}  // namespace cairn::nn
