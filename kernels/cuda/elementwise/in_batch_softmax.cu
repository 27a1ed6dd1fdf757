// The cross entropy of each query of a batch over the candidates of the batch.
#include <cmath>
#include <limits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/handles.h"
#include "kernels/in_batch_softmax.h"

namespace cairn::kernels::cuda {
namespace {

// Pointers of one launch, in device memory.
struct InBatchMemory {
  const float* outputs = nullptr;  // [batch, width]
  const float* items = nullptr;    // [batch]
  const float* weights = nullptr;  // [batch] or null
  float* scores = nullptr;         // [batch, batch]
  float* doutputs = nullptr;       // [batch, width] or null
};

// The score of candidate j for query i; -infinity for an accidental hit.
__device__ float InBatchScore(const InBatch& in, const InBatchMemory& memory, int64_t i, int64_t j) {
  if (IsAccidentalHit(memory.items, i, j)) return -std::numeric_limits<float>::infinity();
  const float* const query = memory.outputs + i * in.width;
  const float* const candidate = memory.outputs + j * in.width + in.dim;
  float sum = 0;
  for (int64_t k = 0; k < in.dim; ++k) sum += query[k] * candidate[k];
  return sum * in.inverse_temperature - (in.sampling ? LogSamplingProbability(candidate[in.dim]) : 0.0f);
}

// The threads are mapped to queries. Replaces the scores by their gradients times `scale`. Blocks write their sums to
// `partials` [blocks], and the last block adds them and writes the host's `loss`. Deterministic.
__global__ void InBatchLoss(RowPlan plan, InBatch in, InBatchMemory memory, float scale, double* partials,
                            unsigned* counter, double* loss) {
  double total = 0;
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t i = plan.Row(round);
    const bool present = i < in.batch;
    const int64_t candidates = present ? in.batch : 0;
    float* const scores = memory.scores + (present ? i * in.batch : 0);
    float largest = -std::numeric_limits<float>::infinity();
    plan.ForEach<1>(candidates, [&](int64_t j) {
      scores[j] = InBatchScore(in, memory, i, j);
      largest = Largest()(largest, scores[j]);
    });
    largest = plan.Reduce(largest, Largest());
    float sum = 0;
    plan.ForEach<1>(candidates, [&](int64_t j) {
      scores[j] = std::exp(scores[j] - largest);
      sum += scores[j];
    });
    sum = plan.Reduce(sum, Sum());
    const float weight = present && memory.weights != nullptr ? memory.weights[i] : 1.0f;
    plan.ForEach<1>(candidates, [&](int64_t j) {
      scores[j] = (scores[j] / sum - (i == j ? 1.0f : 0.0f)) * (weight * scale);
    });
    if (present && plan.rank() == 0) {
      const float own = InBatchScore(in, memory, i, i);
      total += double{weight} * double{std::log(sum) - (own - largest)};
    }
  }
  if (SumOverGrid(total, partials, counter)) *loss = total;
}

// doutputs from the gradients of the scores. One thread for each element, grid-strided; adjacent threads read adjacent
// elements. Deterministic.
__global__ void InBatchGradients(InBatch in, InBatchMemory memory) {
  for (int64_t at = CAIRN_GLOBAL_THREAD; at < in.batch * in.width; at += CAIRN_GLOBAL_THREADS) {
    const int64_t row = at / in.width, k = at % in.width;
    const bool of_query = k < in.dim;
    // The gradient of query `row` goes along the row of its scores, that of a candidate along the column.
    const float* gradient = memory.scores + (of_query ? row * in.batch : row);
    const float* other = memory.outputs + (of_query ? k + in.dim : k - in.dim);
    float sum = 0;
    for (int64_t n = 0; n < (k < 2 * in.dim ? in.batch : 0); ++n) {
      sum += *gradient * *other;
      gradient += of_query ? 1 : in.batch;
      other += in.width;
    }
    memory.doutputs[at] = sum;
  }
}

class CudaInBatchSoftmax final : public Loss, public Delivery {
 public:
  CudaInBatchSoftmax(Context& context, const LossParams& params, std::unique_ptr<DeviceMemory> scores,
                     std::unique_ptr<DeviceMemory> counter, PinnedArray<double> loss)
      : context_(context),
        in_(MakeInBatch(params)),
        scale_(in_.inverse_temperature / static_cast<float>(params.terms())),
        plan_(PlanFor(context, params.batch)),
        scores_(std::move(scores)),
        counter_(std::move(counter)),
        loss_(std::move(loss)) {}

  static RowPlan PlanFor(const Context& context, int64_t batch) {
    constexpr int64_t kBlocksOfMultiprocessor = 8;
    return RowPlan::Make(batch, batch, kBlocksOfMultiprocessor * context.multiprocessors());
  }

  absl::Status Run(const float* outputs, const float* targets, const float* weights, LossSums* sums,
                   float* doutputs) override {
    const InBatchMemory memory = {outputs, targets, weights, scores_->data(), doutputs};
    CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(InBatchLoss, plan_.grid, plan_.block, 0, context_.stream(), plan_, in_,
                                       memory, scale_, static_cast<double*>(context_.scratch()),
                                       reinterpret_cast<unsigned*>(counter_->data()), loss_.data()));
    if (doutputs != nullptr) {
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(InBatchGradients, GridFor(in_.batch * in_.width), kBlock, 0,
                                         context_.stream(), in_, memory));
    }
    to_ = sums;
    context_.Expect(*this);
    return absl::OkStatus();
  }

  absl::Status Deliver() override {
    *to_ = {.loss = loss_[0], .examples = in_.batch};
    return absl::OkStatus();
  }

 private:
  Context& context_;
  const InBatch in_;
  const float scale_;  // the factor of a score's gradient, if the example has weight 1
  const RowPlan plan_;
  const std::unique_ptr<DeviceMemory> scores_;   // [batch, batch]
  const std::unique_ptr<DeviceMemory> counter_;  // one word
  PinnedArray<double> loss_;
  LossSums* to_ = nullptr;  // the destination of the last Run()
};

}  // namespace

absl::StatusOr<std::unique_ptr<Loss>> MakeInBatchSoftmax(Context& context, const LossParams& params) {
  const RowPlan plan = CudaInBatchSoftmax::PlanFor(context, params.batch);
  CAIRN_RETURN_IF_ERROR(context.ReserveScratch(plan.grid * int64_t{sizeof(double)}));
  CAIRN_ASSIGN_OR_RETURN(auto scores, context.Allocate(params.batch * params.batch, "loss: scores"));
  CAIRN_ASSIGN_OR_RETURN(auto counter, context.Allocate(1, "loss: counter"));
  CAIRN_ASSIGN_OR_RETURN(auto loss, PinnedArray<double>::Create(1));
  return std::make_unique<CudaInBatchSoftmax>(context, params, std::move(scores), std::move(counter),
                                              std::move(loss));
}

}  // namespace cairn::kernels::cuda
