// The formulas of losses on rows, for the kernel in loss.cu.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/box_loss.h"
#include "kernels/cuda/blocks/reduce.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {

// The piece of a row that this thread works on; empty for a thread without a piece.
struct Piece {
  int64_t width = 0;
  bool present = false;
  float scale = 1;  // the factor of the gradients of the piece's terms
  const float* output = nullptr;
  const float* target = nullptr;
  float* doutput = nullptr;  // or null
};

// The targets of a row over its classes: the target t[j] of class j, and the sum of t[j] * f(j) over the
// classes. Share() is this thread's part of the sum, Total() the whole sum.
class OneClass {
 public:
  static constexpr bool kLabels = true;
  __device__ OneClass(const Piece& piece, const LabelSmoothing& /*smooth*/)
      : label_(piece.present ? static_cast<int64_t>(*piece.target) : 0) {}
  __device__ float operator[](int64_t j) const { return j == label_ ? 1.0f : 0.0f; }
  template <int kUnit, typename Function>
  __device__ double Share(const RowPlan& plan, const Function& f) const {
    return plan.rank() == 0 ? double{f(label_)} : 0.0;
  }
  template <int kUnit, typename Function>
  __device__ float Total(const RowPlan& /*plan*/, const Function& f) const {
    return f(label_);
  }

 private:
  const int64_t label_;
};

class Shares {
 public:
  static constexpr bool kLabels = false;
  __device__ Shares(const Piece& piece, const LabelSmoothing& smooth)
      : targets_(piece.target), width_(piece.width), smooth_(smooth) {}
  __device__ float operator[](int64_t j) const { return smooth_(targets_[j]); }
  template <int kUnit, typename Function>
  __device__ double Share(const RowPlan& plan, const Function& f) const {
    double sum = 0;
    plan.ForEach<kUnit>(width_, [&](int64_t j) {
      for (int k = 0; k < kUnit; ++k) sum += double{(*this)[j + k] * f(j + k)};
    });
    return sum;
  }
  template <int kUnit, typename Function>
  __device__ float Total(const RowPlan& plan, const Function& f) const {
    return static_cast<float>(plan.Reduce(Share<kUnit>(plan, f), Sum()));
  }

 private:
  const float* const targets_;
  const int64_t width_;
  const LabelSmoothing smooth_;
};

// The formulas: Run() returns this thread's part of the sum of the piece's terms, and writes their gradients
// times `scale`.

template <typename Targets>
struct OfLogits {
  static constexpr bool kLabels = Targets::kLabels;
  LabelSmoothing smooth;
  template <int kUnit>
  __device__ double Run(const RowPlan& plan, const Piece& piece) const {
    const Targets targets(piece, smooth);
    const float* const output = piece.output;
    float largest = -std::numeric_limits<float>::infinity();
    plan.ForEach<kUnit>(piece.width, [&](int64_t j) {
      const auto v = Load<kUnit>(output + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) largest = Largest()(largest, v.at[k]);
    });
    largest = plan.Reduce(largest, Largest());
    float sum = 0;
    plan.ForEach<kUnit>(piece.width, [&](int64_t j) {
      const auto v = Load<kUnit>(output + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) sum += std::exp(v.at[k] - largest);
    });
    sum = plan.Reduce(sum, Sum());
    if (piece.doutput != nullptr) {
      const float all = targets.template Total<kUnit>(plan, [](int64_t) { return 1.0f; });
      plan.ForEach<kUnit>(piece.width, [&](int64_t j) {
        auto v = Load<kUnit>(output + j);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) {
          const float probability = std::exp(v.at[k] - largest) / sum;
          v.at[k] = LogitLossGradient(probability, targets[j + k], all) * piece.scale;
        }
        Store(piece.doutput + j, v);
      });
    }
    const float log_sum = std::log(sum);
    return targets.template Share<kUnit>(plan,
                                         [&](int64_t j) { return LogitLoss(output[j], largest, log_sum); });
  }
};

