// One output of a layer with several (Layer::num_outputs): a part of the vector that the layer writes for each example.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/core/shape.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// The shape of the vector that has outputs of these shapes one after another.
Shape PackedShape(const std::vector<Shape>& outputs);

// `outputs` are the shapes of all outputs, of which the layer selects number `selected`. The first output has the mask
// of time steps of the vector, the others have none.
std::shared_ptr<const Layer> MakeSelectOutput(std::string name, const std::vector<Shape>& outputs,
                                              int selected);

}  // namespace cairn::nn
