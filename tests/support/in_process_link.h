// The link between a client and a server of the in-process cluster. RPCs are function calls; a stream is two
// queues and two threads.
//
// It behaves like a network: nothing runs inside the caller's locks, messages keep their order, payloads
// arrive in fragments cut anywhere, and messages under way are lost when a stream breaks. Faults are injected
// here, where they happen in production.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/transport/transport.h"
#include "common/core/mutex.h"
#include "ps/job/server.h"
#include "tests/support/in_process_pipe.h"

namespace cairn::test {

// The current server process of a host; null while none runs. Thread-safe.
class ServerSlot {
 public:
  std::shared_ptr<ps::Server> Get() const {
    MutexLock lock(mutex_);
    return server_;
  }
  // Returns the previous server.
  std::shared_ptr<ps::Server> Set(std::shared_ptr<ps::Server> server) {
    MutexLock lock(mutex_);
    server_.swap(server);
    return server;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<ps::Server> server_ ABSL_GUARDED_BY(mutex_);
};

// The fate of a frame that a tap has seen.
enum class Fate { kDeliver, kBreakBefore, kBreakAfter };
using ClientFrameTap = std::function<Fate(const v1::ClientHeader&)>;
using ServerFrameTap = std::function<Fate(const v1::ServerHeader&)>;
using CallTap = std::function<void(const std::string& message)>;

class Wire;

// The link from one client to one server, which can inject faults. Outlives its stubs; thread-safe.
class Link {
 public:
  // `slot` must outlive the link.
  Link(const ServerSlot& slot, std::string address, DelayOptions delay)
      : slot_(slot), address_(std::move(address)), delay_(delay) {}

  std::unique_ptr<client::ServerStub> NewStub();

  // --- Faults ---
  // Ends all open streams with UNAVAILABLE; new ones can be opened.
  void Break();
  // Calls and streams end with UNAVAILABLE "Connection refused".
  void SetReachable(bool reachable) { reachable_ = reachable; }
  // The next call whose request is a `message` ("JoinRequest") is executed and its answer lost: UNAVAILABLE.
  void DropReplyTo(const std::string& message);
  // Called before each call, by the thread of the call, which it may block. Null: no tap.
  void TapCalls(CallTap tap);
  // Called for every frame just before it is delivered, by the delivering thread. Null: all frames are
  // delivered. To be set before the streams are opened.
  void TapClientFrames(ClientFrameTap tap);
  void TapServerFrames(ServerFrameTap tap);

  // The number of streams opened so far.
  int streams_opened() const { return streams_opened_; }

 private:
  friend class InProcessControl;
  friend class InProcessStream;
  std::shared_ptr<ps::Server> Reach() const { return reachable_ ? slot_.Get() : nullptr; }
  void OnCall(const std::string& message);
  bool LosesReplyTo(const std::string& message);
  uint64_t Register(const std::shared_ptr<Wire>& wire);

  const ServerSlot& slot_;
  const std::string address_;
  const DelayOptions delay_;
  std::atomic<bool> reachable_{true};
  std::atomic<int> streams_opened_{0};

  Mutex mutex_;
  std::vector<std::weak_ptr<Wire>> wires_ ABSL_GUARDED_BY(mutex_);
  std::multiset<std::string> lost_replies_ ABSL_GUARDED_BY(mutex_);
  ClientFrameTap client_tap_ ABSL_GUARDED_BY(mutex_);
  ServerFrameTap server_tap_ ABSL_GUARDED_BY(mutex_);
  CallTap call_tap_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::test
