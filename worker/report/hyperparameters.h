// The hyperparameters of a run for TensorBoard's HParams page.
#pragma once

#include "cairn/v1/job.pb.h"
#include "nn/model.h"
#include "worker/options/options.h"
#include "worker/tensorboard/tensorboard_writer.h"

namespace cairn::worker {

// The settings of the job and of the optimizer, under the names of Cairn's flags and Keras' hyperparameters.
Hyperparameters HyperparametersOf(const TrainOptions& options, const v1::Job& job, const nn::Model& model);

}  // namespace cairn::worker
