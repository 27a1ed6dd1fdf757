// Layers that merge several inputs: sums, products and similar functions, which broadcast, and Concatenate.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/broadcast.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

constexpr int64_t kLargestBlock = 16;

// The properties in which the merge layers differ.
struct MergeRow {
  const char* class_name;
  kernels::MergeKind kind;
  const char* onnx_op;  // merges two inputs; for an average, the sum is divided afterwards
  size_t max_inputs = 1000;
};
using enum kernels::MergeKind;
constexpr MergeRow kAddRow = {"Add", kAdd, "Add"};
constexpr MergeRow kSubtractRow = {"Subtract", kSubtract, "Sub", 2};
constexpr MergeRow kMultiplyRow = {"Multiply", kMultiply, "Mul"};
constexpr MergeRow kAverageRow = {"Average", kAverage, "Add"};
constexpr MergeRow kMaximumRow = {"Maximum", kMaximum, "Max"};
constexpr MergeRow kMinimumRow = {"Minimum", kMinimum, "Min"};

// Prepends axes of extent 1 to `shape`, as Keras' merges expand inputs with fewer axes.
Shape Expanded(const Shape& shape, int rank) {
  Shape expanded;
  for (int axis = shape.rank(); axis < rank; ++axis) expanded.Append(1);
  for (const int64_t extent : shape.dims()) expanded.Append(extent);
  return expanded;
}

int LargestRank(absl::Span<const Shape> shapes) {
  int rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.rank());
  return rank;
}

bool AreEqual(absl::Span<const Shape> shapes) {
  return std::all_of(shapes.begin(), shapes.end(), [&](const Shape& shape) { return shape == shapes[0]; });
}

class MergeLayer final : public Layer {
 public:
  MergeLayer(std::string name, const MergeRow& row) : Layer(std::move(name), row.class_name), row_(row) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs.size() > row_.max_inputs) {
      return absl::InvalidArgumentError(
          absl::StrCat("takes ", row_.max_inputs, " inputs, not ", inputs.size()));
    }
    std::vector<Shape> expanded;
    for (const Shape& input : inputs) expanded.push_back(Expanded(input, LargestRank(inputs)));
    return kernels::BroadcastShape(expanded);
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }
  MaskUse mask_use() const override { return MaskUse::kPasses; }
  bool accepts_blocked(absl::Span<const Shape> inputs) const override {
    return IsPlain(inputs) || absl::c_all_of(inputs, [&](const Shape& input) {
             return input.rank() == 3 && input[2] == inputs[0][2];
           });
  }

  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput> kinds) const override {
    const bool whole = absl::c_any_of(kinds, [](DecodedInput kind) { return kind != DecodedInput::kSteps; });
    return UseOfSteps(!whole && absl::c_all_of(inputs, [&](const Shape& input) {
      return input.rank() == inputs[0].rank() && input[0] == inputs[0][0];
    }));
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    std::vector<Shape> shapes;
    for (const kernels::TensorDesc& input : params.inputs) shapes.push_back(input.shape);
    absl::StatusOr<std::unique_ptr<kernels::NaryOp>> op;
    if (!IsPlain(shapes)) {
      kernels::MergeParams merge = {.kind = row_.kind, .inputs = {}};
      for (const kernels::TensorDesc& input : params.inputs) {
        if (input.layout != kernels::Layout::kRowMajor) {
          merge.inputs.push_back(input);
          continue;
        }
        Shape shape = {input.shape[0]};
        const int rank = LargestRank(shapes) - 1;
        const Shape expanded = Expanded(Shape(input.shape.dims().subspan(1)), rank);
        for (const int64_t extent : expanded.dims()) shape.Append(extent);
        merge.inputs.push_back(input.WithShape(std::move(shape)));
      }
      op = device.ops().MakeBroadcastMerge(merge);
    } else {
      const auto inputs = static_cast<int>(shapes.size());
      op = row_.kind == kAdd ? device.ops().MakeAdd(params.inputs[0], inputs)
                             : device.ops().MakeMultiply(params.inputs[0], inputs);
    }
    CAIRN_RETURN_IF_ERROR(op);
    return std::make_unique<NaryLayerOp>(*std::move(op), /*reads_inputs=*/row_.kind != kAdd);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    std::vector<Shape> shapes;
    for (const OnnxValue input : inputs) shapes.push_back(onnx.ShapeOf(input));
    const auto merge = [&](const std::vector<std::string>& names) { return MergeInOnnx(names, onnx); };
    if (AreEqual(shapes)) return onnx.Elementwise(inputs, merge);
    std::vector<std::string> names;
    for (size_t i = 0; i < inputs.size(); ++i) {
      names.push_back(onnx.ChannelsLast(inputs[i]));
      if (shapes[i].rank() == LargestRank(shapes)) continue;
      std::vector<int64_t> extents = {-1};  // the batch
      const Shape expanded = Expanded(shapes[i], LargestRank(shapes));
      for (const int64_t extent : expanded.dims()) extents.push_back(extent);
      names.back() = onnx.Add("Reshape", {names.back(), onnx.Ints("shape", std::move(extents))});
    }
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape(shapes));
    return onnx.FromChannelsLast(merge(names), output);
  }

 private:
  // Whether the kernels for plain sums and products can be used. They need inputs of equal shape, and take
  // any layout.
  bool IsPlain(absl::Span<const Shape> inputs) const {
    return (row_.kind == kAdd || row_.kind == kMultiply) && AreEqual(inputs);
  }

  std::string MergeInOnnx(const std::vector<std::string>& names, OnnxBuilder& onnx) const {
    std::string all = names[0];
    for (size_t i = 1; i < names.size(); ++i) all = onnx.Add(row_.onnx_op, {all, names[i]});
    if (row_.kind != kAverage) return all;
    return onnx.Add("Div", {all, onnx.Scalar("inputs", static_cast<float>(names.size()))});
  }

  const MergeRow row_;
};

