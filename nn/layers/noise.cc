// GaussianNoise, GaussianDropout and AlphaDropout: random changes of every element, in training.
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class NoiseLayer final : public Layer {
 public:
  NoiseLayer(std::string name, std::string class_name, kernels::NoiseKind kind, double amount)
      : Layer(std::move(name), std::move(class_name)), kind_(kind), amount_(static_cast<float>(amount)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override { return inputs[0]; }
  bool differs_in_training() const override { return true; }
  MaskUse mask_use() const override { return MaskUse::kPasses; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput>) const override {
    return StepUse::kEach;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    if (amount_ == 0) return std::make_unique<ViewOp>(input);
    CAIRN_ASSIGN_OR_RETURN(auto op,
                           device.ops().MakeNoise({.kind = kind_,
                                                   .input = input,
                                                   .amount = amount_,
                                                   .stream = StreamOf(absl::StrCat("noise/", name()))}));
    return std::make_unique<DropoutOp>(input, std::move(op), device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder&) const override {
    return inputs[0];
  }

 private:
  const kernels::NoiseKind kind_;
  const float amount_;
};

double ReadRate(ConfigReader& config) {
  const double rate = config.Number("rate");
  if (!(rate >= 0 && rate < 1)) config.Fail("rate", absl::StrCat(rate, " is not in [0, 1)"));
  config.Ignore({"seed"});  // the job's --seed is used
  return rate;
}

}  // namespace

std::unique_ptr<Layer> MakeAlphaDropout(std::string name, ConfigReader& config) {
  const double rate = ReadRate(config);
  config.RefuseUnlessNull({"noise_shape"});
  return std::make_unique<NoiseLayer>(std::move(name), "AlphaDropout", kernels::NoiseKind::kAlphaDropout,
                                      rate);
}

std::unique_ptr<Layer> MakeGaussianDropout(std::string name, ConfigReader& config) {
  const double rate = ReadRate(config);
  return std::make_unique<NoiseLayer>(std::move(name), "GaussianDropout", kernels::NoiseKind::kMultiply,
                                      std::sqrt(rate / (1 - rate)));
}

std::unique_ptr<Layer> MakeGaussianNoise(std::string name, ConfigReader& config) {
  const double stddev = config.Number("stddev");
  if (!(stddev >= 0)) config.Fail("stddev", absl::StrCat(stddev, " is negative"));
  config.Ignore({"seed"});  // the job's --seed is used
  return std::make_unique<NoiseLayer>(std::move(name), "GaussianNoise", kernels::NoiseKind::kAdd, stddev);
}

}  // namespace cairn::nn
