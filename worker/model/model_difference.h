// Describes in words how two models differ, for the messages about "another model".
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "nn/model.h"

namespace cairn::worker {

// Compares `ours` with the model whose canonical JSON is `their_json`. Names the first variable that only one
// model has or whose shapes differ ("'dense/kernel' is [64,10] here, [32,10] there"), else the first layer
// whose settings differ. Empty if no difference is found.
std::string DescribeDifference(const nn::Model& ours, absl::string_view their_json);

}  // namespace cairn::worker
