// A worker's side of training without servers: the workers average their gradients around a ring, and each
// applies the optimizer to the mean, so that all hold the same values to the bit.
//
//   BeginStep ─► Ring::Begin         FinishStep ─► Ring::Await ─► optimizer ─► version + 1
//   Announce  ─► Ring::Announce                        └─ ABORTED: somebody is lost; Reconnect, Join
//
// After the last step two rounds without a gradient go round: when all have made it, and when the chief has
// saved, evaluated and told what came of it.
//
// Where every worker has a device that adds up with those of the others, gradients do not go round the ring:
// the devices sum them (device_sum.h), and the records alone go round. A fault of that sum is mended as a
// loss is: the ring breaks, the step is done again; a worker whose device fails while nobody is lost takes no
// part in such sums any more, and so nobody does.
//
// A synchronous job in everything else: the mean by examples, the version, the data's position, norms and
// moving averages, checkpoints. The chief gives the first values; after a loss the worker that is farthest
// gives its own, so nothing is computed twice while one is left. A round never goes on without a worker: it
// waits for its return.
//
// As client::Exchange says: one thread, but for Announce and Interrupt; in steps on devices, for Interrupt.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "common/core/crew.h"
#include "common/net/direct/address.h"
#include "kernels/peer_group.h"
#include "ps/variable_store.h"
#include "worker/allreduce/device_sum.h"
#include "worker/allreduce/member.h"
#include "worker/client/exchange.h"

namespace cairn::allreduce {

class RingExchange final : public client::Exchange {
 public:
  struct Options {
    int worker = 0;                  // position among the workers, the chief first
    std::string task;                // "worker/0"
    std::vector<std::string> names;  // [worker] "worker/1 at host:2222"
    uint64_t cluster_hash = 0;
    uint64_t incarnation = 0;     // of this process
    net::DirectAddress direct{};  // Member::Options
    v1::Job job;                  // but for the run_id
    std::vector<net::VariableInfo> variables;
    Duration connect_timeout = std::chrono::seconds(300);  // to form the ring, for the first time or again
    Duration step_timeout = std::chrono::seconds(600);     // for one step of all
    std::function<void(const std::string&)> say{};         // may be null
    Crew* crew = nullptr;                                  // helps with updates; outlives this. May be null
    kernels::PeerDevice* device = nullptr;                 // that adds up with those of the others; likewise
    // For the links to tell that somebody is lost, when the devices have noticed.
    Duration links_notice = std::chrono::seconds(2);
  };
  // INVALID_ARGUMENT for an optimizer that there is not. Null `right`: the only worker.
  static absl::StatusOr<std::unique_ptr<RingExchange>> Create(Options options,
                                                              std::unique_ptr<RingPeer> right);

  // To be reached by the left-hand neighbour: what serves it is there from before Join() on, and stops before
  // this is destroyed.
  RingHost& host() { return member_; }

  // Loads the first values, unless this process has trained.
  absl::Status Initialise(const v1::Job& job, client::StateSource& source) override;
  absl::Status WaitReady(const v1::Job&) override { return absl::OkStatus(); }
  // Forms the ring and takes over the values of who is farthest. UNAVAILABLE naming who has not come in time.
  absl::Status Join() override;
  // Nothing: Join() forms the ring anew.
  absl::Status Reconnect() override { return absl::OkStatus(); }
  bool CanReconnectAfter(const absl::Status& failure) const override { return absl::IsAborted(failure); }

  absl::Span<const float> parameters() const override { return values_.data->span(); }
  std::array<absl::Span<const float>, 2> parameter_buffers() const override { return buffers_; }
  int64_t version() const override { return values_.version; }
  int64_t version_offset() const override { return progress_.version_offset(); }
  int64_t position() const override { return values_.version; }
  int64_t clock_at_join() const override { return 0; }
  bool finished() const override { return finished_; }
  const v1::Work& work() const override { return work_; }
  void BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) override;
  bool adds_up_on_device() const override { return device_sum_ != nullptr; }
  void BeginStepOnDevice(absl::Span<float> gradients, absl::Span<float> mean, int64_t examples) override;
  void Announce(int variable) override;
  // INVALID_ARGUMENT naming the variable whose mean is not finite: the same on all workers.
  absl::StatusOr<client::StepResult> FinishStep() override;
  absl::Status AwaitWork() override { return absl::OkStatus(); }
  absl::Status Pull() override { return absl::OkStatus(); }

