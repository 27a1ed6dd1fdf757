// A worker's actions at fixed points of the training loop, apart from its steps. Chief (chief.h) acts at every
// point, every other worker (NonChief) only at the end.
//
// Called by Trainer::Run() on its thread, in this order:
//
//   OnJoined ─► BeforeTraining ─► steps ─► [AfterTraining] ─► OnEnd
//      ▲                            │
//      └─ membership or servers lost
//
//   steps: [OnMembers] ─► [OnEpochEnd ─► OnEpochStart] ─► OnBatch ─► OnStep
//
// A failure ends the attempt, as a failed step does.
#pragma once

#include "absl/status/status.h"
#include "data/batch_loader.h"
#include "nn/replica/replica.h"

namespace cairn::worker {

class TrainingHooks {
 public:
  virtual ~TrainingHooks() = default;

  // The worker has become a member, for the first time or again.
  virtual absl::Status OnJoined() { return absl::OkStatus(); }
  // The position of the next batch is known.
  virtual absl::Status BeforeTraining() { return absl::OkStatus(); }
  // With dynamic sharding, before every step: the number of members.
  virtual void OnMembers(int /*members*/) {}
  // Trainer::epoch() has begun. May be called again for an epoch that is trained again.
  virtual void OnEpochStart() {}
  // The next batch belongs to another epoch. Also called before the first epoch.
  virtual absl::Status OnEpochEnd() { return absl::OkStatus(); }
  // The gradients of `batch` have been computed. `view` shows its examples; `result` is valid during the call.
  virtual void OnBatch(const data::Batch& /*batch*/, const nn::BatchView& /*view*/,
                       const nn::BatchResult& /*result*/) {}
  // The step of the last OnBatch() has been answered.
  virtual void OnStep() {}
  // On the chief: no worker makes another update, and the last one is saved. The servers have not ended.
  virtual absl::Status AfterTraining() { return absl::OkStatus(); }
  // Training has ended with `result`, which client::IsOver() if the job has ended without this worker; after
  // other failures the worker is still a member. Returns the result of Trainer::Run().
  virtual absl::Status OnEnd(const absl::Status& result) = 0;
};

class NonChief final : public TrainingHooks {
 public:
  // OK if the job has ended without this worker, which was paused or joined late.
  absl::Status OnEnd(const absl::Status& result) override;
};

}  // namespace cairn::worker
