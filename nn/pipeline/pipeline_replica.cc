#include "nn/pipeline/pipeline_replica.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"

namespace cairn::nn {
namespace {

class PipelineReplica final : public Replica {
 public:
  PipelineReplica(const Model& model, const Objective& objective, std::unique_ptr<Pipeline> pipeline)
      : model_(model), objective_(objective), pipeline_(std::move(pipeline)) {}

  absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters, const BatchView& batch,
                                              absl::Span<float> gradients,
                                              absl::FunctionRef<void(int variable)> on_gradient) override {
    CAIRN_RETURN_IF_ERROR(CheckGradients(model_, batch, gradients));
    if (batch.examples == 0) {
      CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
      GiveNoGradients(model_, gradients, on_gradient);
      return BatchResult();
    }
    return Run(parameters, batch, gradients, /*training=*/true, on_gradient);
  }

  absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters, const BatchView& batch) override {
    return Run(parameters, batch, {}, /*training=*/false, [](int) {});
  }

  absl::Status Pin(absl::Span<const float> host) override { return pipeline_->Pin(host); }
  bool pins() const override { return pipeline_->pins(); }
  void Unpin() override { pipeline_->Unpin(); }

 private:
  absl::StatusOr<BatchResult> Run(absl::Span<const float> parameters, const BatchView& batch,
                                  absl::Span<float> gradients, bool training,
                                  absl::FunctionRef<void(int variable)> on_gradient) {
    CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
    if (batch.examples == 0) return BatchResult();
    const auto floats = static_cast<size_t>(batch.examples * model_.output_shape().num_elements());
    if (static_cast<int64_t>(floats) > outputs_.size())
      outputs_ = AlignedBuffer(static_cast<int64_t>(floats));
    CAIRN_ASSIGN_OR_RETURN(const Pipeline::Result computed, pipeline_->Run(
                                                                {.parameters = parameters,
                                                                 .inputs = batch.inputs,
                                                                 .batch = batch,
                                                                 .gradients = gradients,
                                                                 .training = training,
                                                                 .outputs = outputs_.data()},
                                                                [] {}, on_gradient));
    BatchResult result = {.sums = computed.sums, .outputs = absl::MakeConstSpan(outputs_.data(), floats)};
    result.sums.loss += computed.penalty * static_cast<double>(batch.examples);
    return result;
  }

  const Model& model_;
  const Objective objective_;
  const std::unique_ptr<Pipeline> pipeline_;
  AlignedBuffer outputs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> MakePipelineReplica(const Pipeline::Options& options) {
  CAIRN_ASSIGN_OR_RETURN(auto pipeline, Pipeline::Create(options));
  return std::unique_ptr<Replica>(
      std::make_unique<PipelineReplica>(options.model, options.objective, std::move(pipeline)));
}

}  // namespace cairn::nn
