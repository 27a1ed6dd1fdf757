// Tracks which new values of a step have arrived, so that a forward pass can begin before the last ones
// arrive.
//
// The threads of the streams write values to their final place; the caller reads them after Await(). Values
// that the caller may have read are never overwritten. A second arrival (after a wrong prediction of a round
// by the server, or after a repeated push) is refused, and intact() is then false.
//
// Thread-safe. The only callback called under the lock is Await()'s `failure`; it must not take a lock that a
// caller of the other methods holds.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/cluster/placement.h"

namespace cairn::client {

class Arrivals {
 public:
  // Starts a step: nothing has arrived. `layout` must outlive the step.
  void Begin(const net::Layout& layout) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- For the threads of the streams ---

  // To be called before `count` values at `begin` of the server's arena are written. Returns false if these
  // values must be discarded. A range outside the arena is accepted: the code that writes the values checks
  // it.
  bool Admit(int server, int64_t begin, int64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  // To be called when the values have been written.
  void Add(int server, int64_t begin, int64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  // The server sends no more values for the time being.
  void Close(int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // A server does not have the push. The update on the other servers may depend on this push, so they may
  // send nothing until the caller has repeated it.
  void Fail() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- For the caller ---

  // Receives from the server's stream until `enough` returns true, if the stream allows it: see
  // FrameStream::ReceiveUntil().
  using Receive = absl::FunctionRef<void(int server, absl::FunctionRef<bool()> enough)>;
  // Waits until all values of the variable have arrived. Returns false if they will not arrive, if they have
  // not arrived by `deadline`, if a push has failed, or if `failure` returns an error. `failure` is queried
  // at every change and after Wake(). A caller of Fail() or Wake() must end `receive` afterwards.
  bool Await(int variable, TimePoint deadline, absl::FunctionRef<absl::Status()> failure, Receive receive)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether no values have been refused in this step.
  bool intact() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Chunks begin and end at multiples of this many elements (net::kUpdateChunk, net::kMaxPayloadFloats,
  // fragments of DataStream) or at the end of the arena.
  static constexpr int64_t kPage = 1024;
  struct Part {
    int64_t size = 0;          // elements
    std::vector<bool> here{};  // [page]
    bool closed = false;
  };
  struct Pages {
    int server = 0;
    int64_t first = 0, end = 0;
  };
  static Pages PagesOf(int server, int64_t begin, int64_t count);
  static bool Has(const Part& part, int64_t begin, int64_t count);
  // Whether there is nothing left to wait for.
  bool IsOver(absl::FunctionRef<absl::Status()> failure) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool CutsNoPage(const Part& part, int64_t begin, int64_t count);

  mutable Mutex mutex_;
  CondVar changed_;
  const net::Layout* layout_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);  // [server]
  bool awaited_ ABSL_GUARDED_BY(mutex_) = false;     // Await() has been called in this step
  bool intact_ ABSL_GUARDED_BY(mutex_) = true;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  // The pages that Await() waits for, and how many of them are missing; 0: it does not wait.
  Pages wanted_ ABSL_GUARDED_BY(mutex_);
  int64_t missing_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::client
