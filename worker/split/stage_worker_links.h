// A stage leader's streams to its stage workers: connects to them, sends heartbeats, and detects that a stage
// worker is lost.
//
//                  Reach                  the stream ends, a lease of silence, or Lose
//   not connected ───────► connected ─────────────────────────────────────────────────► lost ──► Reach
//         ▲                    │                                                          │
//         └─────── Drop ───────┴──────────────────────────────────────────────────────────┘
//
// Owned by the stage leader. Reach() and Drop() are called by the thread that runs batches, Beat() by one
// thread at a time, everything else by any thread. Callbacks run outside the lock, on the threads of the
// streams or of the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/split.pb.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/wire/frame.h"
#include "worker/peer/link.h"

namespace cairn::split {

class StageWorkerLinks {
 public:
  struct StageWorkerAddress {
    std::string name;  // "worker/1 at host:2222"
    int worker = 0;    // its task index
    std::unique_ptr<allreduce::RingPeer> peer;
  };
  struct Options {
    int worker = 0;             // this task's index
    uint64_t cluster_hash = 0;  // 0: not compared with the stage workers' hashes
    uint64_t incarnation = 0;   // identifies this process
    v1::SplitPlan plan;
    std::vector<StageWorkerAddress> stage_workers;  // [task in the group - 1]
    Duration lease = std::chrono::seconds(10);      // a stage worker that is silent for longer is lost
    // Called with a message about a lost stage worker, or about a wait for stage workers. May be null.
    std::function<void(const std::string&)> say{};
    // Polled during a wait. If it returns true, the wait ends with CANCELLED. May be null.
    std::function<bool()> stop{};
  };

  // The stream to one stage worker, from one Reach() to its loss.
  class Link final : public allreduce::RingHandler {
   public:
    Link(StageWorkerLinks& links, size_t stage_worker)
        : links_(links), stage_worker_(stage_worker), heard_(std::chrono::steady_clock::now()) {}
    absl::Status OnFrame(const v1::RingHeader& header, net::Payload payload) override {
      return links_.OnFrame(*this, header, payload);
    }
    void OnClosed(const absl::Status& status) override { links_.OnClosed(*this, status); }

    size_t stage_worker() const { return stage_worker_; }  // index in Options::stage_workers
    allreduce::RingStream& stream() { return *stream_; }

    // [variable] The values that the stage worker has. Used by the thread that runs batches.
    std::map<int, std::shared_ptr<float[]>> known;

   private:
    friend class StageWorkerLinks;
    StageWorkerLinks& links_;
    const size_t stage_worker_;
    // Guarded by links_.mutex_.
    TimePoint heard_;
    absl::Status lost_;                              // why the link was lost; OK until then
    std::unique_ptr<allreduce::RingStream> stream_;  // destroyed before the members that it uses
  };

  class Handler {
   public:
    virtual ~Handler() = default;
    // A frame other than a heartbeat, on a link that is not lost. An error ends the stream.
    virtual absl::Status OnFrame(Link& link, const v1::RingHeader& header, net::Payload payload) = 0;
    // Called once for each link that is lost. ABORTED if its stage worker may come back.
    virtual void OnLost(const Link& link, const absl::Status& why) = 0;
  };

  // `handler` must outlive the links.
  StageWorkerLinks(Options options, Handler& handler);
  ~StageWorkerLinks() { Drop(); }

  size_t size() const { return options_.stage_workers.size(); }
  const std::string& name(size_t stage_worker) const { return options_.stage_workers[stage_worker].name; }
  bool stopped() const { return options_.stop && options_.stop(); }
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  // Sets the step that messages name; 0: none.
  void SetStep(int64_t step) ABSL_LOCKS_EXCLUDED(mutex_);
  // " in step 7", for messages.
  std::string InStep() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Connects to every stage worker that is not connected. UNAVAILABLE, naming the stage worker that was not
  // reached by `deadline`; FAILED_PRECONDITION if one belongs to another cluster or divides another model.
  absl::Status Reach(TimePoint deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // The link to this stage worker, lost or not; null: not connected. The caller must release it soon: Reach()
  // and Drop() wait for that.
  std::shared_ptr<Link> Get(size_t stage_worker) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Why one of the links has been lost; OK if none has.
  absl::Status lost() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Treats the stage worker as lost.
  void Lose(Link& link, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends a heartbeat on every link, and loses those that have been silent for a lease.
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  // Sends the last frame to all connected stage workers. Waits until they have ended their streams, at most
  // for `limit`.
  void SendLast(const v1::SplitHeader& header, Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends all streams, also transfers that use this process's memory.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<std::shared_ptr<Link>> Open(size_t stage_worker, TimePoint deadline);
  absl::Status OnFrame(Link& link, const v1::RingHeader& header, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnClosed(Link& link, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<std::shared_ptr<Link>> links() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  Handler& handler_;
  TimePoint last_beat_;  // used by Beat()

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mutex_);  // [stage worker] null: not connected
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::split
