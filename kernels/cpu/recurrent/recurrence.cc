// Recurrent layers. Each thread passes all steps of its own examples, so threads never wait for each other. The
// products with the recurrent kernel, which is packed once for all steps, and the gates are our own loops. The
// gradient of the kernel is one product over all steps.
#include "kernels/recurrence.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/cpu/linear/batch_sums.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/loops/recurrence_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuRecurrence final : public Recurrence {
 public:
  CpuRecurrence(onednn::Context& context, const RecurrenceParams& params)
      : context_(context),
        params_(params),
        output_(params),
        states_(params.batch * params.steps * params.units),
        last_(params.batch * params.units),
        dh_(params.batch * params.units),
        dscaled_(params.batch * params.units),
        packed_(code_.packed_floats(params.units, first_width()) +
                code_.packed_floats(params.units, params.units)),
        packed_back_(code_.packed_floats(first_width(), params.units) +
                     code_.packed_floats(params.units, params.units)),
        kernel_product_(context, ProductOf(first_width(), params.gates() * params.units)) {
    if (is_gru())
      candidate_product_.emplace(
          context, ProductOf(params.units, (params.reset_after ? 1 : params.gates()) * params.units));
    if (is_lstm()) {
      carries_ = AlignedBuffer(states_.size());
      dc_ = AlignedBuffer(dh_.size());
    }
    if (is_gru()) inner_ = AlignedBuffer(states_.size());
  }

  absl::Status Forward(const Inputs& inputs, float* z, const Outputs& outputs) override {
    const int64_t units = params_.units, width = params_.gates() * units;
    Pack({inputs.kernel, width, 1}, units, first_width(), packed_.data());
    if (is_gru())
      Pack({inputs.kernel + first_width(), width, 1}, units, units, SecondOf(packed_, units, first_width()));
    if (inputs.state_scale != nullptr && scaled_.size() == 0) scaled_ = AlignedBuffer(states_.size());
    ForExamples([&](int64_t begin, int64_t end) { ForwardExamples(inputs, {begin, end}, z, outputs); });
    return absl::OkStatus();
  }

  absl::Status Backward(const Inputs& inputs, float* z, const OutputGradients& of_outputs,
                        const Gradients& gradients) override {
    const int64_t units = params_.units, width = params_.gates() * units;
    Pack({inputs.kernel, 1, width}, first_width(), units, packed_back_.data());
    if (is_gru())
      Pack({inputs.kernel + first_width(), 1, width}, units, units,
           SecondOf(packed_back_, first_width(), units));
    ForExamples([&](int64_t begin, int64_t end) {
      BackwardExamples(inputs, {begin, end}, z, of_outputs, gradients);
    });
    if (gradients.bias != nullptr) {
      const int64_t rows = params_.batch * params_.steps;
      SumRows(context_, {z, width}, rows, first_width(), gradients.bias);
      SumRows(context_, {inner_.data(), units}, rows, units, gradients.bias + first_width());
    }
    CAIRN_RETURN_IF_ERROR(kernel_product_.Run(Scaled(inputs), z, gradients.kernel));
    if (!is_gru()) return absl::OkStatus();
    const bool after = params_.reset_after;
    return candidate_product_->Run(after ? Scaled(inputs) : inner_.data(),
                                   after ? inner_.data() : z + first_width(),
                                   gradients.kernel + first_width());
  }

 private:
  struct Matrix {
    const float* at;
    int64_t row_stride, column_stride;
  };
  // Packs a matrix [depth, width], a panel of columns at a time.
  void Pack(const Matrix& matrix, int64_t depth, int64_t width, float* packed) const {
    ParallelFor(context_, width, code_.panel_columns, [&](int64_t begin, int64_t end) {
      code_.pack(matrix.at + begin * matrix.column_stride, matrix.row_stride, matrix.column_stride, depth,
                 end - begin, packed + begin * depth);
    });
  }

  struct Range {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
  };

  // The gradient by `columns` of U: the product of the states and of gradients whose rows are `stride` apart.
  onednn::TransposedProduct ProductOf(int64_t columns, int64_t stride) const {
    const int64_t units = params_.units;
    return {.m = units,
            .n = columns,
            .k = params_.batch * params_.steps,
            .a = {nullptr, units},
            .b = {nullptr, stride},
            .c = {nullptr, params_.gates() * units}};
  }

  bool is_lstm() const { return params_.cell == RecurrentCell::kLstm; }
  bool is_gru() const { return params_.cell == RecurrentCell::kGru; }
  // The columns of U that are multiplied by h and added to z. The rest, of the candidate of a GRU, is separate.
  int64_t first_width() const { return (is_gru() ? 2 : params_.gates()) * params_.units; }
  float* SecondOf(AlignedBuffer& packed, int64_t depth, int64_t width) const {
    return packed.data() + code_.packed_floats(depth, width);
  }
  const float* Scaled(const Inputs& inputs) const {
    return inputs.state_scale == nullptr ? states_.data() : scaled_.data();
  }
  // The step that is processed after `index` others.
  int64_t StepAt(int64_t index) const { return params_.backwards ? params_.steps - 1 - index : index; }
  int64_t OutputRow(int64_t index) const {
    return !params_.sequences ? 0 : params_.in_order ? index : StepAt(index);
  }
  bool IsMasked(const Inputs& inputs, int64_t example, int64_t step) const {
    return inputs.mask != nullptr && inputs.mask[example * params_.steps + step] == 0;
  }

  // Divides the examples among the threads. An example's sums do not depend on the division.
  template <typename Body>
  void ForExamples(const Body& body) const {
    const int64_t threads = std::min<int64_t>(context_.threads(), params_.batch);
    ParallelFor(context_, params_.batch, (params_.batch + threads - 1) / threads, body);
  }

  // The rows of the step that is processed after `index` others.
  StepRows RowsOf(const Inputs& inputs, Range range, int64_t index, float* z) {
    const int64_t units = params_.units, step = StepAt(index);
    const int64_t row = range.begin * params_.steps + step;
    StepRows rows = {.count = range.count(), .units = units, .stride = params_.steps * units};
    rows.z = z + row * params_.gates() * units;
    rows.state = states_.data() + row * units;
    if (is_lstm()) {
      rows.next_carry = carries_.data() + row * units;
      rows.carry_stride = index > 0 ? rows.stride : units;
      if (index > 0) {
        rows.carry = carries_.data() + (range.begin * params_.steps + StepAt(index - 1)) * units;
      } else if (inputs.first_c != nullptr) {
        rows.carry = inputs.first_c + range.begin * units;
      }
    }
    if (is_gru()) rows.inner = inner_.data() + row * units;
    if (inputs.state_scale != nullptr) rows.state_scale = inputs.state_scale + range.begin * units;
    if (inputs.mask != nullptr) {
      rows.mask = inputs.mask + row;
      rows.mask_stride = params_.steps;
    }
    return rows;
  }

  void ForwardExamples(const Inputs& inputs, Range range, float* z, const Outputs& outputs) {
    const int64_t units = params_.units, stride = params_.steps * units, z_stride = params_.gates() * stride;
    if (inputs.first_h != nullptr) LoadFirst(inputs, RowsOf(inputs, range, 0, z), range);
    for (int64_t index = 0; index < params_.steps; ++index) {
      const StepRows rows = RowsOf(inputs, range, index, z);
      const float* const scaled = Scaled(inputs) + (rows.state - states_.data());
      if (index > 0 || inputs.first_h != nullptr)
        code_.multiply(scaled, stride, packed_.data(), range.count(), units, first_width(), true, rows.z,
                       z_stride);
      if (is_gru()) {
        const float* const second = SecondOf(packed_, units, first_width());
        if (params_.reset_after) {
          StartInner(inputs, rows);
          code_.multiply(scaled, stride, second, range.count(), units, units, true, rows.inner, stride);
        } else {
          code_.reset(params_, rows);
          code_.multiply(rows.inner, stride, second, range.count(), units, units, true,
                         rows.z + first_width(), z_stride);
        }
      }
      const bool is_last = index + 1 == params_.steps;
      const int64_t next_row = is_last ? 0 : range.begin * params_.steps + StepAt(index + 1);
      float* const next = is_last ? last_.data() + range.begin * units : states_.data() + next_row * units;
      const int64_t next_stride = is_last ? units : stride;
      code_.forward(params_, rows, next, next_stride);
      if (params_.sequences || is_last) Output(inputs, range, index, {next, next_stride}, outputs.y);
      if (!is_last && inputs.state_scale != nullptr) Scale(rows, next, scaled_.data() + next_row * units);
      if (is_last) StoreLast(rows, range, outputs);
    }
  }

  // h before the first step, whose rows are `rows`.
  void LoadFirst(const Inputs& inputs, const StepRows& rows, Range range) {
    const int64_t offset = rows.state - states_.data();
    CopyRows(inputs.first_h + range.begin * rows.units, rows.units, states_.data() + offset, rows.stride,
             rows);
    if (inputs.state_scale != nullptr) Scale(rows, rows.state, scaled_.data() + offset);
  }

  // The states after the last step, whose rows are `rows`.
  void StoreLast(const StepRows& rows, Range range, const Outputs& outputs) const {
    const int64_t units = rows.units, first = range.begin * units;
    if (outputs.last_h != nullptr) CopyRows(last_.data() + first, units, outputs.last_h + first, units, rows);
    if (outputs.last_c != nullptr)
      CopyRows(rows.next_carry, rows.stride, outputs.last_c + first, units, rows);
  }

  static void CopyRows(const float* from, int64_t from_stride, float* to, int64_t to_stride,
                       const StepRows& rows) {
    for (int64_t i = 0; i < rows.count; ++i)
      std::copy_n(from + i * from_stride, rows.units, to + i * to_stride);
  }

  // The products with Uh are added to bh.
  void StartInner(const Inputs& inputs, const StepRows& rows) const {
    const float* const bias = inputs.bias == nullptr ? nullptr : inputs.bias + first_width();
    const float* const gate_bias = inputs.bias;
    for (int64_t i = 0; i < rows.count; ++i) {
      float* const inner = rows.inner + i * rows.stride;
      if (bias == nullptr) {
        std::fill_n(inner, rows.units, 0.0f);
        continue;
      }
      std::copy_n(bias, rows.units, inner);
      float* const z = rows.z + i * params_.gates() * rows.stride;
      for (int64_t j = 0; j < first_width(); ++j) z[j] += gate_bias[j];
    }
  }

  void Output(const Inputs& inputs, Range range, int64_t index, onednn::MatrixPart<const float> states,
              float* y) const {
    for (int64_t example = range.begin; example < range.end; ++example) {
      float* const to = y + output_.At(example, OutputRow(index));
      if (params_.zeros_masked && IsMasked(inputs, example, StepAt(index))) {
        std::fill_n(to, params_.units, 0.0f);
      } else {
        std::copy_n(states.at + (example - range.begin) * states.stride, params_.units, to);
      }
    }
  }

  static void Scale(const StepRows& rows, const float* states, float* scaled) {
    for (int64_t i = 0; i < rows.count; ++i) {
      for (int64_t j = 0; j < rows.units; ++j)
        scaled[i * rows.stride + j] = states[i * rows.stride + j] * rows.state_scale[i * rows.units + j];
    }
  }

  void BackwardExamples(const Inputs& inputs, Range range, float* z, const OutputGradients& of_outputs,
                        const Gradients& gradients) {
    const int64_t units = params_.units, stride = params_.steps * units, z_stride = params_.gates() * stride;
    const int64_t first = range.begin * units, count = range.count() * units;
    float* const dh = dh_.data() + first;
    float* const dc = is_lstm() ? dc_.data() + first : nullptr;
    float* const dscaled = dscaled_.data() + first;
    StartGradient(of_outputs.last_h, first, count, dh);
    if (dc != nullptr) StartGradient(of_outputs.last_c, first, count, dc);
    const float* const second = SecondOf(packed_back_, first_width(), units);
    for (int64_t index = params_.steps; index-- > 0;) {
      const StepRows rows = RowsOf(inputs, range, index, z);
      if (params_.sequences || index + 1 == params_.steps)
        AddOutputGradient(inputs, range, index, of_outputs.y);
      code_.backward(params_, rows, dh, dc);
      const bool resets = is_gru() && !params_.reset_after;
      // The gradient through U, added to dh unless it must be scaled first.
      const bool direct = inputs.state_scale == nullptr && !resets;
      float* const through = direct ? dh : dscaled;
      if (resets) {
        code_.multiply(rows.z + first_width(), z_stride, second, range.count(), units, units, false, dscaled,
                       units);
        code_.backward_reset(params_, rows, dscaled);
      }
      if (index == 0 && gradients.first_h == nullptr) break;
      code_.multiply(rows.z, z_stride, packed_back_.data(), range.count(), first_width(), units,
                     direct || resets, through, units);
      if (is_gru() && params_.reset_after)
        code_.multiply(rows.inner, stride, second, range.count(), units, units, true, through, units);
      if (direct) continue;
      const float* const scale = rows.state_scale;
      for (int64_t j = 0; j < count; ++j) dh[j] += scale == nullptr ? dscaled[j] : dscaled[j] * scale[j];
    }
    if (gradients.first_h != nullptr) std::copy_n(dh, count, gradients.first_h + first);
    if (gradients.first_c != nullptr) std::copy_n(dc, count, gradients.first_c + first);
  }

  static void StartGradient(const float* last, int64_t first, int64_t count, float* to) {
    if (last == nullptr) {
      std::fill_n(to, count, 0.0f);
    } else {
      std::copy_n(last + first, count, to);
    }
  }

  void AddOutputGradient(const Inputs& inputs, Range range, int64_t index, const float* dy) {
    for (int64_t example = range.begin; example < range.end; ++example) {
      if (params_.zeros_masked && IsMasked(inputs, example, StepAt(index))) continue;
      const float* const from = dy + output_.At(example, OutputRow(index));
      float* const to = dh_.data() + example * params_.units;
      for (int64_t j = 0; j < params_.units; ++j) to[j] += from[j];
    }
  }

  onednn::Context& context_;
  const RecurrenceParams params_;
  const RecurrentOutput output_;
  const RecurrenceCode code_ = CAIRN_BEST_LOOPS(RecurrenceLoops);
  // Values of all steps, [n, steps, units]: h before a step; that times state_scale, if there is any; c after the step;
  // and h Uh + bh or r h of a GRU, then its gradient.
  AlignedBuffer states_, scaled_, carries_, inner_;
  AlignedBuffer last_;               // [n, units] h after the last step
  AlignedBuffer dh_, dc_, dscaled_;  // [n, units]
  // U and its transpose, packed: the first columns, then those of a GRU's candidate.
  AlignedBuffer packed_, packed_back_;
  TransposedMultiplier kernel_product_;
  std::optional<TransposedMultiplier>
      candidate_product_;  // of a GRU, whose candidate has products of its own
};

}  // namespace

absl::StatusOr<std::unique_ptr<Recurrence>> MakeRecurrence(onednn::Context& context,
                                                           const RecurrenceParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return std::make_unique<CpuRecurrence>(context, params);
}

}  // namespace cairn::kernels::cpu
