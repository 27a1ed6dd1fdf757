// What tells one run from another on TensorBoard's page of hyperparameters.
#pragma once

#include "cairn/v1/job.pb.h"
#include "worker/board/board.h"
#include "worker/nn/model.h"
#include "worker/options.h"

namespace cairn::worker {

// The job's and the optimizer's numbers under the names of our flags and of Keras.
Hyperparameters HyperparametersOf(const TrainOptions& options, const v1::Job& job, const nn::Model& model);

}  // namespace cairn::worker
