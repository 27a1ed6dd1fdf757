// The loops of recurrent layers, compiled for each instruction set: products with a packed matrix, and the gates of a
// step.
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vectors.h"
#include "kernels/ops.h"

namespace cairn::kernels::cpu {

// One step of a recurrent layer for `count` examples. Rows of the next example are `stride` floats further, those
// of z `gates * stride`. Null pointers: the cell has no such rows.
struct StepRows {
  int64_t count = 0, units = 0, stride = 0;
  float* z = nullptr;            // z, then the activated gates, then their gradients
  const float* state = nullptr;  // h before the step
  const float* carry = nullptr;  // kLstm: c before the step; null: 0
  int64_t carry_stride = 0;      // from an example's to that of the next
  float* next_carry = nullptr;   // kLstm: c after the step
  // kGru: h Uh + bh and its gradient or, without reset_after, r h and its gradient. h is multiplied by `state_scale`.
  float* inner = nullptr;
  const float* state_scale = nullptr;  // [count, units]; null: 1
  const float* mask = nullptr;         // the step's mask, of the next example `mask_stride` further; null: 1
  int64_t mask_stride = 0;
};

struct RecurrenceCode {
  // --- Products: matrices are packed in panels of so many columns, one after another ---
  int64_t panel_columns;
  int64_t (*packed_floats)(int64_t depth, int64_t width);
  // Packs b [depth, width], whose element (k, j) is matrix[k * row_stride + j * column_stride].
  void (*pack)(const float* matrix, int64_t row_stride, int64_t column_stride, int64_t depth, int64_t width,
               float* packed);
  // c [count, width] = a [count, depth] b, or with `adds` c += a b. Rows are at multiples of their stride.
  void (*multiply)(const float* a, int64_t a_stride, const float* packed, int64_t count, int64_t depth,
                   int64_t width, bool adds, float* c, int64_t c_stride);

  // --- Gates ---
  // z and `inner` contain the products with U. Activates the gates, and writes h after the step to `next`, of
  // the next example `next_stride` further. In a masked step h and c stay.
  void (*forward)(const RecurrenceParams& params, const StepRows& rows, float* next, int64_t next_stride);
  // kGru without reset_after, before forward(): activates u and r, and writes r h to `inner`.
  void (*reset)(const RecurrenceParams& params, const StepRows& rows);
  // Given the gradients dh and dc [count, units] of h and c after the step, replaces the activated gates in z, and
  // `inner`, by the gradients of what they were computed from. Replaces dh and dc by the gradients that reach h and c
  // before the step, except through U. Without reset_after, r and `inner` stay for backward_reset().
  void (*backward)(const RecurrenceParams& params, const StepRows& rows, float* dh, float* dc);
  // Replaces the gradient of r h in `dscaled` [count, units] by that of h times state_scale, and r in z by its
  // gradient.
  void (*backward_reset)(const RecurrenceParams& params, const StepRows& rows, float* dscaled);
};

namespace avx512 {
RecurrenceCode RecurrenceLoops();
}
namespace avx2 {
RecurrenceCode RecurrenceLoops();
}
namespace portable {
RecurrenceCode RecurrenceLoops();
}

}  // namespace cairn::kernels::cpu
