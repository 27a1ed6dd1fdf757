// The learning-rate schedule of a Keras optimizer, in the form that the servers read.
//
// Pure; any thread.
#pragma once

#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "nn/layer/compile_config.h"

namespace cairn::worker {

// Only the servers know which schedules exist. INVALID_ARGUMENT for an unknown list of numbers.
absl::StatusOr<v1::LearningRateSchedule> MakeSchedule(const nn::KerasObject& object);

}  // namespace cairn::worker
