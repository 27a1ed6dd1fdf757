// The `dtype` of layers.
#pragma once

#include "absl/strings/string_view.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// Accepts float32 as a string, or as a policy object of Keras 2 ("Policy") or 3 ("DTypePolicy").
void CheckDtype(absl::string_view field, ConfigReader& config);

}  // namespace cairn::nn
