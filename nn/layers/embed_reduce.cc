// EmbedReduce of keras_rs: looks up rows of a table, and pools those of an example into one, with weights of a second
// input. Its table is always outside the model (replace_embeddings.h), so it has no op.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/compile_config.h"
#include "nn/layers/layers.h"
#include "nn/layers/row_table.h"
#include "nn/layers/table_config.h"

namespace cairn::nn {
namespace {

class EmbedReduceLayer final : public Layer {
 public:
  EmbedReduceLayer(std::string name, TableConfig config, RowTable table)
      : Layer(std::move(name), "EmbedReduce"), config_(std::move(config)), table_(std::move(table)) {}

  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const override {
    if (inputs.size() > 2)
      return absl::InvalidArgumentError(absl::StrCat(inputs.size(), " inputs, expected ids and weights"));
    if (inputs[0].rank() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[0].ToString(), " is not a list of ids for each example"));
    }
    if (inputs.size() == 2 && inputs[0] != inputs[1]) {
      return absl::InvalidArgumentError(absl::StrCat("ids ", inputs[0].ToString(), " and weights ",
                                                     inputs[1].ToString(), " have different shapes"));
    }
    return Shape({config_.width});
  }
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override { return {config_.Variable()}; }
  bool takes_integers() const override { return true; }
  const RowTable* row_table() const override { return &table_; }

  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs,
                                   absl::Span<const OnnxVariable> variables,
                                   OnnxBuilder& onnx) const override {
    std::string ids = onnx.ChannelsLast(inputs[0]), weights;
    const DType type = onnx.TypeOf(inputs[0]);
    if (onnx.IsRagged(inputs[0])) {  // its padding is negative, and has the weight 0
      const std::string zero = onnx.Ints("zero", {0}), padding = onnx.Add("Less", {ids, zero});
      ids = onnx.Add("Where", {padding, zero, ids});
      weights = onnx.Cast(onnx.Add("Not", {padding}), DType::kFloat32);
      if (inputs.size() == 2) weights = onnx.Add("Mul", {weights, onnx.ChannelsLast(inputs[1])});
    } else if (inputs.size() == 2) {
      weights = onnx.ChannelsLast(inputs[1]);
    } else {
      weights = onnx.Floats("ones", Shape({1, onnx.ShapeOf(inputs[0])[0]}),
                            std::vector<float>(static_cast<size_t>(onnx.ShapeOf(inputs[0])[0]), 1.0f));
    }
    const std::string rows = onnx.GatherRows(variables[0], ids, type);  // [batch, ids, width]
    const std::string axis = onnx.Ints("axis", {1});
    // [batch, 1, ids] by [batch, ids, width]
    std::string pooled =
        onnx.Add("Squeeze", {onnx.Add("MatMul", {onnx.Add("Unsqueeze", {weights, axis}), rows}), axis});
    if (table_.combiner != "sum") {
      const bool mean = table_.combiner == "mean";
      std::string divisor =
          onnx.Add("ReduceSum", {mean ? weights : onnx.Add("Mul", {weights, weights}), axis});
      if (!mean) divisor = onnx.Add("Sqrt", {divisor});
      const std::string zero = onnx.Scalar("none", 0);
      pooled =
          onnx.Add("Where", {onnx.Add("Equal", {divisor, zero}), zero, onnx.Add("Div", {pooled, divisor})});
    }
    return onnx.FromChannelsLast(pooled, Shape({config_.width}));
  }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams&, kernels::Device&) const override {
    return absl::UnimplementedError(absl::StrCat("layer '", name(),
                                                 "' (EmbedReduce) has a table on the servers, and is only "
                                                 "supported where a job with servers trains the model"));
  }

 private:
  const TableConfig config_;
  const RowTable table_;
};

}  // namespace

std::unique_ptr<Layer> MakeEmbedReduce(std::string name, ConfigReader& config) {
  TableConfig read = TableConfig::Read(config);
  config.Refuse("mask_zero", false);
  RowTable table = {.combiner = config.Choice("combiner", {"mean", "sum", "sqrtn"}, "mean")};
  if (const nlohmann::json& optimizer = config.Raw("optimizer"); !optimizer.is_null()) {
    auto parsed = ParseCompileConfig({{"optimizer", optimizer}});
    if (parsed.ok()) {
      table.optimizer = std::move(parsed->optimizer);
      table.learning_rate_schedule = std::move(parsed->learning_rate_schedule);
    } else {
      config.Fail("optimizer", parsed.status().message());
    }
  }
  return std::make_unique<EmbedReduceLayer>(std::move(name), std::move(read), std::move(table));
}

}  // namespace cairn::nn
