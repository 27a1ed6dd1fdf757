#include "worker/nn/loss.h"

#include "absl/strings/str_cat.h"

namespace cairn::nn {

absl::StatusOr<LossSpec> ParseLoss(const KerasObject& loss) {
  if (loss.class_name != "SparseCategoricalCrossentropy" &&
      loss.class_name != "sparse_categorical_crossentropy") {
    return absl::InvalidArgumentError(absl::StrCat(
        "loss '", loss.class_name, "' is not supported; supported: SparseCategoricalCrossentropy"));
  }
  LossSpec spec;
  for (const auto& [option, value] : loss.config) {
    if (option == "from_logits") {
      spec.from_logits = value != 0;
    } else if (option != "axis" || value != -1) {
      return absl::InvalidArgumentError(
          absl::StrCat("loss SparseCategoricalCrossentropy: ", option, " ", value, " is not supported"));
    }
  }
  return spec;
}

}  // namespace cairn::nn
