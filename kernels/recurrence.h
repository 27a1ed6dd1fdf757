// Recurrent layers: their contract, and where their outputs are.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/core/host_device.h"
#include "kernels/activation.h"
#include "kernels/device.h"

namespace cairn::kernels {

enum class RecurrentCell { kSimple, kLstm, kGru };

// A recurrent layer in one direction, behind the projection of its inputs z = x kernel + bias, [n, steps, gates *
// units]. The gates are in Keras' order: i f c o of an LSTM, z r h of a GRU, one of a simple cell. With the states h
// and c [n, units], which are given or 0 at first, U the recurrent kernel [units, gates * units], f the activation and
// s the recurrent activation, a step is
//   kSimple  h = f(z + h U)
//   kLstm    c = s(zf + h Uf) c + s(zi + h Ui) f(zc + h Uc),  h = s(zo + h Uo) f(c)
//   kGru     h = u h + (1 - u) f(zh + r (h Uh + bh)),  u = s(zz + h Uz + bz),  r = s(zr + h Ur + br)
// and without `reset_after` the candidate of kGru is f(zh + (r h) Uh). The derivative of both
// activations must follow from the value (has_derivative_of_value()): neither may be kSilu or kGelu, for example.
struct RecurrenceParams {
  RecurrentCell cell = RecurrentCell::kSimple;
  int64_t batch = 0, steps = 0, units = 0;
  ElementType type = ElementType::kFloat32;  // of z and y
  ActivationParams activation, recurrent_activation;
  bool reset_after = false;  // kGru
  bool use_bias = false;     // b [3 units], with reset_after
  bool backwards = false;    // the last step is processed first
  // y is [n, steps, units], in the order of the steps or, with `in_order`, in the order in which they are processed.
  // Otherwise y is the last output [n, units].
  bool sequences = false, in_order = false;
  // y is part of wider rows: columns `y_column` to y_column + units of `y_width`. 0: y is alone.
  int64_t y_width = 0, y_column = 0;
  // A masked step keeps the states. Its output is h, or 0 with `zeros_masked`.
  bool zeros_masked = false;

  int64_t gates() const { return cell == RecurrentCell::kLstm ? 4 : cell == RecurrentCell::kGru ? 3 : 1; }
};

class Recurrence {
 public:
  struct Inputs {
    const float* kernel = nullptr;  // U
    const float* bias = nullptr;    // b; null without use_bias
    const float* mask = nullptr;    // [n, steps] plain float32: 0 where a step is masked; null: none is
    // [n, units] plain float32: the factors of the h that is multiplied by U (dropout); null: 1. It must be the same in
    // Backward().
    const float* state_scale = nullptr;
    // The states before the first step, [n, units] of `type`; null, in all calls or in none: 0. c: only of kLstm.
    const float *first_h = nullptr, *first_c = nullptr;
  };
  struct Outputs {
    float* y = nullptr;
    // The states after the last step, as first_h and first_c; null: not needed.
    float *last_h = nullptr, *last_c = nullptr;
  };
  struct OutputGradients {
    const float* y = nullptr;
    const float *last_h = nullptr, *last_c = nullptr;  // null: 0
  };
  struct Gradients {
    float *kernel = nullptr, *bias = nullptr;      // the bias: null without use_bias
    float *first_h = nullptr, *first_c = nullptr;  // null: not needed
  };

  virtual ~Recurrence() = default;
  // Overwrites z, which Backward() needs.
  virtual absl::Status Forward(const Inputs& inputs, float* z, const Outputs& outputs) = 0;
  // Overwrites z by its gradient.
  virtual absl::Status Backward(const Inputs& inputs, float* z, const OutputGradients& of_outputs,
                                const Gradients& gradients) = 0;
};

// INVALID_ARGUMENT for extents below 1 and columns that do not hold the units; UNIMPLEMENTED for activations whose
// value does not give their derivative.
absl::Status Validate(const RecurrenceParams& params);

// Where the output of a step begins in y, in elements.
struct RecurrentOutput {
  explicit RecurrentOutput(const RecurrenceParams& params)
      : width(params.y_width > 0 ? params.y_width : params.units),
        column(params.y_column),
        rows(params.sequences ? params.steps : 1) {}
  int64_t width, column, rows;

  CAIRN_HOST_DEVICE int64_t At(int64_t example, int64_t row) const {
    return (example * rows + row) * width + column;
  }
};

}  // namespace cairn::kernels
