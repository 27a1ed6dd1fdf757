// Which transport to use to one server: the best one that has not failed. Knows where the server's data channel
// is, as far as the server has announced it, and which transports to it have failed.
//
// Owned by whoever opens streams to the server. Thread-safe; opens nothing itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "common/core/clock.h"
#include "common/core/mutex.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/data_channel/transport.h"

namespace cairn::net {

class TransportChoice {
 public:
  struct Options {
    Transport best = Transport::kShm;
    // A transport that has failed is tried again when the server announces its endpoint after this time.
    Duration try_again_after = std::chrono::minutes(1);
    // Called with the transport ("shared memory") when it is first known and when it changes. May be null;
    // called by any thread.
    std::function<void(const std::string&)> say{};
  };
  // How to reach the server.
  struct Way {
    Transport transport = Transport::kGrpc;
    DataEndpoint endpoint;
    uint64_t incarnation = 0;  // the incarnation of the server's process
  };
  explicit TransportChoice(Options options) : options_(std::move(options)) {}

  // gRPC until the server has announced its endpoint.
  Way way() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The server has announced its endpoint. `process`: the incarnation of its process.
  void Learn(const DataEndpoint& endpoint, uint64_t process) ABSL_LOCKS_EXCLUDED(mutex_);
  // No stream could be opened in this way: later streams use the next best transport.
  void Fail(const Way& way) ABSL_LOCKS_EXCLUDED(mutex_);
  // A stream uses this transport.
  void Say(Transport used) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static TimePoint Now() { return std::chrono::steady_clock::now(); }

  const Options options_;
  mutable Mutex mutex_;
  Way way_ ABSL_GUARDED_BY(mutex_);
  TimePoint failed_ ABSL_GUARDED_BY(mutex_);
  std::optional<Transport> said_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::net
