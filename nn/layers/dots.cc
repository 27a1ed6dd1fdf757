// Dot and keras_rs' DotInteraction: dot products of the inputs' vectors.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"

namespace cairn::nn {
namespace {

// Joins the vectors of all inputs, and multiplies pairs of them.
class JoinedDotsOp final : public LayerOp {
 public:
  // `pairs` without its input; `output` is the shape of one example's output. The vectors of each of the `groups` of an
  // example are multiplied with one another.
  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(absl::Span<const kernels::TensorDesc> inputs,
                                                         int64_t groups, kernels::PairDotsParams pairs,
                                                         const Shape& output, kernels::Device& device) {
    const int64_t batch = inputs[0].shape[0], width = inputs[0].shape[inputs[0].shape.rank() - 1];
    std::vector<kernels::TensorDesc> flat;
    for (const kernels::TensorDesc& input : inputs)
      flat.push_back(input.WithShape({batch * groups, input.shape.num_elements() / (batch * groups)}));
    auto op = std::make_unique<JoinedDotsOp>();
    CAIRN_ASSIGN_OR_RETURN(op->join_, device.ops().MakeConcatenate(flat, 1));
    const kernels::TensorDesc& joined = op->join_->output();
    pairs.input = joined.WithShape({batch * groups, joined.shape[1] / width, width});
    CAIRN_ASSIGN_OR_RETURN(op->dots_, device.ops().MakePairDots(pairs));
    Shape shape = {batch};
    for (const int64_t extent : output.dims()) shape.Append(extent);
    op->output_ = op->dots_->output().WithShape(std::move(shape));
    CAIRN_ASSIGN_OR_RETURN(op->joined_, device.Allocate(joined.num_floats(), "joined inputs"));
    CAIRN_ASSIGN_OR_RETURN(op->gradient_, device.Allocate(joined.num_floats(), "gradient of joined inputs"));
    return op;
  }

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(join_->Forward(args.inputs, joined_->data()));
    return dots_->Forward(joined_->data(), args.output);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    CAIRN_RETURN_IF_ERROR(
        dots_->Backward(joined_->data(), args.output, args.output_gradient, gradient_->data()));
    return join_->Backward(args.inputs, gradient_->data(), args.input_gradients);
  }

 private:
  kernels::TensorDesc output_;
  std::unique_ptr<kernels::NaryOp> join_;
  std::unique_ptr<kernels::UnaryOp> dots_;
  std::unique_ptr<kernels::DeviceMemory> joined_, gradient_;  // [batch * groups, vectors, width]
};

// The order that makes an axis the last one. Axes are counted with the batch.
std::vector<int> MovedToEnd(int axis, int axes) {
  std::vector<int> order;
  for (int i = 0; i < axes; ++i) {
    if (i != axis) order.push_back(i);
  }
  order.push_back(axis);
  return order;
}

// Changes the order of the axes of some inputs before another op.
class TransposedInputsOp final : public LayerOp {
 public:
  // [input] Null where an input stays as it is.
  using Transposes = std::vector<std::unique_ptr<kernels::UnaryOp>>;

  static absl::StatusOr<std::unique_ptr<LayerOp>> Create(Transposes transposes, std::unique_ptr<LayerOp> op,
                                                         kernels::Device& device) {
    auto made = std::make_unique<TransposedInputsOp>();
    made->op_ = std::move(op);
    for (const auto& transpose : transposes) {
      auto &value = made->values_.emplace_back(), &gradient = made->gradients_.emplace_back();
      if (transpose == nullptr) continue;
      const int64_t floats = transpose->output().num_floats();
      CAIRN_ASSIGN_OR_RETURN(value, device.Allocate(floats, "transposed input"));
      CAIRN_ASSIGN_OR_RETURN(gradient, device.Allocate(floats, "gradient of a transposed input"));
    }
    made->transposes_ = std::move(transposes);
    return made;
  }

