// Vectors that count the ids of an example, as Keras' encode_categorical_inputs() makes them: the output of
// CategoryEncoding, and of the other preprocessing layers unless their `output_mode` is "int".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "kernels/device.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/layer.h"
#include "nn/layer/onnx_graph.h"

namespace cairn::nn {

struct IdEncoding {
  enum class Mode {
    kOneHot,    // a vector for each id
    kMultiHot,  // 1 where an id of the example occurs
    kCount,     // how often it occurs, or the sum of its weights
  };
  Mode mode = Mode::kMultiHot;
  int64_t depth = 1;
  // [depth] Factors of the counts (tf_idf); empty: 1.
  std::vector<float> factors{};
  // IdMap::kMasked is counted nowhere. Otherwise every id outside [0, depth) is an error.
  bool masked = false;

  // INVALID_ARGUMENT for inputs that cannot be encoded: ids, and their weights if there are two.
  absl::StatusOr<Shape> OutputShape(absl::Span<const Shape> inputs) const;
  // `what`: the layer, for messages.
  absl::StatusOr<std::unique_ptr<LayerOp>> MakeOp(const LayerOpParams& params, std::string what,
                                                  kernels::Device& device) const;
  absl::StatusOr<OnnxValue> ToOnnx(absl::Span<const OnnxValue> inputs, OnnxBuilder& onnx) const;
};

// Vectors have at most 2^24 numbers. Fails `config`, naming `field`, for more.
void CheckDepth(absl::string_view field, int64_t depth, ConfigReader& config);
// Reads `output_mode`, with Keras' older names. "int" and "tf_idf" are results only if they are allowed.
std::string ReadOutputMode(absl::string_view absent, bool allows_int, bool allows_tf_idf,
                           ConfigReader& config);
IdEncoding::Mode ModeOf(absl::string_view output_mode);  // of those other than "int"

}  // namespace cairn::nn
