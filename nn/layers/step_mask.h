// The layers that compute masks of time steps (MaskUse in layer.h). No model file contains them: a ModelBuilder adds
// them where a layer reads a mask.
#pragma once

#include <memory>
#include <string>

#include "nn/layer/layer.h"

namespace cairn::nn {

// Maps ids [steps], or the vectors of a sequence [steps, width], to the mask [steps]: 0 where the id, or every element
// of the vector, is `masked`, their masked_value(). `name` is that of the layer whose output is masked.
std::shared_ptr<const Layer> MakeMaskOfIds(const std::string& name, float masked);
std::shared_ptr<const Layer> MakeMaskOfVectors(const std::string& name, float masked);

// Maps several masks to the mask of the steps that count in any of them.
std::shared_ptr<const Layer> MakeMaskUnion(std::string name);

}  // namespace cairn::nn
