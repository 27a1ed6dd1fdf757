// A worker's side of training without servers. The workers average their gradients around a ring, and each
// applies the optimizer to the mean, so that all of them have the same values, to the bit.
//
//   RingExchange ──► ModelState    values, optimizer, version
//        │  │ └────► Member        the ring of this ring epoch ──► Ring
//        │  └──────► DeviceGroup   the workers' devices, if they sum gradients
//        └─────────► RingSteps     steps;  RingControl: the chief's calls
//
// After the last step, two rounds without a gradient follow. The first (RingSteps::Close) ends when all workers
// have made the last step, the second when the chief has saved, evaluated and reported the result.
//
// If every worker has a device that can sum with the others', the devices sum the gradients (device_group.h)
// and only the records go round the ring.
//
// In all other respects this is a synchronous job: the mean over examples, the version, the position in the
// data, norms and moving averages, checkpoints. The chief provides the first values. After a failure the
// worker with the highest version provides its values, so no step is computed twice while one worker is left.
// A round needs all workers: if a worker is lost, the others wait until it has returned.
//
// All calls come from one thread, except Interrupt (any thread) and Step::Announce (ring_steps.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/training/exchange.h"
#include "common/core/clock.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/system/thread_pool.h"
#include "kernels/peer_group.h"
#include "worker/allreduce/device_group.h"
#include "worker/allreduce/member.h"
#include "worker/allreduce/model_state.h"
#include "worker/allreduce/ring_control.h"
#include "worker/allreduce/ring_steps.h"

namespace cairn::allreduce {

class RingExchange final : public client::Membership {
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
  static absl::StatusOr<std::unique_ptr<RingExchange>> Create(const Options& options,
                                                              std::unique_ptr<RingPeer> right);

  // For the left neighbour's streams. The service that calls it must start before Join() and stop before this
  // object is destroyed.
  RingHost& host() { return member_; }
  RingSteps& steps() { return steps_; }
  RingControl& control() { return control_; }
  client::Exchange exchange() { return {.membership = *this, .steps = steps_, .control = control_}; }

  // Loads the first values, unless this process has trained.
  absl::Status Initialise(const v1::Job& job, client::StateSource& source) override;
  absl::Status WaitReady(const v1::Job&) override { return absl::OkStatus(); }
  // Forms the ring and takes the values of the worker with the highest version. UNAVAILABLE, naming the
  // workers that have not connected in time.
  absl::Status Join() override;
  client::StartingPoint start() const override { return start_; }
  // Does nothing: Join() forms the ring again.
  absl::Status Reconnect() override { return absl::OkStatus(); }
  bool CanReconnectAfter(const absl::Status& failure) const override { return absl::IsAborted(failure); }
  void Interrupt(absl::Status reason) override { member_.Interrupt(reason); }
  // Notifies the other workers that this worker failed or was stopped. Does nothing for
  // LEAVE_REASON_FINISHED: a worker that has finished its work leaves in AwaitEnd() or RingControl::Finish().
  void Leave(v1::LeaveReason reason, const std::string& message) override;
  // Waits until the chief has finished its work with the values, at most for the step's time limit. Until
  // then, a worker that is lost (the chief included) gets the values from a peer when it returns. ABORTED if
  // a worker is lost; Join() recovers.
  absl::Status AwaitEnd() override;

 private:
  RingExchange(const Options& options, std::unique_ptr<ModelState> state, std::unique_ptr<RingPeer> right);
  // The state with which this worker forms a ring.
  v1::RingState Mine();
  // Joins the group of devices and takes over the values of a ring that has been formed. ABORTED if the ring
  // epoch has ended.
  absl::Status Enter(const Agreement& agreement);
  // Waits until the chief has finished with the values. Links may end from then on.
  absl::Status Part();
  // Closes the links when the neighbours have received everything.
  void GoAway();
  // RingControl::Finish().
  absl::Status Finish();

  const int worker_;
  const Duration connect_timeout_;
  const std::unique_ptr<ModelState> state_;
  Member member_;
  DeviceGroup devices_;
  RingSteps steps_;
  RingControl control_;
  client::StartingPoint start_;
};

}  // namespace cairn::allreduce
