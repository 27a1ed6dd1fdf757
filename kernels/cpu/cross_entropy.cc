// Cross entropy of integer labels, row by row, in the calling thread; the sums are in double and in row
// order.
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/softmax_rows.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cpu {
namespace {

class CpuSparseCrossEntropy final : public SparseCrossEntropy {
 public:
  explicit CpuSparseCrossEntropy(const SparseCrossEntropyParams& params)
      : params_(params), exponentials_(static_cast<size_t>(params.classes)) {}

  absl::Status Run(const float* outputs, const int32_t* labels, LossSums* sums, float* doutputs) override {
    CAIRN_RETURN_IF_ERROR(CheckLabels(labels));
    *sums = {.examples = params_.batch};
    for (int64_t row = 0; row < params_.batch; ++row) {
      const float* output = outputs + row * params_.classes;
      float* doutput = doutputs == nullptr ? nullptr : doutputs + row * params_.classes;
      sums->loss += params_.from_logits ? LogitRow(output, labels[row], doutput)
                                        : ProbabilityRow(output, labels[row], doutput);
      const float* largest = std::max_element(output, output + params_.classes);
      if (largest - output == labels[row]) ++sums->correct;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckLabels(const int32_t* labels) const {
    for (int64_t row = 0; row < params_.batch; ++row) {
      if (labels[row] < 0 || labels[row] >= params_.classes) {
        return absl::InvalidArgumentError(absl::StrCat("label ", labels[row], " of example ", row,
                                                       " of the batch: the network has ", params_.classes,
                                                       " classes, 0 to ", params_.classes - 1));
      }
    }
    return absl::OkStatus();
  }

  float weight() const { return 1.0f / static_cast<float>(params_.batch); }

  float LogitRow(const float* output, int32_t label, float* doutput) {
    const RowSum row = ExpRow(output, params_.classes, exponentials_.data());
    if (doutput != nullptr) {
      for (int64_t j = 0; j < params_.classes; ++j) {
        const float probability = exponentials_[static_cast<size_t>(j)] / row.sum;
        doutput[j] = LogitLossGradient(probability, j == label, weight());
      }
    }
    return LogitLoss(output[label], row.largest, row.sum);
  }

  float ProbabilityRow(const float* output, int32_t label, float* doutput) const {
    float sum = 0;
    for (int64_t j = 0; j < params_.classes; ++j) sum += output[j];
    const ProbabilityLoss loss = LossOfProbability(output[label], sum);
    if (doutput != nullptr) {
      for (int64_t j = 0; j < params_.classes; ++j) {
        doutput[j] = loss.clipped ? 0.0f : ProbabilityLossGradient(output[label], sum, j == label, weight());
      }
    }
    return loss.loss;
  }

  const SparseCrossEntropyParams params_;
  std::vector<float> exponentials_;  // [classes]
};

}  // namespace

absl::StatusOr<std::unique_ptr<SparseCrossEntropy>> MakeSparseCrossEntropy(
    const SparseCrossEntropyParams& params) {
  if (params.batch < 1 || params.classes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cross entropy over [", params.batch, ",", params.classes, "]"));
  }
  return std::make_unique<CpuSparseCrossEntropy>(params);
}

}  // namespace cairn::kernels::cpu
