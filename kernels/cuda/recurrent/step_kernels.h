// The kernels of one step of a recurrent layer. A thread computes one unit of one example. All are deterministic.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/formulas.h"
#include "kernels/recurrence.h"

namespace cairn::kernels::cuda {

// The parameters of the kernels of one step. `row` below is example * steps + step.
struct RecurrentStep {
  RecurrentCell cell;
  bool reset_after, zeros_masked;
  bool has_product;  // h before the step is not the constant 0
  int64_t batch, steps, units, gates, step;
  int64_t product_units;  // the columns of `product`, in units
  ActivationParams activation, recurrent_activation;
  RecurrentOutput output;
  int64_t output_row;  // of this step in y; negative: it is no output

  __device__ int64_t Row(int64_t example) const { return example * steps + step; }
};

// The memory of a recurrent layer. T is the type of activations.
template <typename T>
struct RecurrentMemory {
  T* z;            // [batch, steps, gates * units]: z, the activated gates, their gradients
  T* product;      // [batch, product_units * units]: h U of the step; then the gradient of that
  float* state;    // [batch, steps, units]: h before the step
  float* carry;    // [batch, steps, units]: c after the step, of an LSTM
  T* inner;        // [batch, steps, units]: h Uh + bh of a GRU with reset_after, otherwise r h
  T* scaled;       // [batch, steps, units]: h times state_scale before the step
  T* current;      // [batch, units]: the operand of the next product
  T* gradients;    // [batch, steps, product_units * units]: of h U, for a GRU with reset_after
  float *dh, *dc;  // [batch, units]
  // The states [batch, units] before the first step and after the last one; null: 0, and not needed.
  const T *first_h, *first_c;
  T *last_h, *last_c;
};

// The places of the steps before and after this one in the order of processing; negative: there is none.
struct NeighborSteps {
  int64_t before, after;
};

// c before the step, of unit j of an example of an LSTM.
template <typename T>
__device__ float CarryBefore(const RecurrentStep& s, const RecurrentMemory<T>& m, const NeighborSteps& near,
                             int64_t example, int64_t j) {
  if (near.before >= 0) return m.carry[(example * s.steps + near.before) * s.units + j];
  return m.first_c == nullptr ? 0.0f : ToFloat(m.first_c[example * s.units + j]);
}

// The states of element i after the last step, where they are needed.
template <typename T>
__device__ void StoreLast(const RecurrentMemory<T>& m, int64_t i, float h, float c) {
  if (m.last_h != nullptr) m.last_h[i] = FromFloat<T>(h);
  if (m.last_c != nullptr) m.last_c[i] = FromFloat<T>(c);
}

// Before the first step `s`: writes the given h, and the operand of its product.
template <typename T>
__global__ void LoadFirstState(RecurrentStep s, RecurrentMemory<T> m, const float* scale) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.batch * s.units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t at = s.Row(i / s.units) * s.units + i % s.units;
    const float h = ToFloat(m.first_h[i]);
    const T operand = FromFloat<T>(scale == nullptr ? h : h * scale[i]);
    m.state[at] = h;
    m.scaled[at] = operand;
    m.current[i] = operand;
  }
}

