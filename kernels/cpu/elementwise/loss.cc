// Losses, row by row; the sums are in double and in row order, so they do not depend on the number of threads.
#include <omp.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/box_loss.h"
#include "kernels/cpu/loops/activation_loops.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

// A row's targets are either one class index or a weight for each class. Both forms provide the target t[j]
// of class j, the sum of t[j] * f(j) over the classes, and f(j, t[j]) for all of them.
class OneClass {
 public:
  explicit OneClass(float label) : label_(static_cast<int64_t>(label)) {}
  float operator[](int64_t j) const { return j == label_ ? 1.0f : 0.0f; }
  template <typename Function>
  double Sum(const Function& f) const {
    return f(label_);
  }
  // Without a comparison for each class, which would cost as much as a simple `f`.
  template <typename Function>
  void ForEach(int64_t width, const Function& f) const {
    for (int64_t j = 0; j < label_; ++j) f(j, 0.0f);
    f(label_, 1.0f);
    for (int64_t j = label_ + 1; j < width; ++j) f(j, 0.0f);
  }

 private:
  const int64_t label_;
};

class Shares {
 public:
  Shares(const float* targets, int64_t width, LabelSmoothing smooth)
      : targets_(targets), width_(width), smooth_(smooth) {}
  float operator[](int64_t j) const { return smooth_(targets_[j]); }
  template <typename Function>
  double Sum(const Function& f) const {
    double sum = 0;
    for (int64_t j = 0; j < width_; ++j) sum += double{(*this)[j] * f(j)};
    return sum;
  }
  template <typename Function>
  void ForEach(int64_t width, const Function& f) const {
    for (int64_t j = 0; j < width; ++j) f(j, (*this)[j]);
  }

 private:
  const float* const targets_;
  const int64_t width_;
  const LabelSmoothing smooth_;
};

class CpuLoss final : public Loss {
 public:
  CpuLoss(onednn::Context& context, const LossParams& params)
      : context_(context),
        params_(params),
        smooth_(MakeSmoothing(params)),
        terms_(params.terms_per_example()),
        scale_(static_cast<float>(params.weight) / static_cast<float>(params.terms())),
        output_stride_(params.output_stride != 0 ? params.output_stride : params.outputs_per_example()),
        target_stride_(params.target_stride != 0 ? params.target_stride : params.targets_per_example()),
        weight_stride_(params.weight_stride != 0 ? params.weight_stride : params.weights_per_example()),
        terms_of_rows_(static_cast<size_t>(params.batch * params.rows_per_example)),
        scratch_(static_cast<size_t>(context.threads() * params.width)) {}

