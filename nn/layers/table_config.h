// The settings of a layer's table of rows, which Embedding and EmbedReduce have in common.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layer/config_reader.h"
#include "nn/layer/initializer.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

struct TableConfig {
  int64_t rows, width;  // input_dim, output_dim
  InitializerSpec initializer;
  RegularizerSpec regularizer;
  std::optional<Constraint> constraint;

  // Reads them, and refuses what no table has.
  static TableConfig Read(ConfigReader& config) {
    TableConfig read = {.rows = config.PositiveInt("input_dim"),
                        .width = config.PositiveInt("output_dim"),
                        .initializer = config.Initializer("embeddings_initializer", "uniform"),
                        .regularizer = config.Regularizer("embeddings_regularizer"),
                        .constraint = config.ReadConstraint("embeddings_constraint")};
    config.RefuseUnlessNull({"lora_rank", "quantization_config", "weights"});
    return read;
  }
  VariableSpec Variable() const {
    return {.name = "embeddings",
            .shape = {rows, width},
            .initializer = initializer,
            .regularizer = regularizer,
            .constraint = constraint};
  }
};

}  // namespace cairn::nn