  absl::StatusOr<float> LearningRate() override;
  absl::Status SetLearningRate(float rate) override;
  absl::Status EndTraining() override;
  // Of this worker alone: when training is over.
  absl::Status Write(absl::Span<const float> values) override;
  absl::StatusOr<client::TakenSnapshot> TakeSnapshot() override;
  absl::Status MendSnapshot(const absl::Status& failure) override { return failure; }

  void Interrupt(absl::Status reason) override { member_.Interrupt(reason); }

  // With its work done nobody leaves before AwaitEnd() or Finish(): so this tells of failures and stops
  // alone.
  void Leave(v1::LeaveReason reason, const std::string& message) override;
  // The last step ended when all had done theirs.
  absl::Status WaitForOthers(Duration) override { return absl::OkStatus(); }
  // Until the chief has done with the values, at most for the step's limit: till then a worker that is lost,
  // the chief too, gets them from a peer. ABORTED when one was; Join() mends it.
  absl::Status AwaitEnd() override;
  // Waits for whoever is lost now as Join() does; that one does not come back is said, and is no failure any
  // more.
  absl::Status Finish() override;
  absl::StatusOr<v1::Counters> ServerCounters() override { return progress_.counters(); }
  absl::StatusOr<v1::DataPosition> UsedData() override { return v1::DataPosition(); }

 private:
  int64_t final_version() const { return options_.job.final_version() + progress_.version_offset(); }
  RingExchange(Options options, std::unique_ptr<ps::Optimizer> optimizer, std::vector<net::Slice> slices,
               std::unique_ptr<RingPeer> right);
  int64_t size() const { return store_.size(); }
  TimePoint StepDeadline() const;
  // Values, then all of each slot.
  std::shared_ptr<const AlignedBuffer> State();
  void TakeOver(const v1::RingState& source, const AlignedBuffer* state);
  // What this worker brings to a formation.
  v1::RingState Mine();
  void OfferDevice(v1::RingState& mine);
  // The devices' group, where that is agreed on. ABORTED when the formation is over.
  absl::Status JoinDevices(const Agreement& agreement);
  // Why the formation is over after the devices' sum has failed: somebody is lost, or it is this worker that
  // ends it, and takes no part in such sums any more.
  absl::Status AfterDeviceFault(const absl::Status& fault);
  absl::Status AwaitDeviceSum(Ring::Step& step);
  void TellHow(const Agreement& agreement);
  absl::StatusOr<Ring::Step> AwaitStep();
  absl::Status Apply(const Ring::Step& step);
  // All have the last values: waits until all know it.
  absl::Status Close();
  // The chief has done with them: likewise. Links may end from then on.
  absl::Status Part();
  // Ends the links, when the neighbours have heard all.
  void GoAway();

  const Options options_;
  const std::unique_ptr<ps::Optimizer> optimizer_;
  const std::vector<std::string> slot_names_;
  ps::VariableStore store_;
  std::array<absl::Span<const float>, 2> buffers_;
  Member member_;

  ps::Values values_;  // the store's current ones
  std::shared_ptr<Ring> ring_;
  int64_t formation_ = 0;                  // of ring_
  std::unique_ptr<DeviceSum> device_sum_;  // null: around the ring
  absl::Span<float> device_mean_;          // of the step
  bool renounced_ = false;                 // the device has failed
  std::string told_;                       // of who adds up
  std::string run_id_;
  bool has_values_ = false;
  bool trained_ = false;  // took part in a formation
  bool finished_ = false;
  bool end_wanted_ = false;                    // the chief's, for the next step
  std::optional<float> learning_rate_wanted_;  // likewise
  v1::Progress progress_;  // version and learning rate as of the last state that was taken over; counters now
  const v1::Work work_;
};

}  // namespace cairn::allreduce
