// A worker that computes some parts of a model for the head of its group: serves one batch after another,
// until the head says that training is over. It reads no data, and no server knows it.
//
//            hello                  begin, and all that comes ahead of it            done
//   alone ─────────► has a head ───────────────────────────────────────► computes ─────────► has a head
//     ▲                   │                                                  │
//     └── the link ends, or the head is silent for a lease ◄─────────────────┘
//
// Alone it waits for a head, the same or its next life, within the connect timeout. Serve() is called by
// cairn-worker's main thread; what the listener calls, from any.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/split.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/clock.h"
#include "common/core/fault_points.h"
#include "common/core/mutex.h"
#include "common/core/trace.h"
#include "common/net/direct/address.h"
#include "worker/allreduce/link.h"
#include "worker/nn/pipeline.h"
#include "worker/split/incoming.h"
#include "worker/split/mailbox.h"
#include "worker/split/ticker.h"

namespace cairn::split {

class Partner final : public allreduce::RingHost {
 public:
  struct Options {
    int worker = 0;               // our index
    int head = 0;                 // its
    std::string head_name;        // "worker/0 at host:2222"
    uint64_t cluster_hash = 0;    // 0: not compared
    uint64_t incarnation = 0;     // of this process
    net::DirectAddress direct{};  // where streams come beside gRPC
    v1::SplitPlan plan;
    Duration lease = std::chrono::seconds(10);  // a head that is silent for so long is lost
    Duration connect_timeout = std::chrono::seconds(300);
    // What is said while a head is waited for, and when it is lost. May be null.
    std::function<void(const std::string&)> say{};
    std::function<bool()> stop{};    // asked again and again; true: CANCELLED. May be null
    TraceRecorder* trace = nullptr;  // may be; is told of each step
    FaultPoints* faults =
        nullptr;  // may be; passes "announced" with each gradient, "computed" with each batch
  };
  // `pipeline`: all but `elsewhere`.
  static absl::StatusOr<std::unique_ptr<Partner>> Create(Options options, nn::Pipeline::Options pipeline);
  // The listener that calls this is gone.
  ~Partner() override;

  // OK when the head has said that training is over, and what it said when that went wrong; UNAVAILABLE when
  // no head came in time.
  absl::Status Serve() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status OnGreet(const v1::GreetRequest& request, v1::GreetResponse* response) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<allreduce::RingHandler> OnStream(std::shared_ptr<allreduce::RingStream> back) override;

 private:
  struct Inlet;
  // Host memory for a model's values or gradients, of which only our parts' pages are ever touched.
  struct Freed {
    void operator()(float* memory) const { std::free(memory); }
  };
  using Flat = std::unique_ptr<float[], Freed>;

  Partner(Options options, const nn::Pipeline::Options& pipeline);
  void FindNeeds();
  absl::StatusOr<v1::SplitBegin> AwaitBatch() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunBatch(const v1::SplitBegin& begin) ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(const v1::SplitPiece& piece, absl::Span<const float> values) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Span<float> ValuesOf(const Flat& flat, int variable) const;

  // The head's.
  absl::Status OnFrame(Inlet& inlet, const v1::RingHeader& header, net::Payload payload)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnHello(Inlet& inlet, const v1::RingHello& hello) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnBegin(const v1::SplitBegin& begin) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status OnPiece(const v1::SplitPiece& piece, net::Payload payload) ABSL_LOCKS_EXCLUDED(mutex_);
  // `link`: it is lost, if it is the head's.
  void Lose(const allreduce::RingStream* link, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  const Options options_;
  const nn::Model& model_;
  const nn::LossSpec loss_;
  std::vector<int> variables_, reads_;  // of the model: those of our parts, and inputs that these read
  bool last_ = false;                   // the model's end is ours
  Mailbox mailbox_;
  std::unique_ptr<nn::Pipeline> pipeline_;
  Flat values_, gradients_;  // in the model's flat order
  Incoming incoming_;
  // Of the batch; made when it begins.
  std::vector<AlignedBuffer> inputs_;  // [model input]
  AlignedBuffer targets_, weights_, outputs_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<allreduce::RingStream> link_ ABSL_GUARDED_BY(mutex_);  // null: alone
  TimePoint heard_ ABSL_GUARDED_BY(mutex_);                              // of the head
  TimePoint alone_since_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::SplitBegin> begun_ ABSL_GUARDED_BY(mutex_);  // until it is done
  int64_t ahead_ ABSL_GUARDED_BY(mutex_) = 0;  // elements that are still to come before it runs
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;                  // the last that was begun
  std::optional<absl::Status> over_ ABSL_GUARDED_BY(mutex_);  // training is
  TimePoint last_beat_;                                       // the beats' thread's
  std::unique_ptr<Ticker> beats_;
};

}  // namespace cairn::split
