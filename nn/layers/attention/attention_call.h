// How a layer of attention is called: which arguments its inputs are, and whether the attention is causal.
// Keras writes that per call, and here it belongs to the layer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "nn/layer/config_reader.h"
#include "nn/layer/decoding.h"

namespace cairn::nn {

struct AttentionCall {
  std::vector<std::string> inputs;  // the argument of each input, "query" first, then "value"
  bool causal = false;

  // The input of an argument; nullopt: absent.
  std::optional<size_t> Find(absl::string_view argument) const;
  // The input of the key, which is the value unless it is given.
  size_t key() const { return Find("key").value_or(1); }
  // Whether the layer can be decoded with its own inputs of these kinds: no step of the query depends on a later step.
  bool IsDecoded(absl::Span<const DecodedInput> kinds) const;

  // Reads the field that NormalizeAttentionCalls() adds. Without it, the inputs are a query, a value and, if
  // there are three, a key.
  static AttentionCall Read(ConfigReader& config);
  // INVALID_ARGUMENT unless query, key and value are sequences of vectors and masks fit them.
  absl::Status CheckShapes(absl::Span<const Shape> shapes) const;
};

// For a layer of attention, rewrites the calls of its JSON so that all tensors are in `args`, and adds the
// arguments' names to its config, where AttentionCall::Read() expects them. Leaves other layers unchanged.
// INVALID_ARGUMENT for an argument that is not supported, and if calls differ in their arguments.
absl::Status NormalizeAttentionCalls(nlohmann::json& layer);

}  // namespace cairn::nn