class ConcatenateLayer final : public Layer {
 public:
  // `axis` as in Keras: counted with the batch, or negative from the end.
  ConcatenateLayer(std::string name, int64_t axis) : Layer(std::move(name), "Concatenate"), axis_(axis) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    const int rank = inputs[0].rank();
    const int64_t axis = AxisOf(rank + 1) - 1;
    if (axis < 0 || axis >= rank) {
      return absl::InvalidArgumentError(absl::StrCat("axis: ", axis_, " is not supported for input ",
                                                     inputs[0].ToString(), " with its batch"));
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
  // Sequences [steps, channels] side by side have the union of their masks. Along the steps Keras joins the masks.
  MaskUse mask_use() const override {
    return axis_ == -1 || axis_ == 2 ? MaskUse::kPasses : MaskUse::kRefuses;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  // Blocked inputs are joined along the channels, which is possible if the result would have no padding
  // channels between other channels.
  bool accepts_blocked(absl::Span<const Shape> inputs) const override {
    const int rank = inputs[0].rank();
    if (rank != 3 || AxisOf(rank + 1) != rank) return false;
    for (const Shape& input : inputs) {
      if (input[2] % kLargestBlock != 0) return false;
    }
    return true;
  }

  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput> kinds) const override {
    const bool whole = absl::c_any_of(kinds, [](DecodedInput kind) { return kind != DecodedInput::kSteps; });
    return UseOfSteps(!whole && AxisOf(inputs[0].rank() + 1) > 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const auto axis = static_cast<int>(AxisOf(params.inputs[0].shape.rank()));
    CAIRN_ASSIGN_OR_RETURN(auto op, device.ops().MakeConcatenate(params.inputs, axis));
    return std::make_unique<NaryLayerOp>(std::move(op), /*reads_inputs=*/false);
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
  return std::make_unique<MergeLayer>(std::move(name), kAddRow);
}

std::unique_ptr<Layer> MakeAverage(std::string name, ConfigReader&) {
  return std::make_unique<MergeLayer>(std::move(name), kAverageRow);
}

std::unique_ptr<Layer> MakeMaximum(std::string name, ConfigReader&) {
  return std::make_unique<MergeLayer>(std::move(name), kMaximumRow);
}

std::unique_ptr<Layer> MakeMinimum(std::string name, ConfigReader&) {
  return std::make_unique<MergeLayer>(std::move(name), kMinimumRow);
}

std::unique_ptr<Layer> MakeMultiply(std::string name, ConfigReader&) {
  return std::make_unique<MergeLayer>(std::move(name), kMultiplyRow);
}

std::unique_ptr<Layer> MakeSubtract(std::string name, ConfigReader&) {
  return std::make_unique<MergeLayer>(std::move(name), kSubtractRow);
}

std::unique_ptr<Layer> MakeConcatenate(std::string name, ConfigReader& config) {
  const std::vector<int64_t> axis = config.Ints("axis", {{-1}});
  if (axis.size() != 1) config.Fail("axis", "expected an integer");
  return std::make_unique<ConcatenateLayer>(std::move(name), axis.empty() ? -1 : axis[0]);
}

}  // namespace cairn::nn
