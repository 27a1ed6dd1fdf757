// EmbedReduce of keras_rs: looks up rows of a table, and pools those of an example into one, with weights of a second
// input. Its table is always outside the model (replace_embeddings.h), so it has no op.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/compile_config.h"
#include "nn/layers/layers.h"
#include "nn/layers/row_table.h"

namespace cairn::nn {
namespace {

class EmbedReduceLayer final : public Layer {
 public:
  struct Config {
    int64_t rows, width;
    InitializerSpec initializer;
    RegularizerSpec regularizer;
    RowTable table;
  };
  EmbedReduceLayer(std::string name, Config config)
      : Layer(std::move(name), "EmbedReduce"), config_(std::move(config)) {}

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
  std::vector<VariableSpec> Variables(absl::Span<const Shape>) const override {
    return {{.name = "embeddings",
             .shape = {config_.rows, config_.width},
             .initializer = config_.initializer,
             .regularizer = config_.regularizer}};
  }
  bool takes_integers() const override { return true; }
  const RowTable* row_table() const override { return &config_.table; }

  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams&, kernels::Device&) const override {
    return absl::UnimplementedError(absl::StrCat("layer '", name(),
                                                 "' (EmbedReduce) has a table on the servers, and is only "
                                                 "supported where a job with servers trains the model"));
  }

 private:
  const Config config_;
};

}  // namespace

std::unique_ptr<Layer> MakeEmbedReduce(std::string name, ConfigReader& config) {
  EmbedReduceLayer::Config read = {
      .rows = config.PositiveInt("input_dim"),
      .width = config.PositiveInt("output_dim"),
      .initializer = config.Initializer("embeddings_initializer", "uniform"),
      .regularizer = config.Regularizer("embeddings_regularizer"),
      .table = {.combiner = config.Choice("combiner", {"mean", "sum", "sqrtn"}, "mean")}};
  if (const nlohmann::json& optimizer = config.Raw("optimizer"); !optimizer.is_null()) {
    auto parsed = ParseCompileConfig({{"optimizer", optimizer}});
    if (parsed.ok()) {
      read.table.optimizer = std::move(parsed->optimizer);
      read.table.learning_rate_schedule = std::move(parsed->learning_rate_schedule);
    } else {
      config.Fail("optimizer", parsed.status().message());
    }
  }
  config.Refuse("mask_zero", false);
  config.RefuseUnlessNull(
      {"embeddings_constraint", "activity_regularizer", "lora_rank", "quantization_config", "weights"});
  return std::make_unique<EmbedReduceLayer>(std::move(name), std::move(read));
}

}  // namespace cairn::nn
