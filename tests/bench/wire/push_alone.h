// Gradients that are received and no more: what a push costs without its update. The streams are those of the
// product; the far end puts what comes where it belongs and answers when all has.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/direct/address.h"

namespace cairn::bench {

// The far end, a process of its own, which ends with this object, or with this process.
class KeeperProcess {
 public:
  // Each connection has room for `elements`. Forks, so before this process has a second thread.
  static absl::StatusOr<std::unique_ptr<KeeperProcess>> Start(int64_t elements);
  ~KeeperProcess();

  pid_t pid() const { return pid_; }
  const net::DirectAddress& address() const { return address_; }

 private:
  KeeperProcess() = default;
  pid_t pid_ = -1;
  int lifeline_ = -1;
  net::DirectAddress address_;
};

// One stream to it. One thread.
class PushAlone {
 public:
  static absl::StatusOr<std::unique_ptr<PushAlone>> To(const KeeperProcess& keeper, net::Transport transport);
  virtual ~PushAlone() = default;
  // Returns when the far end has all of it: at most as many elements as the keeper has room for.
  virtual absl::Status Push(absl::Span<const float> gradient) = 0;
};

}  // namespace cairn::bench
