// ReverseEmbedding: the reverse calls of a ReversibleEmbedding. They multiply vectors by its transposed table or, if
// the weights are not tied, by its second variable.
#include "nn/layers/reverse_embedding.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "kernels/ops.h"
#include "nn/layers/axes.h"
#include "nn/layers/layer_ops.h"
#include "nn/layers/layers.h"
#include "nn/layers/table_config.h"

namespace cairn::nn {
namespace {

class ReverseEmbeddingLayer final : public Layer {
 public:
  ReverseEmbeddingLayer(std::string name, TableConfig config, bool tied)
      : Layer(std::move(name), "ReverseEmbedding"), config_(std::move(config)), tied_(tied) {}

  absl::string_view variables_of() const override { return absl::StripSuffix(name(), kReverseSuffix); }
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    const Shape& input = inputs[0];
    if (input.rank() < 1 || input[input.rank() - 1] != config_.width) {
      return absl::InvalidArgumentError(absl::StrCat(
          "input ", input.ToString(), " of a reverse call has not ", config_.width, " elements, output_dim"));
    }
    return WithLastAxis(input, config_.rows);
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override {
    VariableSpec variable = config_.Variable();
    if (!tied_) variable.name = "reverse_embeddings", variable.shape = {config_.width, config_.rows};
    return {std::move(variable)};
  }

  StepUse step_use(absl::Span<const Shape> inputs, absl::Span<const DecodedInput>) const override {
    return UseOfSteps(inputs[0].rank() > 1);
  }
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params,
                                                  kernels::Device& device) const override {
    const kernels::TensorDesc& input = params.inputs[0];
    const kernels::DenseParams dense = {
        .input = input.WithShape({input.shape.num_elements() / config_.width, config_.width}),
        .units = config_.rows,
        .use_bias = false,
        .needs_input_gradient = params.needs_input_gradients,
        .transposed = tied_};
    CAIRN_ASSIGN_OR_RETURN(auto linear, device.ops().MakeDense(dense));
    auto op = std::make_unique<LinearLayerOp>(std::move(linear), /*use_bias=*/false, /*fused=*/false);
    kernels::TensorDesc output = op->output().WithShape(WithLastAxis(input.shape, config_.rows));
    return std::make_unique<ReshapedOp>(std::move(output), std::move(op));
  }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    std::string kernel = onnx.Weights(variables[0]);
    if (tied_) kernel = onnx.Add("Transpose", {kernel}, {{"perm", std::vector<int64_t>{1, 0}}});
    return onnx.FromChannelsLast(onnx.Add("MatMul", {onnx.ChannelsLast(inputs[0]), kernel}),
                                 WithLastAxis(onnx.ShapeOf(inputs[0]), config_.rows));
  }

 private:
  const TableConfig config_;
  const bool tied_;
};

}  // namespace

std::unique_ptr<Layer> MakeReverseEmbedding(std::string name, ConfigReader& config) {
  TableConfig read = TableConfig::Read(config);
  config.Refuse("reverse_dtype", "float32");
  config.RefuseUnlessNull({"logit_soft_cap"});
  config.Ignore({"mask_zero"});
  if (name == kReverseSuffix || !absl::EndsWith(name, kReverseSuffix))
    config.Fail("name", "is not that of a reverse call");
  return std::make_unique<ReverseEmbeddingLayer>(std::move(name), std::move(read),
                                                 config.Bool("tie_weights", true));
}

}  // namespace cairn::nn
