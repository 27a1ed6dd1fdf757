// The source of a job's initial values if the job resumes no checkpoint. Any thread; reads the first bytes of
// files.
#pragma once

#include <string>
#include <vector>

#include "nn/model.h"
#include "worker/options/options.h"

namespace cairn::worker {

// --init_from=none: the model's initializers, even if the model file contains weights.
inline constexpr char kInitializersOnly[] = "none";

// The file or directory of the initial values: --init_from, else the model file if it holds weights. Empty:
// the model's initializers.
std::string InitialValuesSource(const TrainOptions& options);

// The directory of the checkpoint from which the job resumes, instead of starting from initial values:
// --train_dir if it has a checkpoint, else --resume=DIR. Empty: the job does not resume.
std::string CheckpointSource(const TrainOptions& options);

// Warnings for the log, for a model that starts from its initializers: one for each layer whose values Keras'
// adapt() would have set.
std::vector<std::string> WarnOfUnadaptedLayers(const nn::Model& model);

// "initial values: from trained.keras", for the log.
std::string DescribeInitialValues(const TrainOptions& options);

}  // namespace cairn::worker
