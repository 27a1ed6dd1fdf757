// The chief's part in training: epochs and their evaluation, callbacks, TensorBoard, progress and the summary of
// the run. client::TrainingLoop declares the job, takes its snapshots and ends the servers.
//
// Created by WorkerTask on the job's chief, and called by the trainer on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/training/job_control.h"
#include "client/training/step_exchange.h"
#include "common/core/clock.h"
#include "worker/report/progress.h"
#include "worker/report/summary.h"
#include "worker/tensorboard/tensorboard_writer.h"
#include "worker/training/callbacks.h"
#include "worker/training/epoch_display.h"
#include "worker/training/trainer.h"
#include "worker/training/training_hooks.h"
#include "worker/training/validation.h"

namespace cairn::worker {

class Chief final : public TrainingHooks {
 public:
  // Everything here must outlive the chief.
  struct Dependencies {
    Progress& progress;
    Callbacks& callbacks;
    TensorBoardWriter* tensorboard = nullptr;  // null without --train_dir
    // Receives the result before the servers end, so that it exists when a user sees a server exit.
    std::function<absl::Status(const Summary&)> publish;
  };
  // `trainer`, a chief's (Trainer::Dependencies::chief), must outlive this object.
  Chief(const Trainer& trainer, const Dependencies& deps);

  absl::Status OnJoined() override;
  absl::Status BeforeTraining() override;
  void OnMembers(int members) override;
  void OnEpochStart() override;
  // Evaluates and reports the epoch, and runs the callbacks. A second call in one epoch does nothing.
  absl::Status OnEpochEnd() override;
  void OnBatch(const data::Batch& batch, const nn::BatchView& view, const nn::BatchResult& result) override {
    display_.OnBatch(batch, view, result);
  }
  void OnStep() override { display_.OnStep(); }
  // Evaluates the final parameters and publishes the summary.
  absl::Status AfterTraining() override;
  // After Trainer::Stop(): saves a checkpoint. CANCELLED if another chief has ended the job; the error if the
  // summary was not published.
  absl::Status OnEnd(const absl::Status& result) override;

 private:
  // Evaluates an epoch of a resumed run that was trained but not evaluated before the run stopped. The run
  // resumes from that epoch's parameters.
  absl::Status EvaluateInterruptedEpoch();
  // The epoch that has just been completed, if no example of the next epoch has been trained; otherwise
  // nullopt.
  absl::StatusOr<std::optional<int64_t>> EpochJustTrained();
  // Saves a checkpoint, and logs what was saved.
  void SaveAtStop();
  absl::Status CarryOut(const Callbacks::Orders& orders);
  // If callbacks may reduce the learning rate: reads the servers' rate and sets it on all of them again, in
  // case an earlier chief was lost after it had set the rate on only some.
  absl::Status AgreeOnLearningRate();
  absl::Status RestoreBest();
  // The running means of training; with a validation set, also its metrics for the current parameters,
  // prefixed by "val_"; and the learning rate if it may be reduced.
  absl::StatusOr<ShownMetrics> AllMetrics();
  // The summary after the last update.
  absl::StatusOr<Summary> Summarise();
  // Sets the numbers of missed and repeated examples in `summary` and, with dynamic sharding, its numbers of
  // epochs and workers.
  absl::Status FillInDeviations(Summary& summary);
  // For an asynchronous job that ended early: shows how many of the trained examples belong to epochs that the
  // chief did not reach.
  void PrintWhatWasNotShown(const Summary& summary);

  const Trainer& trainer_;
  const Trainer::Dependencies& training_;
  const TrainingSetup& setup_;
  client::StepExchange& steps_;
  client::JobControl& control_;
  const Dependencies deps_;
  Validation validation_;
  EpochDisplay display_;

  TimePoint start_;                     // of the run
  int members_ = 0, most_members_ = 0;  // with dynamic sharding: current and greatest number of members
  bool epoch_ended_ = true;             // whether OnEpochEnd() has run for the current epoch
  // The last epoch whose callbacks have run. They do not run again if the epoch is trained again.
  int64_t last_ended_epoch_ = -1;
  absl::Status published_;  // the result of Dependencies::publish
};

}  // namespace cairn::worker