// Activates the gates from z and the products with U, and writes the states, the next operand of the product and, if
// the step is an output, y. The last step writes the last states.
template <typename T>
__global__ void StepForward(RecurrentStep s, RecurrentMemory<T> m, NeighborSteps near, const float* bias,
                            const float* mask, const float* scale, T* y) {
  const int64_t units = s.units;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.batch * units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t example = i / units, j = i % units, row = s.Row(example), at = row * units + j;
    T* const z = m.z + row * s.gates * units + j;
    const auto gate = [&](int64_t g) { return ToFloat(z[g * units]); };
    const auto product = [&](int64_t g) {
      return s.has_product ? ToFloat(m.product[(example * s.product_units + g) * units + j]) : 0.0f;
    };
    const auto bias_of = [&](int64_t g) { return bias == nullptr ? 0.0f : bias[g * units + j]; };
    const auto put = [&](int64_t g, float value) { z[g * units] = FromFloat<T>(value); };
    const bool is_masked = mask != nullptr && mask[row] == 0;
    const float before = m.state[at];
    float h = before, c = 0;
    if (s.cell == RecurrentCell::kLstm) {
      c = CarryBefore(s, m, near, example, j);
      if (!is_masked) {
        const float input = Activate(s.recurrent_activation, gate(0) + product(0));
        const float forget = Activate(s.recurrent_activation, gate(1) + product(1));
        const float candidate = Activate(s.activation, gate(2) + product(2));
        const float output = Activate(s.recurrent_activation, gate(3) + product(3));
        c = forget * c + input * candidate;
        h = output * Activate(s.activation, c);
        const float activated[4] = {input, forget, candidate, output};
        for (int64_t g = 0; g < 4; ++g) put(g, activated[g]);
      }
      m.carry[at] = c;
    } else if (s.cell == RecurrentCell::kGru) {
      if (s.reset_after) m.inner[at] = FromFloat<T>(product(2) + bias_of(2));
      if (!is_masked) {
        float update = gate(0), inside = gate(2);
        if (s.reset_after) {
          update = Activate(s.recurrent_activation, gate(0) + product(0) + bias_of(0));
          const float reset = Activate(s.recurrent_activation, gate(1) + product(1) + bias_of(1));
          inside += reset * (product(2) + bias_of(2));
          put(0, update);
          put(1, reset);
        } else {
          inside += product(0);
        }
        const float candidate = Activate(s.activation, inside);
        put(2, candidate);
        h = update * before + (1.0f - update) * candidate;
      }
    } else if (!is_masked) {
      h = Activate(s.activation, gate(0) + product(0));
      put(0, h);
    }
    if (near.after >= 0) {
      const int64_t next = (example * s.steps + near.after) * units + j;
      m.state[next] = h;
      m.scaled[next] = m.current[i] = FromFloat<T>(scale == nullptr ? h : h * scale[i]);
    } else {
      StoreLast(m, i, h, c);
    }
    if (s.output_row >= 0)
      y[s.output.At(example, s.output_row) + j] = FromFloat<T>(s.zeros_masked && is_masked ? 0.0f : h);
  }
}

// For a GRU without reset_after, before the product with Uh: activates u and r, and writes r h.
template <typename T>
__global__ void ResetForward(RecurrentStep s, RecurrentMemory<T> m) {
  const int64_t units = s.units;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.batch * units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t example = i / units, j = i % units, row = s.Row(example), at = row * units + j;
    T* const z = m.z + row * s.gates * units + j;
    for (int64_t g = 0; g < 2; ++g) {
      const float product = s.has_product ? ToFloat(m.product[(example * 2 + g) * units + j]) : 0.0f;
      z[g * units] = FromFloat<T>(Activate(s.recurrent_activation, ToFloat(z[g * units]) + product));
    }
    const T product = FromFloat<T>(s.has_product ? ToFloat(z[units]) * ToFloat(m.scaled[at]) : 0.0f);
    m.inner[at] = product;
    m.current[i] = product;
  }
}

