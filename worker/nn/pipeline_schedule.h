// In which order the devices of a divided model do their work: forward and backward of each part for each
// micro-batch, as soon as what they wait for is done and the device is free (GPipe: Huang et al., 2019,
// section 2.3; but a device that can go backward does, as in PipeDream's 1F1B, Narayanan et al., 2019,
// section 3.2).
//
//   device 0  F0 F1 F2 F3       B0    B1    B2    B3
//   device 1     F0 B0    F1 B1    F2 B2    F3 B3
//
// Micro-batches pass every part in their order, and parts that share a variable take turns, so that all sums
// are taken in the same order on every run, whichever device is faster. One for each batch size; Next() and
// Finish() come from the devices' threads.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "worker/nn/model_part.h"

namespace cairn::nn {

class PipelineSchedule {
 public:
  struct Task {
    int part = 0, micro_batch = 0;
    bool backward = false;
    size_t index = 0;  // the schedule's own
  };

  // `device_of` [part]; -1: another process'. Without `training` there is no way back.
  PipelineSchedule(absl::Span<const ModelPart> parts, absl::Span<const int> device_of, int micro_batches,
                   bool training);

  // All is to be done, again.
  void Start();
  // The device's next task: blocks until one can be done; none when all of its tasks are done, or one failed
  // anywhere. There is no limit to that: another device is at work on what is waited for, or another process,
  // which fails the schedule when it is lost.
  std::optional<Task> Next(int device);
  // The same, and none where it would block.
  std::optional<Task> TryNext(int device);
  void Finish(const Task& task);
  // Of another process' part.
  void FinishElsewhere(int part, int micro_batch, bool backward);
  // The first to fail says why; nothing new is begun.
  void Fail(const absl::Status& status);
  absl::Status status();

 private:
  struct Entry {
    Task task;
    std::vector<size_t> waited_for_by;  // entries
    int waits_for = 0;                  // so many of them
  };
  size_t IndexOf(int part, int micro_batch, bool backward) const;
  void Order(size_t first, size_t second);
  std::optional<Task> Take(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool over(int device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !status_.ok() || left_[static_cast<size_t>(device)] == 0;
  }
  void OrderForward(absl::Span<const ModelPart> parts);
  void OrderBackward(absl::Span<const ModelPart> parts);

  const int parts_, micro_batches_;
  std::vector<Entry> entries_;
  std::vector<std::vector<size_t>> of_device_;  // [device] what it prefers first

  Mutex mutex_;
  CondVar changed_;
  std::vector<int> waits_for_ ABSL_GUARDED_BY(mutex_);  // [entry] -1: begun
  std::vector<size_t> left_ ABSL_GUARDED_BY(mutex_);    // [device] not begun
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// The part with this node of the model.
int PartOfNode(absl::Span<const ModelPart> parts, int node);

}  // namespace cairn::nn
