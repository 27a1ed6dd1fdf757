// Rotary position embeddings: RotaryEmbedding, and those within the attention of Llama.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/shape.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/onnx_graph.h"

namespace cairn::nn {

// The options of RotaryEmbedding. Frequencies(width): radians per step of each of the width / 2 pairs.
struct RotaryConfig {
  double max_wavelength = 10000;
  double scaling_factor = 1;
  int64_t denominator = 0;  // 0: the width

  static RotaryConfig Read(ConfigReader& config);
  std::vector<double> Frequencies(int64_t width) const;
};

// Those of Llama, whose fields begin with rope_.
std::vector<double> ReadLlamaFrequencies(int64_t width, ConfigReader& config);

// Rotates `x` [batch, steps, vectors * width] as kernels::RotaryParams describes.
std::string RotaryInOnnx(const std::string& x, int64_t steps, int64_t vectors,
                         const std::vector<double>& frequencies, OnnxBuilder& onnx);

}  // namespace cairn::nn
