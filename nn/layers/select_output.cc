#include "nn/layers/select_output.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {
namespace {

class SelectOutputLayer final : public Layer {
 public:
  SelectOutputLayer(std::string name, const std::vector<Shape>& outputs, size_t selected)
      : Layer(std::move(name), "SelectOutput"), shape_(outputs[selected]), is_first_(selected == 0) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i < selected) begin_ += outputs[i].num_elements();
      unit_ = std::gcd(unit_, outputs[i].num_elements());
    }
  }

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape>) const override { return shape_; }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  MaskUse mask_use() const override { return is_first_ ? MaskUse::kPasses : MaskUse::kDrops; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const int64_t batch = input.shape[0], rows = shape_.num_elements() / unit_, before = begin_ / unit_;
    Shape output = {batch};
    for (const int64_t extent : shape_.dims()) output.Append(extent);
    CAIRN_ASSIGN_OR_RETURN(auto padding,
                           device.ops().MakeZeroPad2D({.input = input.WithShape({batch, rows, 1, unit_}),
                                                       .top = before,
                                                       .bottom = input.shape[1] / unit_ - before - rows}));
    return std::make_unique<CropOp>(input.WithShape(std::move(output)), std::move(padding));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    std::string part =
        onnx.Add("Slice", {onnx.ChannelsLast(inputs[0]), onnx.Ints("begin", {begin_}),
                           onnx.Ints("end", {begin_ + shape_.num_elements()}), onnx.Ints("axis", {1})});
    if (shape_.rank() != 1) {
      std::vector<int64_t> shape = {-1};
      shape.insert(shape.end(), shape_.dims().begin(), shape_.dims().end());
      part = onnx.Add("Reshape", {part, onnx.Ints("shape", std::move(shape))});
    }
    return onnx.FromChannelsLast(std::move(part), shape_);
  }

 private:
  const Shape shape_;
  const bool is_first_;
  int64_t begin_ = 0;  // within the vector
  int64_t unit_ = 0;   // divides the elements of all outputs
};

}  // namespace

Shape PackedShape(const std::vector<Shape>& outputs) {
  int64_t elements = 0;
  for (const Shape& output : outputs) elements += output.num_elements();
  return {elements};
}

std::shared_ptr<const Layer> MakeSelectOutput(std::string name, const std::vector<Shape>& outputs,
                                              int selected) {
  return std::make_shared<SelectOutputLayer>(std::move(name), outputs, static_cast<size_t>(selected));
}

}  // namespace cairn::nn
