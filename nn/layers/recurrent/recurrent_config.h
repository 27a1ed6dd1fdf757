// The settings of LSTM, GRU, SimpleRNN and ConvLSTM2D, as Keras names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "kernels/ops.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"
#include "nn/layers/activation.h"

namespace cairn::nn {

struct RecurrentConfig {
  kernels::RecurrentCell cell = kernels::RecurrentCell::kSimple;
  int64_t units = 0;
  ActivationSpec activation{}, recurrent_activation{};
  bool use_bias = true;
  bool reset_after = false;  // of a GRU: the bias is [2, 3 units], that of the inputs and that of the states
  bool return_sequences = false, return_state = false, go_backwards = false, zero_output_for_mask = false;
  float dropout = 0, recurrent_dropout = 0;
  InitializerSpec kernel_initializer{}, recurrent_initializer{}, bias_initializer{};
  RegularizerSpec kernel_regularizer{}, recurrent_regularizer{}, bias_regularizer{};
  std::optional<Constraint> kernel_constraint{}, recurrent_constraint{}, bias_constraint{};

  // Reads the fields of the layer `class_name`: "LSTM", "GRU", "SimpleRNN" or, with `filters` as the units,
  // "ConvLSTM2D".
  static RecurrentConfig Read(const std::string& class_name, ConfigReader& config);

  int64_t gates() const;
  int num_states() const { return cell == kernels::RecurrentCell::kLstm ? 2 : 1; }  // h, and c of an LSTM
  // INVALID_ARGUMENT unless each of these first states is [units].
  absl::Status CheckStates(absl::Span<const Shape> states) const;
  bool has_recurrent_bias() const { return use_bias && reset_after; }
  // kernel, recurrent_kernel and the bias, if there is one, for inputs of this width. `prefix`: "lstm_cell/".
  std::vector<VariableSpec> Variables(int64_t width, const std::string& prefix) const;
};

}  // namespace cairn::nn
