#include "nn/layers/id_encoding.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {
namespace {

// One vector for an id that is the only one of its row.
bool DropsLastAxis(const Shape& ids) {
  return ids.rank() > 0 && ids[ids.rank() - 1] == 1;
}

// Neither ids nor their weights, which are inputs of the model, have a gradient.
class EncodingOp final : public LayerOp {
 public:
  EncodingOp(kernels::TensorDesc output, std::unique_ptr<kernels::NaryOp> counts,
             std::unique_ptr<kernels::UnaryOp> factors, std::unique_ptr<kernels::DeviceMemory> memory)
      : output_(std::move(output)),
        counts_(std::move(counts)),
        factors_(std::move(factors)),
        memory_(std::move(memory)) {}

  const kernels::TensorDesc& output() const override { return output_; }
  absl::Status Forward(const ForwardArgs& args) override {
    if (factors_ == nullptr) return counts_->Forward(args.inputs, args.output);
    CAIRN_RETURN_IF_ERROR(counts_->Forward(args.inputs, memory_->data()));
    return factors_->Forward(memory_->data(), args.output);
  }
  absl::Status Backward(const BackwardArgs&) override { return absl::OkStatus(); }

 private:
  const kernels::TensorDesc output_;
  const std::unique_ptr<kernels::NaryOp> counts_;
  // Null if there are no factors; else the counts are in `memory_`.
  const std::unique_ptr<kernels::UnaryOp> factors_;
  const std::unique_ptr<kernels::DeviceMemory> memory_;
};

}  // namespace

absl::StatusOr<Shape> IdEncoding::OutputShape(absl::Span<const Shape> inputs) const {
  const Shape& ids = inputs[0];
  if (mode == Mode::kOneHot) {
    if (inputs.size() > 1) return absl::InvalidArgumentError("count_weights need the output_mode \"count\"");
    Shape output(ids.dims().subspan(0, static_cast<size_t>(ids.rank() - (DropsLastAxis(ids) ? 1 : 0))));
    output.Append(depth);
    return output;
  }
  if (ids.rank() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("input ", ids.ToString(), " is not a list of values for each example"));
  }
  if (inputs.size() > 1 && mode != Mode::kCount)
    return absl::InvalidArgumentError("count_weights need the output_mode \"count\"");
  if (inputs.size() > 2)
    return absl::InvalidArgumentError(absl::StrCat(inputs.size(), " inputs, expected ids and weights"));
  if (inputs.size() == 2 && inputs[1] != ids) {
    return absl::InvalidArgumentError(absl::StrCat("ids ", ids.ToString(), " and count_weights ",
                                                   inputs[1].ToString(), " have different shapes"));
  }
  return Shape({depth});
}

absl::StatusOr<std::unique_ptr<LayerOp>> IdEncoding::MakeOp(const LayerOpParams& params, std::string what,
                                                            kernels::Device& device) const {
  if (params.needs_input_gradients) {
    return absl::InvalidArgumentError(
        "ids and their weights have no gradient: no layer with variables may "
        "come before it");
  }
  const kernels::TensorDesc& ids = params.inputs[0];
  if (params.ragged && mode == Mode::kOneHot)
    return absl::InvalidArgumentError("output_mode: \"one_hot\" is not supported for a ragged input");
  if (params.inputs.size() == 2 && params.inputs[1].type != DType::kFloat32)
    return absl::InvalidArgumentError("count_weights must be an input of the model");
  const bool one_hot = mode == Mode::kOneHot;
  const int64_t batch = ids.shape[0], each = ids.shape.num_elements() / batch;
  CAIRN_ASSIGN_OR_RETURN(auto counts, device.ops().MakeIdCounts({.rows = one_hot ? batch * each : batch,
                                                                 .ids = one_hot ? 1 : each,
                                                                 .depth = depth,
                                                                 .id_type = ids.type,
                                                                 .ragged = params.ragged,
                                                                 .weighted = params.inputs.size() == 2,
                                                                 .once = mode == Mode::kMultiHot,
                                                                 .skips_negative = masked,
                                                                 .what = std::move(what)}));
  std::unique_ptr<kernels::UnaryOp> scaling;
  std::unique_ptr<kernels::DeviceMemory> memory;
  kernels::TensorDesc output = counts->output();
  if (!factors.empty()) {
    CAIRN_ASSIGN_OR_RETURN(
        scaling, device.ops().MakeAffine({.input = counts->output(), .scale = factors, .offset = {0.0f}}));
    CAIRN_ASSIGN_OR_RETURN(memory, device.Allocate(counts->output().num_floats(), "counts of ids"));
    output = scaling->output();
  }
  std::vector<Shape> shapes = {Shape(ids.shape.dims().subspan(1))};
  CAIRN_ASSIGN_OR_RETURN(const Shape of_example, OutputShape(shapes));
  Shape shape = {batch};
  for (const int64_t extent : of_example.dims()) shape.Append(extent);
  return std::make_unique<EncodingOp>(output.WithShape(std::move(shape)), std::move(counts),
                                      std::move(scaling), std::move(memory));
}

