// CustomScaleLayer of keras.applications' InceptionResNetV2: the first input, plus the second times a constant.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

class CustomScaleOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& input, float scale,
                                                         kernels::Device& device) {
    std::unique_ptr<CustomScaleOp> made(new CustomScaleOp(device));
    CAIRN_ASSIGN_OR_RETURN(made->scale_,
                           device.ops().MakeAffine({.input = input, .scale = {scale}, .offset = {0}}));
    CAIRN_ASSIGN_OR_RETURN(made->add_, device.ops().MakeAdd(input, 2));
    CAIRN_ASSIGN_OR_RETURN(made->scaled_, device.Allocate(input.num_floats(), "custom scale"));
    return made;
  }

  const kernels::TensorDesc& output() const override { return add_->output(); }
  absl::Status Forward(const ForwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(scale_->Forward(args.inputs[1], scaled_->data()));
    return add_->Forward({args.inputs[0], scaled_->data()}, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (float* const dx = args.input_gradients[0]; dx != nullptr)
      CAIRN_RETURN_IF_ERROR(device_.CopyOnDevice(args.output_gradient, dx, output().num_floats()));
    if (float* const dx = args.input_gradients[1]; dx != nullptr)
      return scale_->Backward(args.inputs[1], scaled_->data(), args.output_gradient, dx);
    return absl::OkStatus();
  }

 private:
  explicit CustomScaleOp(kernels::Device& device) : device_(device) {}

  kernels::Device& device_;
  std::unique_ptr<kernels::UnaryOp> scale_;
  std::unique_ptr<kernels::NaryOp> add_;
  std::unique_ptr<kernels::DeviceMemory> scaled_;  // the second input times the constant
};

class CustomScaleLayer final : public Layer {
 public:
  CustomScaleLayer(std::string name, float scale)
      : Layer(std::move(name), "CustomScaleLayer"), scale_(scale) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs.size() == 2 && inputs[0] == inputs[1]) return inputs[0];
    return absl::InvalidArgumentError(absl::StrCat("takes two inputs of one shape, not ", inputs.size(), ", ",
                                                   inputs[0].ToString(), " and ", inputs.back().ToString()));
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return CustomScaleOp::Create(params.inputs[0], scale_, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    return onnx.Elementwise(inputs, [&](const std::vector<std::string>& names) {
      return onnx.Add("Add", {names[0], onnx.Add("Mul", {names[1], onnx.Scalar("scale", scale_)})});
    });
  }

 private:
  const float scale_;
};

}  // namespace

std::unique_ptr<Layer> MakeCustomScaleLayer(std::string name, ConfigReader& config) {
  return std::make_unique<CustomScaleLayer>(std::move(name), static_cast<float>(config.Number("scale")));
}

}  // namespace cairn::nn
