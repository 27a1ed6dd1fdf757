// Add, Multiply and Concatenate: several inputs become one.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "worker/nn/layers/layer_ops.h"
#include "worker/nn/layers/layers.h"

namespace cairn::nn {
namespace {

constexpr int64_t kLargestBlock = 16;

class MergeLayer final : public Layer {
 public:
  using MakeKernel = absl::StatusOr<std::unique_ptr<kernels::NaryOp>> (*)(kernels::OpFactory&,
                                                                          const kernels::TensorDesc&, int);
  // `onnx_op`: ONNX's name for it, of two inputs.
  MergeLayer(std::string name, std::string class_name, MakeKernel make, const char* onnx_op)
      : Layer(std::move(name), std::move(class_name)), make_(make), onnx_op_(onnx_op) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    for (const Shape& input : inputs) {
      if (input != inputs[0]) {
        return absl::InvalidArgumentError(
            absl::StrCat("inputs ", inputs[0].ToString(), " and ", input.ToString(), " differ"));
      }
    }
    return inputs[0];
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  bool accepts_blocked(absl::Span<const Shape>) const override { return true; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    CAIRN_ASSIGN_OR_RETURN(auto op,
                           make_(device.ops(), params.inputs[0], static_cast<int>(params.inputs.size())));
    return std::make_unique<NaryLayerOp>(std::move(op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    return onnx.Elementwise(inputs, [&](const std::vector<std::string>& names) {
      std::string all = names[0];
      for (size_t i = 1; i < names.size(); ++i) all = onnx.Add(onnx_op_, {all, names[i]});
      return all;
    });
  }

 private:
  const MakeKernel make_;
  const char* const onnx_op_;  // of two inputs
};

class ConcatenateLayer final : public Layer {
 public:
  // `axis` as Keras counts: with the batch, or negative from the end.
  ConcatenateLayer(std::string name, int64_t axis) : Layer(std::move(name), "Concatenate"), axis_(axis) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    const int rank = inputs[0].rank();
    const int64_t axis = AxisOf(rank + 1) - 1;
    if (axis < 0 || axis >= rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("axis: ", axis_, " of input ", inputs[0].ToString(), " with its batch"));
    }
    int64_t extent = 0;
    for (const Shape& input : inputs) {
      for (int other = 0; other < rank || input.rank() != rank; ++other) {
        if (input.rank() != rank || (other != axis && input[other] != inputs[0][other])) {
          return absl::InvalidArgumentError(absl::StrCat("inputs ", inputs[0].ToString(), " and ",
                                                         input.ToString(), " differ in more than axis ",
                                                         axis_));
        }
      }
      extent += input[static_cast<int>(axis)];
    }
    Shape output;
    for (int other = 0; other < rank; ++other) output.Append(other == axis ? extent : inputs[0][other]);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  // Along the channels, where no padding would come to lie inside.
  bool accepts_blocked(absl::Span<const Shape> inputs) const override {
    const int rank = inputs[0].rank();
    if (rank != 3 || AxisOf(rank + 1) != rank) return false;
    for (const Shape& input : inputs) {
      if (input[2] % kLargestBlock != 0) return false;
    }
    return true;
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const auto axis = static_cast<int>(AxisOf(params.inputs[0].shape.rank()));
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConcatenate(params.inputs, axis));
    return std::make_unique<NaryLayerOp>(std::move(op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    std::vector<Shape> shapes;
    bool channels_first = true;
    for (const OnnxValue input : inputs) {
      shapes.push_back(onnx.ShapeOf(input));
      channels_first = channels_first && onnx.IsChannelsFirst(input);
    }
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape(shapes));
    const int64_t axis = AxisOf(output.rank() + 1);
    std::vector<std::string> names;
    for (const OnnxValue input : inputs) {
      names.push_back(channels_first ? onnx.ChannelsFirst(input) : onnx.ChannelsLast(input));
    }
    if (!channels_first) {
      return onnx.FromChannelsLast(onnx.Add("Concat", std::move(names), {{"axis", axis}}), output);
    }
    const int64_t turned = axis == output.rank() ? 1 : axis + 1;
    return onnx.FromChannelsFirst(onnx.Add("Concat", std::move(names), {{"axis", turned}}), output);
  }

 private:
  int64_t AxisOf(int64_t rank) const { return axis_ < 0 ? rank + axis_ : axis_; }

  const int64_t axis_;
};

}  // namespace

std::unique_ptr<Layer> MakeAdd(std::string name, ConfigReader&) {
  return std::make_unique<MergeLayer>(
      std::move(name), "Add",
      [](kernels::OpFactory& ops, const kernels::TensorDesc& input, int inputs) {
        return ops.MakeAdd(input, inputs);
      },
      "Add");
}

std::unique_ptr<Layer> MakeMultiply(std::string name, ConfigReader&) {
  return std::make_unique<MergeLayer>(
      std::move(name), "Multiply",
      [](kernels::OpFactory& ops, const kernels::TensorDesc& input, int inputs) {
        return ops.MakeMultiply(input, inputs);
      },
      "Mul");
}

std::unique_ptr<Layer> MakeConcatenate(std::string name, ConfigReader& config) {
  const std::vector<int64_t> axis = config.Ints("axis", {{-1}});
  if (axis.size() != 1) config.Fail("axis", "expected an integer");
  return std::make_unique<ConcatenateLayer>(std::move(name), axis.empty() ? -1 : axis[0]);
}

}  // namespace cairn::nn
