// Speculative updates: computes the update of a synchronous round chunk by chunk while its gradients arrive,
// and sends the chunks to the workers while they still send, so that both directions of a link are busy.
//
// The prediction: the workers of the last update will also make the next one, from the current version. If
// the log decides otherwise, the chunks are discarded before any version contains them, and the update is
// made in the usual way. If the log agrees, the update is published; the result is the same to the bit. If a
// push brings settings of the groups of variables, the update is made with them.
//
//   Expect ─► { Begin, Arrived..., }* ─► Take ─► published      executing thread: Expect, Take, Drop
//                        │          └─► Drop                    streams' threads: Begin, Arrived, Abandon
//                        └ a chunk that all members have sent: computed and sent, by the thread pool
//                          if it has a free thread, so that the thread that received it goes on receiving
//
// New values and slots are written to other buffers than the current ones. For a backup, the mean of a chunk is
// written to a buffer and sent before the update of the chunk is computed.
//
// Thread-safe. Between Expect() and the next Take() or Drop(), nothing else may write to the store or change
// its learning rate.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/mutex.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/data_channel/stream/credit_limit.h"
#include "common/net/wire/update_chunk.h"
#include "common/system/thread_pool.h"
#include "common/trace/trace.h"
#include "optim/store/variable_store.h"
#include "ps/policy/policy.h"
#include "ps/table/gradient_view.h"
#include "ps/table/push_request.h"
#include "ps/table/round_flow_control.h"

namespace cairn::ps {

// Receives the mean gradient of a speculative update, for the shard's backup.
class MeanSink {
 public:
  virtual ~MeanSink() = default;
  // Whether the mean of the next update is wanted. For the executing thread.
  virtual bool WantsMeans() const = 0;
  // Elements [begin, end) of the mean of the update to `version`, if the log decides on this update; these
  // elements do not change any more. Called once for each element, by any thread. Must not block.
  virtual void OnMean(int64_t version, const std::shared_ptr<const AlignedBuffer>& mean, int64_t begin,
                      int64_t end) = 0;
};

class SpeculativeUpdate {
 public:
  // Credit for all of a gradient.
  static constexpr uint64_t kNoLimit = net::CreditLimit::kNoLimit;

  // `store` has an optimizer and constraints without norms. `thread_pool` may be null and outlives this
  // object. `trace` may be null; it records the computation of each chunk in the lane of received data.
  explicit SpeculativeUpdate(optim::VariableStore& store, ThreadPool* thread_pool = nullptr,
                             TraceRecorder* trace = nullptr);
  // Waits until no chunk is being computed.
  ~SpeculativeUpdate();
  // `means` must outlive the later updates. To be called at most once. Before, there is no sink.
  void SendMeansTo(MeanSink* means) { means_ = means; }

  // --- Streams' threads ---

  // A push has begun. Returns true if its elements are wanted; `send` may then be called until the
  // push is decided or abandoned. `allow`, unless null, is called now and perhaps later, for flow
  // control (round_flow_control.h).
  bool Begin(const Gradient& gradient, SendValues send, AllowBytes allow) ABSL_LOCKS_EXCLUDED(mutex_);
  // Elements [begin, end) of the push have arrived for the first time. `data` contains these elements and all
  // that arrived earlier.
  void Arrived(const PushKey& key, const GradientView& data, int64_t begin, int64_t end)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The push will never be complete.
  void Abandon(const PushKey& key) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The executing thread ---

  // Predicts that the next update is made by the workers of `last`, from the current version.
  void Expect(absl::Span<const Gradient> last, bool last_update) ABSL_LOCKS_EXCLUDED(mutex_);
  // If the prediction was right (the same contributors, with the same data, in the same order, and the store's
  // settings of the groups), publishes the speculative update. In that case all of its values have been sent to
  // the contributors, and its mean to the sink that wanted it. Otherwise discards it and returns nullopt.
  struct Taken {
    std::shared_ptr<const AlignedBuffer> mean{};  // null if no sink wanted it
  };
  std::optional<Taken> Take(absl::Span<const Gradient> contributors, absl::Span<const GradientView> data,
                            bool last_update) ABSL_LOCKS_EXCLUDED(mutex_);
  // Discards the speculative update, because the store is about to change in another way.
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr int64_t kChunk = net::kUpdateChunk;

  // The part of one worker's gradient that has arrived.
  struct Member {
    int worker = 0;
    uint64_t incarnation = 0;
    std::optional<Gradient> gradient{};
    SendValues send{};
    AllowBytes allow{};
    GradientView data{};
    std::vector<int64_t> missing{};  // [chunk]: number of elements that have not arrived
  };
  struct Round {
    int64_t base_version = 0;
    bool last_update = false;
    bool spoilt = false;                         // the prediction is wrong
    std::vector<optim::GroupSettings> groups{};  // of this update
    std::vector<Member> members{};
    RoundFlowControl flow_control;
    std::vector<size_t> waits_for{};        // [chunk]: number of members that have not sent all of it
    size_t made = 0;                        // number of chunks that have been computed and sent
    std::shared_ptr<AlignedBuffer> mean{};  // for means_; null if it is not wanted
  };

  // Credits to grant after the lock has been released.
  using Notifications = std::vector<std::pair<AllowBytes, uint64_t>>;
  static void Notify(const Notifications& notifications);

  Member* Find(const PushKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Records that more elements of a member have arrived. Returns the credits to grant.
  Notifications Advance(const Member& member, int64_t elements) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The prediction is wrong: ends flow control, so that no worker waits.
  Notifications Spoil() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Computes `chunks` and sends them, neighbouring chunks together. `worker`: the worker whose elements
  // completed these chunks, in this order. Counts down making_ at the end.
  void Make(absl::Span<const int64_t> chunks, int worker) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the round, after waiting until no thread works on it.
  std::optional<Round> Close() ABSL_LOCKS_EXCLUDED(mutex_);

  optim::VariableStore& store_;
  ThreadPool* const thread_pool_;
  TraceRecorder* const trace_;
  const int64_t num_chunks_;
  std::atomic<MeanSink*> means_{nullptr};

  Mutex mutex_;
  CondVar idle_;
  std::optional<Round> round_ ABSL_GUARDED_BY(mutex_);
  int making_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Make() that are running or queued
};

}  // namespace cairn::ps