  const kernels::TensorDesc& output() const override { return op_->output(); }
  absl::Status Forward(const ForwardArgs& args) override {
    for (size_t i = 0; i < transposes_.size(); ++i) {
      if (transposes_[i] != nullptr)
        CAIRN_RETURN_IF_ERROR(transposes_[i]->Forward(args.inputs[i], values_[i]->data()));
    }
    const std::vector<const float*> inputs = Inputs(args.inputs);
    ForwardArgs of_op = args;
    of_op.inputs = inputs;
    return op_->Forward(of_op);
  }
  absl::Status Backward(const BackwardArgs& args) override {
    const std::vector<const float*> inputs = Inputs(args.inputs);
    std::vector<float*> gradients(args.input_gradients.begin(), args.input_gradients.end());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (transposes_[i] != nullptr && gradients[i] != nullptr) gradients[i] = gradients_[i]->data();
    }
    BackwardArgs of_op = args;
    of_op.inputs = inputs;
    of_op.input_gradients = absl::MakeSpan(gradients);
    CAIRN_RETURN_IF_ERROR(op_->Backward(of_op));
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (transposes_[i] == nullptr || gradients[i] == nullptr) continue;
      CAIRN_RETURN_IF_ERROR(
          transposes_[i]->Backward(nullptr, nullptr, gradients[i], args.input_gradients[i]));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<const float*> Inputs(absl::Span<const float* const> given) const {
    std::vector<const float*> inputs(given.begin(), given.end());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (transposes_[i] != nullptr) inputs[i] = values_[i]->data();
    }
    return inputs;
  }

  Transposes transposes_;
  std::unique_ptr<LayerOp> op_;
  std::vector<std::unique_ptr<kernels::DeviceMemory>> values_, gradients_;  // [input]
};

