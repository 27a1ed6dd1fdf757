// Sampling: the latent variables of a variational autoencoder, drawn from the normal distributions whose means and
// logarithms of variances are its inputs. `kl_weight` times their divergence from the standard normal distribution is
// part of the loss.
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/plain_value.h"

namespace cairn::nn {
namespace {

// An input in plain memory, and its gradient.
struct PlainInput {
  std::unique_ptr<PlainCopy> copy;
  std::unique_ptr<kernels::DeviceMemory> value, gradient;  // null if the input is plain itself
};

class SamplingOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const LayerOpParams& params, float kl_weight,
                                                         uint64_t stream, kernels::Device& device) {
    if (kl_weight != 0) CAIRN_RETURN_IF_ERROR(CheckCanAddPenalty(device));
    const kernels::TensorDesc plain = {.shape = params.inputs[0].shape};
    const int64_t elements = plain.shape.num_elements();
    const auto examples = static_cast<float>(params.mean_over > 0 ? params.mean_over : plain.shape[0]);
    auto op = std::make_unique<SamplingOp>();
    op->output_ = plain;
    for (size_t i = 0; i < op->inputs_.size(); ++i) {
      PlainInput& input = op->inputs_[i];
      CAIRN_ASSIGN_OR_RETURN(input.copy, PlainCopy::Create(params.inputs[i], device));
      if (input.copy->is_plain()) continue;
      CAIRN_ASSIGN_OR_RETURN(input.value, device.Allocate(elements, "sampling: input"));
      CAIRN_ASSIGN_OR_RETURN(input.gradient, device.Allocate(elements, "sampling: gradient"));
    }
    CAIRN_ASSIGN_OR_RETURN(op->zeros_, device.Allocate(elements, "sampling: zeros"));
    CAIRN_ASSIGN_OR_RETURN(op->noise_, device.Allocate(elements, "sampling: noise"));
    CAIRN_ASSIGN_OR_RETURN(
        op->draw_, device.ops().MakeNoise(
                       {.kind = kernels::NoiseKind::kAdd, .input = plain, .amount = 1, .stream = stream}));
    CAIRN_ASSIGN_OR_RETURN(op->sample_, device.ops().MakeGaussianSample(
                                            {.elements = elements, .kl_factor = kl_weight / examples}));
    return op;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].value == nullptr) continue;
      CAIRN_RETURN_IF_ERROR(inputs_[i].copy->ToPlain(args.inputs[i], inputs_[i].value->data()));
    }
    if (args.training) CAIRN_RETURN_IF_ERROR(draw_->Forward(zeros_->data(), noise_->data()));
    return sample_->Forward(Inputs(args.inputs, args.training), args.output, &penalty_);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    std::array<float*, 2> gradients = {};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (args.input_gradients[i] == nullptr) continue;
      gradients[i] = inputs_[i].gradient == nullptr ? args.input_gradients[i] : inputs_[i].gradient->data();
    }
    CAIRN_RETURN_IF_ERROR(sample_->Backward(Inputs(args.inputs, /*noisy=*/true), args.output_gradient,
                                            gradients[0], gradients[1]));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (gradients[i] == nullptr || inputs_[i].gradient == nullptr) continue;
      CAIRN_RETURN_IF_ERROR(inputs_[i].copy->FromPlain(gradients[i], args.input_gradients[i]));
    }
    return absl::OkStatus();
  }
  double penalty() const override { return penalty_; }

 private:
  kernels::GaussianSample::Inputs Inputs(absl::Span<const float* const> inputs, bool noisy) const {
    const auto plain = [&](size_t i) {
      return inputs_[i].value == nullptr ? inputs[i] : inputs_[i].value->data();
    };
    return {.mean = plain(0), .log_variance = plain(1), .noise = noisy ? noise_->data() : nullptr};
  }

  kernels::TensorDesc output_;
  std::array<PlainInput, 2> inputs_;
  std::unique_ptr<kernels::DeviceMemory> zeros_, noise_;
  std::unique_ptr<kernels::Dropout> draw_;
  std::unique_ptr<kernels::GaussianSample> sample_;
  double penalty_ = 0;
};

class SamplingLayer final : public Layer {
 public:
  SamplingLayer(std::string name, float kl_weight)
      : Layer(std::move(name), "Sampling"), kl_weight_(kl_weight) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          inputs.size(), " inputs, expected two: the means, then the logarithms of the variances"));
    }
    if (inputs[0] == inputs[1]) return inputs[0];
    return absl::InvalidArgumentError(absl::StrCat("means ", inputs[0].ToString(),
                                                   " and logarithms of variances ", inputs[1].ToString(),
                                                   " must have one shape"));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool differs_in_training() const override { return true; }
  bool adds_penalty() const override { return true; }
  MaskUse mask_use() const override { return kl_weight_ == 0 ? MaskUse::kPasses : MaskUse::kRefuses; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return SamplingOp::Create(params, kl_weight_, StreamOf(absl::StrCat("sampling/", name())), device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder&) const override {
    return inputs[0];
  }

 private:
  const float kl_weight_;
};

}  // namespace

std::unique_ptr<Layer> MakeSampling(std::string name, ConfigReader& config) {
  const double kl_weight = config.Number("kl_weight", 0.0);
  if (!(kl_weight >= 0)) config.Fail("kl_weight", absl::StrCat(kl_weight, " is negative"));
  config.Ignore({"seed"});  // the job's --seed is used
  return std::make_unique<SamplingLayer>(std::move(name), static_cast<float>(kl_weight));
}

}  // namespace cairn::nn
