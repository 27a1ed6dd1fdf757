// Gradients that are only received: the cost of a push without its update. The streams are those of the
// product; the other end stores the elements at their position, and answers when all have arrived.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/data_channel/data_endpoint.h"
#include "tests/bench/wire/forked_process.h"

namespace cairn::bench {

// The other end: a separate process, which ends with this object, or with this process.
class KeeperProcess {
 public:
  // Each connection has room for `elements`. As ForkedProcess::Start.
  static absl::StatusOr<std::unique_ptr<KeeperProcess>> Start(int64_t elements);

  pid_t pid() const { return process_->pid(); }
  const net::DataEndpoint& address() const { return address_; }

 private:
  KeeperProcess(std::unique_ptr<ForkedProcess> process, net::DataEndpoint address)
      : process_(std::move(process)), address_(std::move(address)) {}
  const std::unique_ptr<ForkedProcess> process_;
  const net::DataEndpoint address_;
};

// One stream to it. One thread.
class PushAlone {
 public:
  static absl::StatusOr<std::unique_ptr<PushAlone>> To(const KeeperProcess& keeper, net::Transport transport);
  virtual ~PushAlone() = default;
  // Returns when the other end has received all elements: at most as many as the keeper has room for.
  virtual absl::Status Push(absl::Span<const float> gradient) = 0;
};

}  // namespace cairn::bench