class DotLayer final : public Layer {
 public:
  // `axes` of the two inputs as in Keras: counted with the batch, or negative from the end. Along the first
  // `batch_axes`, the batch among them, each element has a product of its own.
  DotLayer(std::string name, std::vector<int64_t> axes, int64_t batch_axes, bool normalize)
      : Layer(std::move(name), "Dot"),
        axes_(std::move(axes)),
        batch_axes_(batch_axes - 1),
        normalize_(normalize) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs.size() != 2)
      return absl::InvalidArgumentError(absl::StrCat("takes 2 inputs, not ", inputs.size()));
    Shape output;
    int64_t extents[2];
    for (size_t i = 0; i < 2; ++i) {
      const Shape& shape = inputs[i];
      const int axis = AxisOf(i, shape);
      if (axis < 1 || axis > shape.rank()) {
        return absl::InvalidArgumentError(absl::StrCat("axes: input ", shape.ToString(), " has no axis ",
                                                       axes_[i], " after that of the batch"));
      }
      if (axis <= batch_axes_ || !absl::c_equal(BatchOf(shape), BatchOf(inputs[0]))) {
        return absl::InvalidArgumentError(absl::StrCat("inputs ", inputs[0].ToString(), " and ",
                                                       shape.ToString(), " differ in the first ", batch_axes_,
                                                       " axes after that of the batch"));
      }
      extents[i] = shape[axis - 1];
      for (int other = i == 0 ? 1 : static_cast<int>(batch_axes_) + 1; other <= shape.rank(); ++other) {
        if (other != axis) output.Append(shape[other - 1]);
      }
    }
    if (extents[0] != extents[1]) {
      return absl::InvalidArgumentError(absl::StrCat("inputs ", inputs[0].ToString(), " and ",
                                                     inputs[1].ToString(),
                                                     " differ in the axis of the product"));
    }
    if (output.rank() == 0) output.Append(1);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    std::vector<Shape> shapes;
    for (const kernels::TensorDesc& input : params.inputs) shapes.emplace_back(input.shape.dims().subspan(1));
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape(shapes));
    std::vector<kernels::TensorDesc> inputs(params.inputs.begin(), params.inputs.end());
    TransposedInputsOp::Transposes transposes(2);
    for (size_t i = 0; i < 2; ++i) {
      const int axis = AxisOf(i, shapes[i]);
      if (axis == shapes[i].rank()) continue;
      CAIRN_ASSIGN_OR_RETURN(
          transposes[i],
          device.ops().MakeTranspose({.input = inputs[i], .axes = MovedToEnd(axis, shapes[i].rank() + 1)}));
      inputs[i] = transposes[i]->output();
    }
    const int64_t groups = GroupsOf(shapes[0]),
                  rows = shapes[0].num_elements() / groups / inputs[0].shape[inputs[0].shape.rank() - 1];
    CAIRN_ASSIGN_OR_RETURN(
        auto op,
        JoinedDotsOp::Create(inputs, groups, {.input = {}, .first_rows = rows, .normalize = normalize_},
                             output, device));
    if (transposes[0] == nullptr && transposes[1] == nullptr) return op;
    return TransposedInputsOp::Create(std::move(transposes), std::move(op), device);
  }
  // The product of a vector with itself reads it where it is, and has one gradient.
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOpOfSameInputs(const LayerOpParams& params,
                                                              kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    if (input.shape.rank() != 2) return Layer::MakeOpOfSameInputs(params, device);
    CAIRN_ASSIGN_OR_RETURN(
        auto op, device.ops().MakePairDots({.input = input.WithShape({input.shape[0], 1, input.shape[1]}),
                                            .self = true,
                                            .normalize = normalize_}));
    return std::make_unique<UnaryLayerOp>(std::move(op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    std::vector<Shape> shapes;
    std::vector<std::string> names;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Shape& shape = shapes.emplace_back(onnx.ShapeOf(inputs[i]));
      const int axis = AxisOf(i, shape);
      std::string x = onnx.ChannelsLast(inputs[i]);
      if (axis != shape.rank()) {
        const std::vector<int> order = MovedToEnd(axis, shape.rank() + 1);
        x = onnx.Add("Transpose", {x}, {{"perm", std::vector<int64_t>(order.begin(), order.end())}});
      }
      const int64_t width = shape[axis - 1], vectors = shape.num_elements() / width / GroupsOf(shape);
      names.push_back(onnx.Add("Reshape", {x, onnx.Ints("vectors", {-1, vectors, width})}));
      if (normalize_) names.back() = NormalizedInOnnx(names.back(), onnx);
    }
    CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape(shapes));
    const std::string turned = onnx.Add("Transpose", {names[1]}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    std::vector<int64_t> extents = {-1};
    for (const int64_t extent : output.dims()) extents.push_back(extent);
    const std::string product = onnx.Add("MatMul", {names[0], turned});
    return onnx.FromChannelsLast(onnx.Add("Reshape", {product, onnx.Ints("shape", std::move(extents))}),
                                 output);
  }

 private:
  static std::string NormalizedInOnnx(const std::string& x, OnnxBuilder& onnx) {
    const std::string squares = onnx.Add("ReduceSum", {onnx.Add("Mul", {x, x}), onnx.Ints("axis", {-1})});
    const std::string norm = onnx.Add("Max", {onnx.Add("Sqrt", {squares}), onnx.Scalar("epsilon", 1e-7f)});
    return onnx.Add("Div", {x, norm});
  }

  // Counted with the batch. It may not exist.
  int AxisOf(size_t i, const Shape& shape) const {
    const int64_t axis = axes_[i] < 0 ? axes_[i] + shape.rank() + 1 : axes_[i];
    return static_cast<int>(std::clamp<int64_t>(axis, 0, shape.rank() + 1));
  }
  absl::Span<const int64_t> BatchOf(const Shape& shape) const {
    return shape.dims().first(static_cast<size_t>(batch_axes_));
  }
  int64_t GroupsOf(const Shape& shape) const {
    return absl::c_accumulate(BatchOf(shape), int64_t{1}, std::multiplies<>());
  }

  const std::vector<int64_t> axes_;  // [2]
  const int64_t batch_axes_;         // without the batch
  const bool normalize_;
};