absl::StatusOr<OnnxValue> IdEncoding::ToOnnx(absl::Span<const OnnxValue> inputs, OnnxBuilder& onnx) const {
  const Shape ids = onnx.ShapeOf(inputs[0]);
  CAIRN_ASSIGN_OR_RETURN(const Shape output, OutputShape({&ids, 1}));
  std::string indices = onnx.ChannelsLast(inputs[0]);
  if (onnx.TypeOf(inputs[0]) != DType::kInt64) indices = onnx.Cast(indices, DType::kInt64);
  if (onnx.IsRagged(inputs[0])) {  // its padding is negative, which ONNX would count from the end
    const std::string padding = onnx.Add("Less", {indices, onnx.Ints("zero", {0})});
    indices = onnx.Add("Where", {padding, onnx.Ints("nowhere", {depth}), indices});
  }
  const std::string vectors = onnx.Add(
      "OneHot", {indices, onnx.Ints("depth", {depth}), onnx.Floats("values", Shape({2}), {0.0f, 1.0f})});
  if (mode == Mode::kOneHot) {
    std::string result = vectors;
    if (DropsLastAxis(ids)) result = onnx.Add("Squeeze", {vectors, onnx.Ints("axis", {ids.rank()})});
    return onnx.FromChannelsLast(std::move(result), output);
  }
  const auto axis = [&onnx] { return onnx.Ints("axis", {1}); };
  std::string counts;
  if (mode == Mode::kMultiHot) {
    counts = onnx.Add("ReduceMax", {vectors}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}});
  } else if (inputs.size() == 2) {  // [batch, 1, ids] by [batch, ids, depth]
    const std::string weights = onnx.Add("Unsqueeze", {onnx.ChannelsLast(inputs[1]), axis()});
    counts = onnx.Add("Squeeze", {onnx.Add("MatMul", {weights, vectors}), axis()});
  } else {
    counts = onnx.Add("ReduceSum", {vectors, axis()}, {{"keepdims", int64_t{0}}});
  }
  if (!factors.empty()) counts = onnx.Add("Mul", {counts, onnx.Floats("factors", Shape({depth}), factors)});
  return onnx.FromChannelsLast(std::move(counts), output);
}

void CheckDepth(absl::string_view field, int64_t depth, ConfigReader& config) {
  constexpr int64_t kMaxDepth = int64_t{1} << 24;
  if (depth > kMaxDepth)
    config.Fail(field, absl::StrCat("vectors of ", depth, " numbers, at most ", kMaxDepth, " are supported"));
}

std::string ReadOutputMode(absl::string_view absent, bool allows_int, bool allows_tf_idf,
                           ConfigReader& config) {
  std::string mode = config.Choice(
      "output_mode", {"int", "one_hot", "multi_hot", "count", "tf_idf", "binary", "tf-idf"}, absent);
  if (mode == "binary") mode = "multi_hot";
  if (mode == "tf-idf") mode = "tf_idf";
  if ((mode == "int" && !allows_int) || (mode == "tf_idf" && !allows_tf_idf))
    config.Fail("output_mode", absl::StrCat("the layer has no mode \"", mode, "\""));
  return mode;
}

IdEncoding::Mode ModeOf(absl::string_view output_mode) {
  if (output_mode == "one_hot") return IdEncoding::Mode::kOneHot;
  return output_mode == "multi_hot" ? IdEncoding::Mode::kMultiHot : IdEncoding::Mode::kCount;
}

}  // namespace cairn::nn
