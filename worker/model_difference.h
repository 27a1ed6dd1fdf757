// What two models differ in, in a person's words: for the messages about "another model".
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "worker/nn/model.h"

namespace cairn::worker {

// Of `ours` and the model whose canonical JSON is `their_json`: the first variable that one of them lacks or
// whose shapes differ ("'dense/kernel' is [64,10] here, [32,10] there"), else the first layer whose settings
// differ. Empty where nothing of that kind is found.
std::string DescribeDifference(const nn::Model& ours, absl::string_view their_json);

}  // namespace cairn::worker
