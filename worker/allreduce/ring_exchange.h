// A worker's side of training without servers. The workers average their gradients around a ring, and each
// applies the optimizer to the mean, so that all of them have the same values, to the bit.
//
//   BeginStep ─► Ring::Begin         FinishStep ─► Ring::Await ─► optimizer ─► version + 1
//   Announce  ─► Ring::Announce                        └─ ABORTED: a worker is lost; Reconnect, Join
//
// After the last step, two rounds without a gradient follow. The first ends when all workers have made the
// last step, the second when the chief has saved, evaluated and reported the result.
//
// If every worker has a device that can sum with the others', the devices sum the gradients (device_sum.h)
// and only the records go round the ring. A fault of that sum is handled like a lost worker: the ring epoch
// ends, and the step is repeated. If no worker is lost, the worker whose device failed stops offering its
// device, and all use the ring from then on.
//
// In all other respects this is a synchronous job: the mean over examples, the version, the position in the
// data, norms and moving averages, checkpoints. The chief provides the first values. After a failure the
// worker with the highest version provides its values, so no step is computed twice while one worker is left.
// A round needs all workers: if a worker is lost, the others wait until it has returned.
//
// All calls come from one thread, except Announce and Interrupt (any thread). In steps on devices, Announce
// must also come from that thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "client/exchange.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/system/thread_pool.h"
#include "kernels/peer_group.h"
#include "optim/store/variable_store.h"
#include "worker/allreduce/device_sum.h"
#include "worker/allreduce/member.h"

namespace cairn::allreduce {

class RingExchange final : public client::Exchange {
 public:
  struct Options {
    int worker = 0;                  // position among the workers, the chief first
    std::string task;                // "worker/0"
    std::vector<std::string> names;  // [worker] "worker/1 at host:2222"
    uint64_t cluster_hash = 0;
    uint64_t incarnation = 0;           // this process' incarnation
    net::DataEndpoint data_endpoint{};  // Member::Options
    v1::Job job;                        // its run_id is not used
    std::vector<net::VariableInfo> variables;
    Duration connect_timeout = std::chrono::seconds(300);  // the limit whenever the ring is formed
    Duration step_timeout = std::chrono::seconds(600);     // the limit for one step of all workers
    std::function<void(const std::string&)> say{};         // may be null
    ThreadPool* thread_pool = nullptr;  // may be null; helps with updates; must outlive this object
    // May be null. Sums gradients with other workers' devices. Must outlive this object.
    kernels::PeerDevice* device = nullptr;
    // How long to wait for the links to report a lost worker after the devices' sum has failed.
    Duration links_notice = std::chrono::seconds(2);
  };
  // INVALID_ARGUMENT for an unknown optimizer. Null `right`: there is only one worker.
  static absl::StatusOr<std::unique_ptr<RingExchange>> Create(Options options,
                                                              std::unique_ptr<RingPeer> right);

  // For the left neighbour's streams. The service that calls it must start before Join() and stop before this
  // object is destroyed.
  RingHost& host() { return member_; }

  // Loads the first values, unless this process has trained.
  absl::Status Initialise(const v1::Job& job, client::StateSource& source) override;
  absl::Status WaitReady(const v1::Job&) override { return absl::OkStatus(); }
  // Forms the ring and takes the values of the worker with the highest version. UNAVAILABLE, naming the
  // workers that have not connected in time.
  absl::Status Join() override;
  // Does nothing: Join() forms the ring again.
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
  // Waits for the mean and applies the optimizer. INVALID_ARGUMENT, on all workers, naming the variable whose
  // mean is not finite.
  absl::StatusOr<client::StepResult> FinishStep() override;
  absl::Status AwaitWork() override { return absl::OkStatus(); }
  absl::Status Pull() override { return absl::OkStatus(); }