class DotInteractionLayer final : public Layer {
 public:
  DotInteractionLayer(std::string name, bool self, bool square)
      : Layer(std::move(name), "DotInteraction"), self_(self), square_(square) {}

  bool merges() const override { return true; }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    for (const Shape& input : inputs) {
      if (input.rank() == 1 && input == inputs[0]) continue;
      return absl::InvalidArgumentError(absl::StrCat("inputs ", inputs[0].ToString(), " and ",
                                                     input.ToString(), ": expected vectors of one length"));
    }
    return Shape{static_cast<int64_t>(IndicesOf(inputs.size()).size())};
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {}; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const Shape output = {static_cast<int64_t>(IndicesOf(params.inputs.size()).size())};
    return JoinedDotsOp::Create(params.inputs, 1, {.input = {}, .self = self_, .square = square_}, output,
                                device);
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, absl::Span<const OnnxVariable>,
                                   OnnxBuilder& onnx) const override {
    const auto rows = static_cast<int64_t>(inputs.size());
    std::vector<std::string> names;
    for (const OnnxValue input : inputs) names.push_back(onnx.ChannelsLast(input));
    const std::string joined = onnx.Add("Concat", std::move(names), {{"axis", int64_t{1}}});
    const std::string vectors =
        onnx.Add("Reshape", {joined, onnx.Ints("vectors", {-1, rows, onnx.ShapeOf(inputs[0])[0]})});
    const std::string turned = onnx.Add("Transpose", {vectors}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    const std::string products =
        onnx.Add("Reshape", {onnx.Add("MatMul", {vectors, turned}), onnx.Ints("shape", {-1, rows * rows})});
    std::vector<int64_t> indices = IndicesOf(inputs.size());
    const Shape output = {static_cast<int64_t>(indices.size())};
    if (!square_) {
      return onnx.FromChannelsLast(
          onnx.Add("Gather", {products, onnx.Ints("pairs", std::move(indices))}, {{"axis", int64_t{1}}}),
          output);
    }
    std::vector<float> mask;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < rows; ++j) mask.push_back(j < i || (self_ && j == i) ? 1.0f : 0.0f);
    }
    return onnx.FromChannelsLast(onnx.Add("Mul", {products, onnx.Floats("mask", output, std::move(mask))}),
                                 output);
  }

 private:
  // The outputs' places in the matrix of all products of `count` inputs, row by row.
  std::vector<int64_t> IndicesOf(size_t count) const {
    const auto rows = static_cast<int64_t>(count);
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < rows; ++j) {
        if (square_ || j < i || (self_ && j == i)) indices.push_back(i * rows + j);
      }
    }
    return indices;
  }

  const bool self_, square_;
};

}  // namespace

std::unique_ptr<Layer> MakeDot(std::string name, ConfigReader& config) {
  std::vector<int64_t> axes = config.Ints("axes");
  if (axes.size() == 1) axes.push_back(axes[0]);
  if (axes.size() != 2) {
    config.Fail("axes", "expected one axis, or one for each of two inputs");
    axes = {-1, -1};
  }
  // An extension of Keras' format, for functions of keras.ops.
  const int64_t batch_axes = config.PositiveInt("batch_axes", 1);
  return std::make_unique<DotLayer>(std::move(name), std::move(axes), batch_axes,
                                    config.Bool("normalize", false));
}

std::unique_ptr<Layer> MakeDotInteraction(std::string name, ConfigReader& config) {
  const bool self = config.Bool("self_interaction", false);
  return std::make_unique<DotInteractionLayer>(std::move(name), self, config.Bool("skip_gather", false));
}

}  // namespace cairn::nn
