// DistributedEmbedding of keras_rs: one layer with many tables, features and outputs. It is read as an EmbedReduce for
// each table, "NAME/TABLE", which is called for each feature of the table.
//
// Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// Replaces every DistributedEmbedding in `layers` of a Functional model, and the layers' references to its outputs.
// `lines` [layer] changes in the same way, and may be shorter. INVALID_ARGUMENT, naming the layer, for an invalid one,
// and if it is the layer `output`, which makes the model's output.
absl::Status ExpandDistributedEmbeddings(nlohmann::json& layers, absl::string_view output,
                                         std::vector<int64_t>& lines);

}  // namespace cairn::nn
