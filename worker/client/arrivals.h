// Which of a step's new values are here already, for a forward pass that begins before all of them are.
//
// The streams' threads write values where they belong, the caller's reads behind Await(). Nothing that it may
// have read is written again: what comes a second time, when a server's guess of a round was wrong or a push
// was repeated, is refused, and the values are no longer intact.
//
// Thread-safe; calls nobody under its lock but Await()'s `failure`, which may take no lock of who calls the
// others.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/placement.h"

namespace cairn::client {

class Arrivals {
 public:
  // A step begins: nothing is here. `layout` outlives it.
  void Begin(const net::Layout& layout) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The streams' threads ---

  // So many elements of the server's arena have come, as it says. False: they must not be written.
  bool Admit(int server, int64_t begin, int64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  // They have been written.
  void Add(int server, int64_t begin, int64_t count) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of this server nothing comes any more, for the time being.
  void Close(int server) ABSL_LOCKS_EXCLUDED(mutex_);
  // A server does not have the push: the others, whose update may wait for it, may send nothing until the
  // caller has repeated it.
  void Fail() ABSL_LOCKS_EXCLUDED(mutex_);

  // --- The caller's ---

  // Until `enough`, where it can: FrameStream::ReceiveUntil() of the server's stream.
  using Receive = absl::FunctionRef<void(int server, absl::FunctionRef<bool()> enough)>;
  // Waits until all values of the variable are here. False when they will not be, are not by `deadline`, when
  // a push has failed, or `failure` is not OK, which is asked whenever something has changed, and after
  // Wake(). Who calls Fail() or Wake() ends `receive` afterwards.
  bool Await(int variable, TimePoint deadline, absl::FunctionRef<absl::Status()> failure, Receive receive)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing has been refused in this step.
  bool intact() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Chunks begin and end with pages of so many elements (net::kPieceAhead, net::kMaxPayloadFloats,
  // DirectStream's pieces) or where the arena ends.
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
  // There is nothing more to wait for.
  bool IsOver(absl::FunctionRef<absl::Status()> failure) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool CutsNoPage(const Part& part, int64_t begin, int64_t count);

  mutable Mutex mutex_;
  CondVar changed_;
  const net::Layout* layout_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);  // [server]
  bool awaited_ ABSL_GUARDED_BY(mutex_) = false;     // somebody reads in this step
  bool intact_ ABSL_GUARDED_BY(mutex_) = true;
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  // What Await() waits for, and how many of them are not here; 0: it does not wait.
  Pages wanted_ ABSL_GUARDED_BY(mutex_);
  int64_t missing_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn::client
