// The cross entropy of each query of a batch over the candidates of the batch. Every sum has a fixed order, whatever
// the number of threads.
#include "kernels/in_batch_softmax.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "common/core/status.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class InBatchSoftmax final : public Loss {
 public:
  InBatchSoftmax(onednn::Context& context, const LossParams& params)
      : context_(context),
        in_(MakeInBatch(params)),
        scale_(1.0f / static_cast<float>(params.terms())),
        candidates_(static_cast<size_t>(in_.batch * in_.dim)),
        logs_(static_cast<size_t>(in_.batch)),
        scores_(static_cast<size_t>(in_.batch * in_.batch)),
        losses_(static_cast<size_t>(in_.batch)) {}

  absl::Status Run(const float* outputs, const float* targets, const float* weights, LossSums* sums,
                   float* doutputs) override {
    for (int64_t j = 0; j < in_.batch; ++j) {
      const float* const output = outputs + j * in_.width;
      for (int64_t k = 0; k < in_.dim; ++k) candidates_[At(k * in_.batch + j)] = output[in_.dim + k];
      logs_[At(j)] = in_.sampling ? LogSamplingProbability(output[2 * in_.dim]) : 0.0f;
    }
    ParallelFor(context_, in_.batch, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RunQuery(i, outputs, targets, weights == nullptr ? 1.0f : weights[i], doutputs);
      }
    });
    *sums = {.examples = in_.batch};
    for (int64_t i = 0; i < in_.batch; ++i) {
      sums->loss += (weights == nullptr ? 1.0 : double{weights[i]}) * losses_[At(i)];
    }
    if (doutputs == nullptr) return absl::OkStatus();
    ParallelFor(context_, in_.batch, kGrain,
                [&](int64_t begin, int64_t end) { CandidateGradients(begin, end, outputs, doutputs); });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kGrain = 16;  // examples
  static size_t At(int64_t index) { return static_cast<size_t>(index); }

  // Writes the loss of example i and, unless `doutputs` is null, the gradients of its scores and of its query.
  void RunQuery(int64_t i, const float* outputs, const float* items, float weight, float* doutputs) {
    const int64_t batch = in_.batch;
    const float* const query = outputs + i * in_.width;
    float* const scores = &scores_[At(i * batch)];
    std::fill_n(scores, batch, 0.0f);
    for (int64_t k = 0; k < in_.dim; ++k) {
      const float q = query[k];
      const float* const of_candidates = &candidates_[At(k * batch)];
      for (int64_t j = 0; j < batch; ++j) scores[j] += q * of_candidates[j];
    }
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < batch; ++j) {
      scores[j] = IsAccidentalHit(items, i, j) ? -std::numeric_limits<float>::infinity()
                                               : scores[j] * in_.inverse_temperature - logs_[At(j)];
      largest = std::max(largest, scores[j]);
    }
    const float own = scores[i];
    float sum = 0;
    for (int64_t j = 0; j < batch; ++j) sum += scores[j] = std::exp(scores[j] - largest);
    losses_[At(i)] = double{std::log(sum) - (own - largest)};
    if (doutputs == nullptr) return;
    const float scale = weight * scale_ * in_.inverse_temperature;
    float* const dquery = doutputs + i * in_.width;
    std::fill_n(dquery, in_.width, 0.0f);
    for (int64_t j = 0; j < batch; ++j) {
      scores[j] = (scores[j] / sum - (i == j ? 1.0f : 0.0f)) * scale;
      const float* const candidate = outputs + j * in_.width + in_.dim;
      for (int64_t k = 0; k < in_.dim; ++k) dquery[k] += scores[j] * candidate[k];
    }
  }

  // Adds up the gradients of the candidates from `begin` to `end`, query by query.
  void CandidateGradients(int64_t begin, int64_t end, const float* outputs, float* doutputs) const {
    for (int64_t i = 0; i < in_.batch; ++i) {
      const float* const query = outputs + i * in_.width;
      for (int64_t j = begin; j < end; ++j) {
        const float gradient = scores_[At(i * in_.batch + j)];
        float* const dcandidate = doutputs + j * in_.width + in_.dim;
        for (int64_t k = 0; k < in_.dim; ++k) dcandidate[k] += gradient * query[k];
      }
    }
  }

  onednn::Context& context_;
  const InBatch in_;
  const float scale_;              // the factor of a gradient, if the example has weight 1
  std::vector<float> candidates_;  // [dim, batch]
  std::vector<float> logs_;        // [batch] of the sampling probabilities
  std::vector<float> scores_;      // [batch, batch]; after RunQuery() their gradients
  std::vector<double> losses_;     // [batch]
};

}  // namespace

std::unique_ptr<Loss> MakeInBatchSoftmax(onednn::Context& context, const LossParams& params) {
  return std::make_unique<InBatchSoftmax>(context, params);
}

}  // namespace cairn::kernels::cpu
