// Dropout: in training, elements fall to 0 at random and the rest grows to make up for them.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "worker/nn/layers/layer_ops.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

class DropoutOp final : public LayerOp {
 public:
  DropoutOp(kernels::TensorDesc output, std::unique_ptr<kernels::Dropout> op, kernels::Device& device)
      : output_(std::move(output)), op_(std::move(op)), device_(device) {}

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    if (args.training) return op_->Forward(args.inputs[0], args.output);
    return device_.CopyOnDevice(args.inputs[0], args.output, output_.num_floats());
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return op_->Backward(args.output_gradient, args.input_gradients[0]);
  }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::Dropout> op_;
  kernels::Device& device_;
};

class DropoutLayer final : public Layer {
 public:
  DropoutLayer(std::string name, float rate) : Layer(std::move(name), "Dropout"), rate_(rate) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    if (rate_ == 0) return std::make_unique<ViewOp>(input);
    CAIRN_ASSIGN_OR_RETURN(
        auto op, device.ops().MakeDropout(
                     {.input = input, .rate = rate_, .stream = StreamOf(absl::StrCat("dropout/", name()))}));
    return std::make_unique<DropoutOp>(input, std::move(op), device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder&) const override {
    return inputs[0];
  }

 private:
  const float rate_;
};

}  // namespace

std::unique_ptr<Layer> MakeDropout(std::string name, ConfigReader& config) {
  const double rate = config.Number("rate");
  if (!(rate >= 0 && rate < 1)) config.Fail("rate", absl::StrCat(rate, " is not in [0, 1)"));
  config.RefuseUnlessNull({"noise_shape"});
  config.Ignore({"seed"});  // the job's --seed
  return std::make_unique<DropoutLayer>(std::move(name), static_cast<float>(rate));
}

}  // namespace cairn::nn
