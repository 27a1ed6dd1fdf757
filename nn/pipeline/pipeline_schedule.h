// The order in which the devices of a divided model work: forward and backward of each stage for each
// micro-batch, as soon as its dependencies are done and the device is free (GPipe: Huang et al., 2019,
// section 2.3; but a device prefers backward work, as in PipeDream's 1F1B, Narayanan et al., 2019, section
// 3.2).
//
//   device 0  F0 F1 F2 F3       B0    B1    B2    B3
//   device 1     F0 B0    F1 B1    F2 B2    F3 B3
//
// Micro-batches pass through every stage in order, and stages that share a variable take turns. All sums are
// therefore taken in the same order on every run, regardless of the devices' speeds. There is one schedule
// for each batch size. The devices' threads call Next() and Finish().
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "nn/replica/pipeline_stage.h"

namespace cairn::nn {

class PipelineSchedule {
 public:
  struct Task {
    int stage = 0, micro_batch = 0;
    bool backward = false;
    size_t index = 0;  // set and used by the schedule
  };

  // `device_of` [stage]; -1: in another process. Without `training` there is no backward work.
  PipelineSchedule(absl::Span<const PipelineStage> stages, absl::Span<const int> device_of, int micro_batches,
                   bool training);

  // Resets the schedule: all tasks are to be done.
  void Start();
  // Returns the device's next task. Blocks until a task can start. Returns nullopt when all of the device's
  // tasks are done, or any task has failed. There is no timeout: the awaited task runs on another device, or
  // in another process, whose failure fails the schedule.
  std::optional<Task> Next(int device);
  // Like Next(), but returns nullopt instead of blocking.
  std::optional<Task> TryNext(int device);
  void Finish(const Task& task);
  // Reports that another process has finished a task of one of its stages.
  void FinishRemotely(int stage, int micro_batch, bool backward);
  // Fails the schedule: no new task begins. If called several times, keeps the first failure's status.
  void Fail(const absl::Status& status);
  absl::Status status();

 private:
  struct Entry {
    Task task;
    std::vector<size_t> waited_for_by;  // entries that wait for this one
    int waits_for = 0;                  // number of entries that this one waits for
  };
  size_t IndexOf(int stage, int micro_batch, bool backward) const;
  void Order(size_t first, size_t second);
  std::optional<Task> Take(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool over(int device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !status_.ok() || left_[static_cast<size_t>(device)] == 0;
  }
  void OrderForward(absl::Span<const PipelineStage> stages);
  void OrderBackward(absl::Span<const PipelineStage> stages);

  const int num_stages_, micro_batches_;
  std::vector<Entry> entries_;
  std::vector<std::vector<size_t>> of_device_;  // [device] the device's entries, preferred entries first

  Mutex mutex_;
  CondVar changed_;
  // [entry] The number of unfinished entries that it waits for; -1: the entry has begun.
  std::vector<int> waits_for_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> left_ ABSL_GUARDED_BY(mutex_);  // [device] number of entries that have not begun
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// The stage that contains this node of the model.
int StageOfNode(absl::Span<const PipelineStage> stages, int node);

}  // namespace cairn::nn
