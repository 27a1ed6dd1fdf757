// The sizes of inputs that a model file leaves open, as in batch_shape [null, null, null, 3].
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"

namespace cairn::nn {

struct InputSizes {
  // The shape of an example by the name of the InputLayer; "": that of the only input.
  std::map<std::string, std::vector<int64_t>> given{};
  // Returns the shape of the data's examples, or why it is unknown. Called for a model with one input, if its sizes
  // are not given. May be empty.
  std::function<absl::StatusOr<Shape>()> in_data{};
  std::string data_source = "--data_dir";  // of in_data, for messages
  // Above 0: first axes that the file leaves open, and the ids of texts (output_sequence_length), have at most this
  // size.
  int64_t max_length = 0;
};

// Parses "224,224,3", or with the names of several inputs "image:224,224,3,mask:224,224,1".
absl::StatusOr<std::map<std::string, std::vector<int64_t>>> ParseInputSizes(absl::string_view text);

// Writes the sizes into the shapes of the model's inputs. Sizes that stay open are left to ReadInputLayer().
// INVALID_ARGUMENT for a name that is no input, and for a shape that contradicts the file: the message has both.
absl::Status SetInputSizes(const InputSizes& sizes, nlohmann::json& model);

}  // namespace cairn::nn
