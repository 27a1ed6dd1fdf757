// UCX (openucx.org) between this process and another, over shared memory or TCP: a peer of push_pull_bench.
// It only moves bytes: the other end keeps what was pushed, and pulls read it.
//
// UCX_* in the environment tunes it, except UCX_TLS. no_ucx_peer.cc replaces ucx_peer.cc in a build without
// UCX (Debian: libucx-dev).
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cairn::bench {

// The other process and one connection to it. One thread. Both ends spin while they wait; the other process
// sleeps 20 ms after the last message and then looks for a new one every 5 ms.
class UcxPeer {
 public:
  // `transport`: "shm" (posix, sysv and cma of UCX) or "tcp". `bytes`: of the other end's memory. Forks, so it
  // must be called before this process has a second thread or uses gRPC. UNIMPLEMENTED without UCX.
  static absl::StatusOr<std::unique_ptr<UcxPeer>> Start(const std::string& transport, size_t bytes);
  virtual ~UcxPeer() = default;

  // After the fork, before the first transfer.
  virtual absl::Status Connect() = 0;
  virtual pid_t pid() const = 0;

  // Tagged messages. `data` has `bytes` of Start() and is divided into `messages` of equal size, all of which
  // are in flight at once. Return when the other end has received all, or all have arrived here.
  virtual absl::Status Push(absl::Span<const char> data, size_t messages) = 0;
  virtual absl::Status Pull(absl::Span<char> data, size_t messages) = 0;
  // The same by remote memory access; Put() also waits until the other end knows that the data is complete.
  virtual absl::Status Put(absl::Span<const char> data, size_t messages) = 0;
  virtual absl::Status Get(absl::Span<char> data, size_t messages) = 0;
};

}  // namespace cairn::bench