  absl::Status Run(const float* outputs, const float* targets, const float* weights, LossSums* sums,
                   float* doutputs) override {
    const float row_weight = params_.leaves_out_rows() ? WeightOfRows(outputs, targets) : 1;
    if (params_.kind == LossKind::kSparseCategoricalCrossentropy)
      CAIRN_RETURN_IF_ERROR(CheckLabels(outputs, targets));
    const auto weight_of = [&](int64_t example) {
      return row_weight *
             (weights == nullptr || params_.row_weights ? 1.0f : weights[example * weight_stride_]);
    };
    const int64_t rows = params_.rows_per_example, targets_per_row = params_.targets_per_example() / rows;
    const int64_t grain = std::max<int64_t>(1, kElementGrain / params_.width);
    ParallelFor(context_, params_.batch * rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t example = i / rows, row = i % rows;
        const int64_t at = example * output_stride_ + row * params_.width;
        float* const doutput = doutputs == nullptr ? nullptr : doutputs + at;
        double& terms = terms_of_rows_[static_cast<size_t>(i)];
        if (IsLeftOut(outputs, targets, example, row)) {
          if (doutput != nullptr) std::fill_n(doutput, params_.width, 0.0f);
          terms = 0;
          continue;
        }
        const float of_row =
            weights == nullptr || !params_.row_weights ? 1.0f : weights[example * weight_stride_ + row];
        const float* const target = targets + example * target_stride_ + row * targets_per_row;
        terms = double{of_row} * Row(outputs + at, target, weight_of(example) * of_row * scale_, doutput);
      }
    });
    *sums = {.examples = params_.batch};
    for (int64_t example = 0; example < params_.batch; ++example) {
      double loss = 0;
      for (int64_t row = 0; row < rows; ++row)
        loss += terms_of_rows_[static_cast<size_t>(example * rows + row)];
      sums->loss += double{weight_of(example)} * loss / static_cast<double>(terms_);
    }
    return absl::OkStatus();
  }

 private:
  // [width] of this thread.
  float* Scratch() { return scratch_.data() + omp_get_thread_num() * params_.width; }

  bool IsLeftOut(const float* outputs, const float* targets, int64_t example, int64_t row) const {
    if (params_.masked && outputs[example * output_stride_ + params_.outputs_per_example() + row] == 0)
      return true;
    return params_.ignore_class.has_value() &&
           targets[example * target_stride_ + row] == static_cast<float>(*params_.ignore_class);
  }

  // The weight of each row that is not left out: all rows over these. 0 if there are none.
  float WeightOfRows(const float* outputs, const float* targets) const {
    int64_t kept = 0;
    for (int64_t example = 0; example < params_.batch; ++example) {
      for (int64_t row = 0; row < params_.rows_per_example; ++row)
        kept += IsLeftOut(outputs, targets, example, row) ? 0 : 1;
    }
    const auto rows = static_cast<double>(params_.batch * params_.rows_per_example);
    return kept == 0 ? 0 : static_cast<float>(rows / static_cast<double>(kept));
  }

  absl::Status CheckLabels(const float* outputs, const float* labels) const {
    for (int64_t i = 0; i < params_.batch * params_.rows_per_example; ++i) {
      const int64_t example = i / params_.rows_per_example, row = i % params_.rows_per_example;
      const float label = labels[example * target_stride_ + row];
      if (IsClassIndex(label, params_.width) || IsLeftOut(outputs, labels, example, row)) continue;
      return BadLabelError(params_, i, label);
    }
    return absl::OkStatus();
  }

  // Returns the sum of the row's terms. `doutput`, unless it is null, becomes their gradient times `scale`.
  double Row(const float* output, const float* target, float scale, float* doutput) {
    switch (params_.kind) {
      case LossKind::kSparseCategoricalCrossentropy:
        return Categories(output, OneClass(*target), scale, doutput);
      case LossKind::kCategoricalCrossentropy:
        return Categories(output, Shares(target, params_.width, smooth_), scale, doutput);
      case LossKind::kBinaryCrossentropy:
        if (params_.from_logits) {
          return Elements(output, target, BinaryCrossentropyOfLogits{smooth_}, scale, doutput);
        }
        return Elements(output, target, BinaryCrossentropyOfProbabilities{smooth_}, scale, doutput);
      case LossKind::kMeanSquaredError:
        return Elements(output, target, SquaredError(), scale, doutput);
      case LossKind::kMeanAbsoluteError:
        return Elements(output, target, AbsoluteError(), scale, doutput);
      case LossKind::kHuber:
        return Elements(output, target, HuberLoss{static_cast<float>(params_.delta)}, scale, doutput);
      case LossKind::kCategoricalFocalCrossentropy:
        return FocalCategories(output, target, scale, doutput);
      case LossKind::kBinaryFocalCrossentropy: {
        const BinaryFocalOfProbabilities focal = MakeBinaryFocal(params_);
        if (params_.from_logits) return Elements(output, target, BinaryFocalOfLogits{focal}, scale, doutput);
        return Elements(output, target, focal, scale, doutput);
      }
      case LossKind::kIou:
      case LossKind::kGiou:
      case LossKind::kCiou:
        return OneBox(output, target, scale, doutput);
      case LossKind::kInBatchSoftmax:
        break;  // in_batch_softmax.cc
    }
    return 0;
  }

  template <typename Targets>
  double Categories(const float* output, const Targets& targets, float scale, float* doutput) {
    return params_.from_logits ? Logits(output, targets, scale, doutput)
                               : Probabilities(output, targets, scale, doutput);
  }

  template <typename Targets>
  double Logits(const float* output, const Targets& targets, float scale, float* doutput) {
    const RowSum row = code_.exponentials(output, params_.width, doutput == nullptr ? Scratch() : doutput);
    if (doutput != nullptr) {
      const auto sum_of_targets = static_cast<float>(targets.Sum([](int64_t) { return 1.0f; }));
      targets.ForEach(params_.width, [=](int64_t j, float target) {
        doutput[j] = LogitLossGradient(doutput[j] / row.sum, target, sum_of_targets) * scale;
      });
    }
    const float log_sum = std::log(row.sum);
    return targets.Sum([&](int64_t j) { return LogitLoss(output[j], row.largest, log_sum); });
  }

  template <typename Targets>
  double Probabilities(const float* output, const Targets& targets, float scale, float* doutput) const {
    float sum = 0;
    for (int64_t j = 0; j < params_.width; ++j) sum += output[j];
    if (doutput != nullptr) {
      const auto unclipped = static_cast<float>(
          targets.Sum([&](int64_t j) { return IsClipped(output[j] / sum) ? 0.0f : 1.0f; }));
      for (int64_t j = 0; j < params_.width; ++j) {
        doutput[j] = ProbabilityLossGradient(output[j], sum, targets[j], unclipped) * scale;
      }
    }
    return targets.Sum([&](int64_t j) { return ProbabilityLoss(output[j], sum); });
  }

  double FocalCategories(const float* output, const float* target, float scale, float* doutput) {
    const CategoricalFocal focal = MakeCategoricalFocal(params_, params_.class_alphas.data());
    float* const p = Scratch();
    float sum = 0;
    if (params_.from_logits) {
      sum = code_.exponentials(output, params_.width, p).sum;
    } else {
      std::copy_n(output, params_.width, p);
      for (int64_t j = 0; j < params_.width; ++j) sum += output[j];
    }
    double loss = 0, dot = 0;
    for (int64_t j = 0; j < params_.width; ++j) {
      p[j] /= sum;
      const float share = focal.Share(target[j], j);
      loss += double{share * focal.Value(Clip(p[j]))};
      dot += double{share * focal.Slope(p[j]) * p[j]};
    }
    if (doutput == nullptr) return loss;
    for (int64_t j = 0; j < params_.width; ++j) {
      const float slope = focal.Share(target[j], j) * focal.Slope(p[j]) - static_cast<float>(dot);
      doutput[j] = slope * (params_.from_logits ? p[j] : 1 / sum) * scale;
    }
    return loss;
  }

  double OneBox(const float* output, const float* target, float scale, float* doutput) const {
    const BoxNumber loss = MakeBoxLoss(params_).Run(output, target);
    if (doutput != nullptr) {
      for (int i = 0; i < kBoxNumbers; ++i) doutput[i] = loss.slope[i] * scale;
    }
    return double{loss.value};
  }

  template <typename Formula>
  double Elements(const float* output, const float* target, const Formula& formula, float scale,
                  float* doutput) const {
    double sum = 0;
    for (int64_t j = 0; j < params_.width; ++j) {
      sum += double{formula.Value(output[j], target[j])};
      if (doutput != nullptr) doutput[j] = formula.Gradient(output[j], target[j]) * scale;
    }
    return sum;
  }

  onednn::Context& context_;
  const LossParams params_;
  const LabelSmoothing smooth_;
  const int64_t terms_;
  const float scale_;  // the factor of a term's gradient, if the example has weight 1
  const int64_t output_stride_, target_stride_, weight_stride_;
  std::vector<double> terms_of_rows_;  // [batch * rows_per_example], each times the weight of its row
  std::vector<float> scratch_;         // [thread, width]
  const ActivationCode code_ = CAIRN_BEST_LOOPS(ActivationLoops);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(onednn::Context& context, const LossParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  if (params.kind == LossKind::kInBatchSoftmax) return MakeInBatchSoftmax(context, params);
  return std::make_unique<CpuLoss>(context, params);
}

}  // namespace cairn::kernels::cpu