  absl::StatusOr<float> LearningRate() override;
  absl::Status SetLearningRate(float rate) override;
  absl::Status EndTraining() override;
  // Writes the values of this worker only. For use after training.
  absl::Status Write(absl::Span<const float> values) override;
  absl::StatusOr<client::TakenSnapshot> TakeSnapshot() override;
  absl::Status CheckSnapshotMayBeRetried(const absl::Status& failure) override { return failure; }

  void Interrupt(absl::Status reason) override { member_.Interrupt(reason); }

  // Notifies the other workers that this worker failed or was stopped. Does nothing for
  // LEAVE_REASON_FINISHED: a worker that has finished its work leaves in AwaitEnd() or Finish().
  void Leave(v1::LeaveReason reason, const std::string& message) override;
  // Returns at once, since the last step ended only when all workers had made it.
  absl::Status WaitForOthers(Duration) override { return absl::OkStatus(); }
  // Waits until the chief has finished its work with the values, at most for the step's time limit. Until
  // then, a worker that is lost (the chief included) gets the values from a peer when it returns. ABORTED if
  // a worker is lost; Join() recovers.
  absl::Status AwaitEnd() override;
  // Like AwaitEnd(), but if a worker is lost, waits until it has joined again, at most for the step's time
  // limit. If it does not return, this is only logged.
  absl::Status Finish() override;
  absl::StatusOr<v1::Counters> ServerCounters() override { return progress_.counters(); }
  absl::StatusOr<v1::DataPosition> UsedData() override { return v1::DataPosition(); }

 private:
  int64_t final_version() const { return options_.job.final_version() + progress_.version_offset(); }
  RingExchange(Options options, std::unique_ptr<optim::Optimizer> optimizer, std::vector<net::Slice> slices,
               std::unique_ptr<RingPeer> right);
  int64_t size() const { return store_.size(); }
  TimePoint StepDeadline() const;
  // The values, then all elements of each slot.
  std::shared_ptr<const AlignedBuffer> State();
  void TakeOver(const v1::RingState& source, const AlignedBuffer* state);
  // The state with which this worker forms a ring.
  v1::RingState Mine();
  void OfferDevice(v1::RingState& mine);
  // Joins the group of devices, if the agreement has one. ABORTED if the ring epoch has ended.
  absl::Status JoinDevices(const Agreement& agreement);
  // After a failed sum of the devices: returns why the ring epoch is over. Either a worker is lost, or this
  // worker ends the ring epoch and stops offering its device.
  absl::Status AfterDeviceFault(const absl::Status& fault);
  absl::Status AwaitDeviceSum(Ring::Step& step);
  void LogTransport(const Agreement& agreement);
  absl::StatusOr<Ring::Step> AwaitStep();
  absl::Status Apply(const Ring::Step& step);
  // Waits until all workers have the last values.
  absl::Status Close();
  // Waits until the chief has finished with the values. Links may end from then on.
  absl::Status Part();
  // Closes the links when the neighbours have received everything.
  void GoAway();

  const Options options_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  const std::vector<std::string> slot_names_;
  optim::VariableStore store_;
  std::array<absl::Span<const float>, 2> buffers_;
  Member member_;

  optim::Values values_;  // the store's current values
  std::shared_ptr<Ring> ring_;
  int64_t ring_epoch_ = 0;                 // the ring epoch of ring_
  std::unique_ptr<DeviceSum> device_sum_;  // null: sums around the ring
  absl::Span<float> device_mean_;          // the current step's mean
  bool renounced_ = false;                 // the device has failed, and is not offered any more
  std::string told_;                       // the last log message of LogTransport()
  std::string run_id_;
  bool has_values_ = false;
  bool trained_ = false;  // this worker has joined a ring
  bool finished_ = false;
  // The chief's requests for the next step.
  bool end_wanted_ = false;
  std::optional<float> learning_rate_wanted_;
  // The version and the learning rate in it are those of the state that this worker took over last, in
  // Initialise() or Join(). The counters in it are current.
  v1::Progress progress_;
  const v1::Work work_;
};

}  // namespace cairn::allreduce
