// How a TextVectorization divides texts, as its config says.
#pragma once

#include "common/ids/text_ids.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// Reads `standardize`, `split`, `ngrams` and `output_sequence_length`. Errors are recorded in `config`.
TextDivision ReadTextDivision(ConfigReader& config);

}  // namespace cairn::nn
