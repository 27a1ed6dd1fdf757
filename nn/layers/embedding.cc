// Embedding, and ReversibleEmbedding without its reverse calls: they look up rows of a table [input_dim, output_dim].
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/step_mask.h"
#include "nn/layers/table_config.h"

namespace cairn::nn {
namespace {

class EmbeddingLayer final : public Layer {
 public:
  EmbeddingLayer(std::string name, std::string class_name, TableConfig config, bool mask_zero)
      : Layer(std::move(name), std::move(class_name)), config_(std::move(config)), mask_zero_(mask_zero) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    Shape output = inputs[0];
    output.Append(config_.width);
    return output;
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {config_.Variable()}; }

  bool takes_integers() const override { return true; }
  std::shared_ptr<const Layer> mask_maker() const override {
    return mask_zero_ ? MakeMaskOfIds(name(), 0) : nullptr;
  }
  std::optional<double> masked_value() const override {
    return mask_zero_ ? std::optional<double>(0) : std::nullopt;
  }

  StepUse step_use(absl::Span<const Shape>, absl::Span<const DecodedInput>) const override {
    return StepUse::kEach;
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    if (params.needs_input_gradients) {
      return absl::InvalidArgumentError(
          "indices have no gradient: no layer with variables may come before it");
    }
    Shape output = params.inputs[0].shape;
    CAIRN_ASSIGN_OR_RETURN(auto op,
                           device.ops().MakeEmbedding({.indices = output.num_elements(),
                                                       .rows = config_.rows,
                                                       .width = config_.width,
                                                       .index_type = params.inputs[0].type,
                                                       .ragged_mean = params.ragged,
                                                       .what = absl::StrCat("layer '", name(), "'")}));
    output.Append(config_.width);
    kernels::TensorDesc desc = op->output().WithShape(std::move(output));
    return std::make_unique<ReshapedOp>(
        std::move(desc), std::make_unique<LinearLayerOp>(std::move(op), /*use_bias=*/false, /*fused=*/false));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    Shape output = onnx.ShapeOf(inputs[0]);
    output.Append(config_.width);
    if (onnx.IsRagged(inputs[0])) {
      return onnx.FromChannelsLast(MeanInOnnx(onnx.ChannelsLast(inputs[0]), variables[0], onnx), output);
    }
    return onnx.FromChannelsLast(
        onnx.GatherRows(variables[0], onnx.ChannelsLast(inputs[0]), onnx.TypeOf(inputs[0])), output);
  }

 private:
  // The mean of the rows of `table` for each row of `indices` [batch, longest], whose padding is negative.
  static std::string MeanInOnnx(const std::string& indices, const OnnxVariable& table, OnnxBuilder& onnx) {
    const std::string zero = onnx.Ints("zero", {0}), first = onnx.Ints("axis", {1});
    const std::string padding = onnx.Add("Less", {indices, zero});
    const std::string rows =
        onnx.GatherRows(table, onnx.Add("Where", {padding, zero, indices}), DType::kInt64);
    const std::string weights =
        onnx.Add("Unsqueeze", {onnx.Cast(onnx.Add("Not", {padding}), DType::kFloat32), first});
    const std::string sums =
        onnx.Add("MatMul", {weights, rows});  // [batch, 1, longest] by [batch, longest, width]
    const std::string counts = onnx.Add("ReduceSum", {weights, onnx.Ints("last_axis", {2})});
    return onnx.Add("Div",
                    {sums, onnx.Add("Max", {counts, onnx.Scalar("one", 1)})});  // the mean of none is 0
  }

  const TableConfig config_;
  const bool mask_zero_;  // id 0 pads a sequence, so its steps are masked
};

}  // namespace

std::unique_ptr<Layer> MakeEmbedding(std::string name, ConfigReader& config) {
  TableConfig read = TableConfig::Read(config);
  config.Ignore({"input_length"});
  return std::make_unique<EmbeddingLayer>(std::move(name), "Embedding", std::move(read),
                                          config.Bool("mask_zero", false));
}

std::unique_ptr<Layer> MakeReversibleEmbedding(std::string name, ConfigReader& config) {
  TableConfig read = TableConfig::Read(config);
  // The reverse calls, which are a layer of their own, use these.
  config.Ignore({"tie_weights", "reverse_dtype", "logit_soft_cap"});
  return std::make_unique<EmbeddingLayer>(std::move(name), "ReversibleEmbedding", std::move(read),
                                          config.Bool("mask_zero", false));
}

}  // namespace cairn::nn
