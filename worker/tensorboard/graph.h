// The model as TensorBoard's graph page draws it: one box per layer, with its variables inside.
#pragma once

#include "cairn/tensorboard/v1/event.pb.h"
#include "nn/model.h"

namespace cairn::worker {

tensorboard::v1::GraphDef GraphOf(const nn::Model& model);

}  // namespace cairn::worker
