// Masking: masks the time steps whose elements all equal a value, and sets them to 0.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/step_mask.h"

namespace cairn::nn {
namespace {

// The input [..., width] times its own mask.
class MaskingOp final : public LayerOp {
 public:
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(const kernels::TensorDesc& input, float masked,
                                                         kernels::Device& device) {
    const int64_t width = input.shape[input.shape.rank() - 1], steps = input.shape.num_elements() / width;
    const kernels::TensorDesc rows = input.WithShape({steps, width});
    std::unique_ptr<MaskingOp> op(new MaskingOp(input));
    CAIRN_ASSIGN_OR_RETURN(op->compare_, device.ops().MakeStepMask({.input = rows, .masked = masked}));
    CAIRN_ASSIGN_OR_RETURN(op->floats_, device.Allocate(steps, "masking: mask"));
    const kernels::TensorDesc mask = input.WithShape({steps, 1});
    if (!mask.is_plain()) {
      CAIRN_ASSIGN_OR_RETURN(op->convert_, device.ops().MakeReorder({.shape = mask.shape}, mask));
      CAIRN_ASSIGN_OR_RETURN(op->converted_, device.Allocate(mask.num_floats(), "masking: mask"));
    }
    CAIRN_ASSIGN_OR_RETURN(
        op->multiply_,
        device.ops().MakeBroadcastMerge({.kind = kernels::MergeKind::kMultiply, .inputs = {rows, mask}}));
    return op;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(compare_->Forward(args.inputs[0], floats_->data()));
    if (convert_ != nullptr) CAIRN_RETURN_IF_ERROR(convert_->Run(floats_->data(), converted_->data()));
    return multiply_->Forward({args.inputs[0], mask()}, args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    if (args.input_gradients[0] == nullptr) return absl::OkStatus();
    return multiply_->Forward({args.output_gradient, mask()}, args.input_gradients[0]);
  }

 private:
  explicit MaskingOp(kernels::TensorDesc output) : output_(std::move(output)) {}
  const float* mask() const { return convert_ == nullptr ? floats_->data() : converted_->data(); }

  const kernels::TensorDesc output_;
  std::unique_ptr<kernels::UnaryOp> compare_;
  std::unique_ptr<kernels::Reorder> convert_;  // to the type of the input; null if that is float32
  std::unique_ptr<kernels::NaryOp> multiply_;
  std::unique_ptr<kernels::DeviceMemory> floats_, converted_;
};

class MaskingLayer final : public Layer {
 public:
  MaskingLayer(std::string name, float masked) : Layer(std::move(name), "Masking"), masked_(masked) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs[0].rank() < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[0].ToString(), " is not a sequence [steps, channels]"));
    }
    return inputs[0];
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  std::shared_ptr<const Layer> mask_maker() const override { return MakeMaskOfVectors(name(), masked_); }
  std::optional<double> masked_value() const override { return masked_; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    return MaskingOp::Create(params.inputs[0], masked_, device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const std::string x = onnx.ChannelsLast(inputs[0]);
    const std::string differs =
        onnx.Cast(onnx.Add("Not", {onnx.Add("Equal", {x, onnx.Scalar("masked", masked_)})}), DType::kFloat32);
    const std::string mask =
        onnx.Add("ReduceMax", {differs}, {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{1}}});
    return onnx.FromChannelsLast(onnx.Add("Mul", {x, mask}), onnx.ShapeOf(inputs[0]));
  }

 private:
  const float masked_;
};

}  // namespace

std::unique_ptr<Layer> MakeMasking(std::string name, ConfigReader& config) {
  return std::make_unique<MaskingLayer>(std::move(name), static_cast<float>(config.Number("mask_value", 0)));
}

}  // namespace cairn::nn