// Adds the gradient of the output to dh, and replaces the gates by their gradients, which it also writes to `product`
// for the product with the transpose of U. dh and dc become what reaches the states before the step directly.
template <typename T>
__global__ void StepBackward(RecurrentStep s, RecurrentMemory<T> m, NeighborSteps near, const float* mask,
                             const T* dy) {
  const int64_t units = s.units;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.batch * units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t example = i / units, j = i % units, row = s.Row(example), at = row * units + j;
    T* const z = m.z + row * s.gates * units + j;
    const auto gate = [&](int64_t g) { return ToFloat(z[g * units]); };
    // The gradient of gate g, of which h U gets `of_product`.
    const auto put = [&](int64_t g, float gradient, float of_product) {
      z[g * units] = FromFloat<T>(gradient);
      if (g >= s.product_units) return;
      m.product[(example * s.product_units + g) * units + j] = FromFloat<T>(of_product);
      if (m.gradients != nullptr)
        m.gradients[(row * s.product_units + g) * units + j] = FromFloat<T>(of_product);
    };
    const bool is_masked = mask != nullptr && mask[row] == 0;
    float dh = m.dh[i];
    if (s.output_row >= 0 && !(s.zeros_masked && is_masked))
      dh += ToFloat(dy[s.output.At(example, s.output_row) + j]);
    if (is_masked) {
      for (int64_t g = 0; g < s.gates; ++g) put(g, 0, 0);
      m.dh[i] = dh;
      continue;
    }
    const auto slope = [&](int64_t g) { return DerivativeOfValue(s.recurrent_activation, gate(g)); };
    if (s.cell == RecurrentCell::kLstm) {
      const float input = gate(0), forget = gate(1), candidate = gate(2), output = gate(3);
      const float before = CarryBefore(s, m, near, example, j);
      const float activated = Activate(s.activation, m.carry[at]);
      const float dc = m.dc[i] + dh * output * DerivativeOfValue(s.activation, activated);
      const float of[4] = {dc * candidate * slope(0), dc * before * slope(1),
                           dc * input * DerivativeOfValue(s.activation, candidate),
                           dh * activated * slope(3)};
      for (int64_t g = 0; g < 4; ++g) put(g, of[g], of[g]);
      m.dc[i] = dc * forget;
      m.dh[i] = 0;
    } else if (s.cell == RecurrentCell::kGru) {
      const float update = gate(0), reset = gate(1), candidate = gate(2);
      const float inside = dh * (1.0f - update) * DerivativeOfValue(s.activation, candidate);
      const float of_update = dh * (m.state[at] - candidate) * slope(0);
      if (s.reset_after) {
        const float of_reset = inside * ToFloat(m.inner[at]) * slope(1);
        put(0, of_update, of_update);
        put(1, of_reset, of_reset);
        put(2, inside, inside * reset);
      } else {  // that of r follows from the product with the transpose of Uh
        put(0, of_update, of_update);
        z[2 * units] = FromFloat<T>(inside);
        m.current[i] = FromFloat<T>(inside);
      }
      m.dh[i] = dh * update;
    } else {
      const float gradient = dh * DerivativeOfValue(s.activation, gate(0));
      put(0, gradient, gradient);
      m.dh[i] = 0;
    }
  }
}

// For a GRU without reset_after: the gradient of r from that of r h, and what reaches h through r h.
template <typename T>
__global__ void ResetBackward(RecurrentStep s, RecurrentMemory<T> m, const float* mask, const float* of_inner,
                              const float* scale) {
  const int64_t units = s.units;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < s.batch * units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t example = i / units, j = i % units, row = s.Row(example);
    T* const z = m.z + row * s.gates * units + j;
    const bool is_masked = mask != nullptr && mask[row] == 0;
    float of_reset = 0;
    if (!is_masked) {
      const float reset = ToFloat(z[units]);
      const float h = s.has_product ? ToFloat(m.scaled[row * units + j]) : 0.0f;
      of_reset = of_inner[i] * h * DerivativeOfValue(s.recurrent_activation, reset);
      m.dh[i] += of_inner[i] * reset * (scale == nullptr ? 1.0f : scale[i]);
    }
    z[units] = FromFloat<T>(of_reset);
    m.product[(example * 2 + 1) * units + j] = FromFloat<T>(of_reset);
  }
}

// dh += the gradient through U, times state_scale.
template <typename T>
__global__ void AddThrough(int64_t count, const float* through, const float* scale, float* dh) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < count; i += CAIRN_GLOBAL_THREADS)
    dh[i] += scale == nullptr ? through[i] : through[i] * scale[i];
}

// Copies columns of a matrix into columns of another one.
template <typename From, typename To>
__global__ void CopyColumns(int64_t rows, int64_t columns, const From* from, int64_t from_stride, To* to,
                            int64_t to_stride) {
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < rows * columns; i += CAIRN_GLOBAL_THREADS) {
    const int64_t row = i / columns, column = i % columns;
    to[row * to_stride + column] = FromFloat<To>(ToFloat(from[row * from_stride + column]));
  }
}

}  // namespace cairn::kernels::cuda
