// A convolutional LSTM on a device: one convolution of the inputs of all time steps, then for each step a convolution
// of h and the gates.
//
// The gates are those of an LSTM of one step without a recurrent kernel: the elements of an image are the examples of a
// kernels::Recurrence, and its z has the sum of both convolutions. States are plain float32.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "nn/layer/layer.h"
#include "nn/layers/image/conv_config.h"
#include "nn/layers/plain_value.h"
#include "nn/layers/recurrent/packed_states_op.h"
#include "nn/layers/recurrent/recurrent_config.h"

namespace cairn::nn {

struct ConvLstmConfig {
  ConvConfig input;           // the convolution of the inputs, of 4 `units` filters, without activation
  RecurrentConfig recurrent;  // `units`: filters

  // The convolution of h, an image [h, w, units].
  ConvConfig OfStates() const;
  // [h, w, units], a state for the images [h, w, c] of a sequence.
  absl::StatusOr<Shape> StateShape(const Shape& image) const;
};

class ConvLstmOp final : public LayerOp {
 public:
  // `params`: the input [n, steps, h, w, c], then h and c before the first step, or nothing. `name`: that of the layer.
  static absl::StatusOr<std::unique_ptr<ConvLstmOp>> Create(const std::string& name,
                                                            const ConvLstmConfig& config,
                                                            const LayerOpParams& params,
                                                            kernels::Device& device);

  const kernels::TensorDesc& output() const override { return output_; }
  BackwardReads backward_reads() const override { return {.inputs = false, .output = false}; }
  absl::Status Forward(const ForwardArgs& args) override;
  absl::Status Backward(const BackwardArgs& args) override;

  // h and c after the last step, with return_state.
  std::vector<LastState> last_states() const;

 private:
  using Memory = std::unique_ptr<kernels::DeviceMemory>;
  struct Step {
    std::unique_ptr<kernels::LinearOp> conv;  // of h
    std::unique_ptr<kernels::Recurrence> gates;
  };
  struct FirstState {
    std::unique_ptr<PlainCopy> copy;
    Memory value;
  };

  ConvLstmOp(const ConvLstmConfig& config, kernels::Device& device)
      : device_(device), use_bias_(config.input.use_bias), recurrent_(config.recurrent) {}

  absl::Status MakeInput(const ConvLstmConfig& config, const LayerOpParams& params);
  absl::Status MakeSteps(const ConvLstmConfig& config, const Shape& state);
  absl::Status MakeStates(const LayerOpParams& params);
  absl::Status MakeDropouts(const std::string& name, const LayerOpParams& params, const Shape& state);
  absl::Status Allocate(int64_t floats, Memory& memory);

  // The time step that is processed after `index` others.
  int64_t StepAt(int64_t index) const { return recurrent_.go_backwards ? steps_ - 1 - index : index; }
  float* z(int64_t index) const { return z_->data() + StepAt(index) * gate_floats_; }
  float* h(int64_t index) const { return h_->data() + index * state_floats_; }
  float* c(int64_t index) const { return c_->data() + index * state_floats_; }
  // The states before the step; `state` 0: h, 1: c.
  const float* Before(int64_t index, size_t state) const;

  // The h that is convolved in the step.
  const float* Convolved(int64_t index, bool training) const;
  absl::Status ForwardStep(int64_t index, const ForwardArgs& args);
  // `dh` is the gradient of h after the step. Leaves that of h before the step in dh_.
  absl::Status BackwardStep(int64_t index, const float* dh, const BackwardArgs& args);
  absl::Status BackwardInput(const BackwardArgs& args);

  kernels::Device& device_;
  const bool use_bias_;
  const RecurrentConfig recurrent_;
  kernels::TensorDesc output_;
  int64_t steps_ = 0, state_floats_ = 0, gate_floats_ = 0;  // of a step of the batch

  std::unique_ptr<kernels::UnaryOp> by_steps_;  // the input [steps, n, h, w, c]
  Memory x_, dx_;
  std::unique_ptr<kernels::LinearOp> input_conv_;
  std::unique_ptr<PlainCopy> input_copy_;
  Memory projected_;  // by input_conv_, in its layout
  Memory z_;          // [steps, n, h, w, 4 units]; after Backward() its gradient

  std::vector<Step> made_steps_;           // [index]
  Memory product_, plain_product_;         // of the convolution of h: in its layout, and plain
  std::unique_ptr<PlainCopy> state_copy_;  // between these
  std::unique_ptr<kernels::NaryOp> add_gates_, add_states_, add_kernels_;
  Memory h_, c_;                                   // [index] after the step
  Memory zeros_;                                   // first states, and the recurrent kernel of the gates
  Memory kernel_of_gates_;                         // its gradient, which nothing reads
  Memory kernel_gradient_;                         // of the convolution of h in one step
  Memory dh_, dc_, other_dc_;                      // of the states before a step
  Memory by_index_gradient_;                       // of h_, with return_sequences
  std::unique_ptr<kernels::UnaryOp> by_examples_;  // h_ as the output [n, steps, h, w, units]
  std::vector<FirstState> first_;
  // With `dropout`, the same elements of the input in all steps. Null without.
  std::unique_ptr<LayerOp> input_dropout_;
  Memory dropped_, dropped_gradient_;
  // With `recurrent_dropout`, the same elements of h in all steps: their factors, and [index] h before the step times
  // these. Null without.
  std::unique_ptr<kernels::Dropout> state_dropout_;
  std::unique_ptr<kernels::NaryOp> multiply_states_;
  Memory ones_, state_scale_, scaled_, scaled_gradient_;
  Memory last_h_gradient_, last_c_gradient_;  // with return_state
};

}  // namespace cairn::nn