template <typename Targets>
struct OfProbabilities {
  static constexpr bool kLabels = Targets::kLabels;
  LabelSmoothing smooth;
  template <int kUnit>
  __device__ double Run(const RowPlan& plan, const Piece& piece) const {
    const Targets targets(piece, smooth);
    const float* const output = piece.output;
    float sum = 0;
    plan.ForEach<kUnit>(piece.width, [&](int64_t j) {
      const auto v = Load<kUnit>(output + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) sum += v.at[k];
    });
    sum = plan.Reduce(sum, Sum());
    if (piece.doutput != nullptr) {
      const float unclipped = targets.template Total<kUnit>(
          plan, [&](int64_t j) { return IsClipped(output[j] / sum) ? 0.0f : 1.0f; });
      plan.ForEach<kUnit>(piece.width, [&](int64_t j) {
        auto v = Load<kUnit>(output + j);
#pragma unroll
        for (int k = 0; k < kUnit; ++k) {
          v.at[k] = ProbabilityLossGradient(v.at[k], sum, targets[j + k], unclipped) * piece.scale;
        }
        Store(piece.doutput + j, v);
      });
    }
    return targets.template Share<kUnit>(plan, [&](int64_t j) { return ProbabilityLoss(output[j], sum); });
  }
};

template <bool kLogits>
struct OfFocal {
  static constexpr bool kLabels = false;
  CategoricalFocal focal;
  template <int kUnit>
  __device__ double Run(const RowPlan& plan, const Piece& piece) const {
    const float* const output = piece.output;
    float largest = kLogits ? -std::numeric_limits<float>::infinity() : 0.0f;
    if constexpr (kLogits) {
      plan.ForEach<1>(piece.width, [&](int64_t j) { largest = Largest()(largest, output[j]); });
      largest = plan.Reduce(largest, Largest());
    }
    const auto unscaled = [&](int64_t j) { return kLogits ? std::exp(output[j] - largest) : output[j]; };
    float sum = 0;
    plan.ForEach<1>(piece.width, [&](int64_t j) { sum += unscaled(j); });
    sum = plan.Reduce(sum, Sum());
    double loss = 0, dot = 0;
    plan.ForEach<1>(piece.width, [&](int64_t j) {
      const float p = unscaled(j) / sum, share = focal.Share(piece.target[j], j);
      loss += double{share * focal.Value(Clip(p))};
      dot += double{share * focal.Slope(p) * p};
    });
    dot = plan.Reduce(dot, Sum());
    if (piece.doutput == nullptr) return loss;
    plan.ForEach<1>(piece.width, [&](int64_t j) {
      const float p = unscaled(j) / sum;
      const float slope = focal.Share(piece.target[j], j) * focal.Slope(p) - static_cast<float>(dot);
      piece.doutput[j] = slope * (kLogits ? p : 1 / sum) * piece.scale;
    });
    return loss;
  }
};

// A row is a box, on which one thread works.
struct OfBoxes {
  static constexpr bool kLabels = false;
  BoxLoss loss;
  template <int kUnit>
  __device__ double Run(const RowPlan& plan, const Piece& piece) const {
    if (plan.rank() != 0 || !piece.present) return 0;
    const BoxNumber result = loss.Run(piece.output, piece.target);
    if (piece.doutput != nullptr) {
      for (int i = 0; i < kBoxNumbers; ++i) piece.doutput[i] = result.slope[i] * piece.scale;
    }
    return double{result.value};
  }
};

template <typename Formula>
struct OfElements {
  static constexpr bool kLabels = false;
  Formula formula;
  template <int kUnit>
  __device__ double Run(const RowPlan& plan, const Piece& piece) const {
    double sum = 0;
    plan.ForEach<kUnit>(piece.width, [&](int64_t j) {
      auto v = Load<kUnit>(piece.output + j);
#pragma unroll
      for (int k = 0; k < kUnit; ++k) {
        const float target = piece.target[j + k];
        sum += double{formula.Value(v.at[k], target)};
        v.at[k] = formula.Gradient(v.at[k], target) * piece.scale;
      }
      if (piece.doutput != nullptr) Store(piece.doutput + j, v);
    });
    return sum;
  }
};

}  // namespace cairn::kernels::cuda
