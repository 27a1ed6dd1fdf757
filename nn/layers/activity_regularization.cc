#include "nn/layers/activity_regularization.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/plain_value.h"

namespace cairn::nn {
namespace {

// The output is plain, whatever the layout of the input, and the penalty is that of the output.
class ActivityRegularizationOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const LayerOpParams& params,
                                                         const RegularizerSpec& penalty,
                                                         kernels::Device& device) {
    CAIRN_RETURN_IF_ERROR(CheckCanAddPenalty(device));
    const kernels::TensorDesc& input = params.inputs[0];
    const auto examples = static_cast<float>(params.mean_over > 0 ? params.mean_over : input.shape[0]);
    auto op = std::make_unique<ActivityRegularizationOp>();
    CAIRN_ASSIGN_OR_RETURN(op->copy_, PlainCopy::Create(input, device));
    CAIRN_ASSIGN_OR_RETURN(op->regularizer_,
                           device.ops().MakeRegularizer(input.shape.num_elements(), penalty.l1 / examples,
                                                        penalty.l2 / examples));
    op->output_ = {.shape = input.shape};
    return op;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  BackwardReads backward_reads() const override { return {.inputs = false}; }
  absl::Status Forward(const ForwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(copy_->ToPlain(args.inputs[0], args.output));
    return regularizer_->Run(args.output, nullptr, &penalty_);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(regularizer_->Run(args.output, args.output_gradient, &penalty_));
    return copy_->FromPlain(args.output_gradient, args.input_gradients[0]);
  }
  double penalty() const override { return penalty_; }

 private:
  kernels::TensorDesc output_;
  std::unique_ptr<PlainCopy> copy_;
  std::unique_ptr<kernels::Regularizer> regularizer_;
  double penalty_ = 0;
};

class ActivityRegularizationLayer final : public Layer {
 public:
  ActivityRegularizationLayer(std::string name, const RegularizerSpec& penalty)
      : Layer(std::move(name), "ActivityRegularization"), penalty_(penalty) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }
  bool adds_penalty() const override { return true; }
  MaskUse mask_use() const override { return MaskUse::kPasses; }
  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput>) const override {
    return StepUse::kEach;
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return ActivityRegularizationOp::Create(params, penalty_, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder&) const override {
    return inputs[0];
  }

 private:
  const RegularizerSpec penalty_;
};

float ReadStrength(const char* field, ConfigReader& config) {
  const double strength = config.Number(field, 0.0);
  if (!(strength >= 0)) config.Fail(field, absl::StrCat(strength, " is negative"));
  return static_cast<float>(strength);
}

}  // namespace

std::unique_ptr<Layer> MakeActivityPenalty(std::string name, const RegularizerSpec& penalty) {
  return std::make_unique<ActivityRegularizationLayer>(std::move(name), penalty);
}

std::unique_ptr<Layer> MakeActivityRegularization(std::string name, ConfigReader& config) {
  const RegularizerSpec penalty = {.l1 = ReadStrength("l1", config), .l2 = ReadStrength("l2", config)};
  return MakeActivityPenalty(std::move(name), penalty);
}

}  // namespace cairn::nn
