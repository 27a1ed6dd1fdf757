// Records the pushes of a step in the trace: for each server, when gradients were sent, how long its answer
// took, and when values arrived.
//
// Owned by StepPushes, whose lock guards every call.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/trace/trace.h"

namespace cairn::client {

class StepTrace {
 public:
  // When the first values of an answer arrived, in nanoseconds; 0: not yet. Set by one callback of a stream,
  // read by a later one. Null: not traced.
  using FirstValuesAt = std::shared_ptr<int64_t>;

  // `recorder` may be null; it must outlive this object.
  StepTrace(TraceRecorder* recorder, int servers)
      : recorder_(recorder), pushes_(static_cast<size_t>(servers)) {}

  struct Step {
    int worker = 0;
    uint64_t incarnation = 0;
    int64_t number = 0;
  };
  // Decides whether the step is traced.
  void BeginStep(const Step& step);
  FirstValuesAt NewFirstValues() const { return traced_ ? std::make_shared<int64_t>(0) : nullptr; }
  // Gradients are about to be sent to the server.
  void OnSending(int server);
  void AddBytes(int server, int64_t bytes) { push(server).bytes += bytes; }
  // All gradients have been sent to the server. To be called before the server can have received them all.
  void OnSent(int server);
  // The server has answered. `first_values`: when its values began to arrive.
  void OnAnswer(int server, const FirstValuesAt& first_values) const;

 private:
  struct Push {
    // When the first gradient and when all gradients were sent, in nanoseconds; 0: not yet.
    int64_t began = 0, sent = 0;
    int64_t bytes = 0;
  };
  Push& push(int server) { return pushes_[static_cast<size_t>(server)]; }

  TraceRecorder* const recorder_;
  bool traced_ = false;
  Step step_;
  std::vector<Push> pushes_;  // [server]
};

}  // namespace cairn::client
