// Shows the state of a server: the Inspector service, /metrics, /statusz and /healthz.
//
// Owned by PsTask, which calls Sample() several times a second; other calls come from any thread. Only reads,
// and decides nothing.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cairn/v1/inspector.pb.h"
#include "common/core/clock.h"
#include "common/core/history.h"
#include "common/core/mutex.h"
#include "common/monitor/http_server.h"
#include "common/net/security/gate.h"
#include "grpcpp/impl/service_type.h"
#include "ps/job/server.h"

namespace cairn::ps {

class Monitor {
 public:
  // `server` and `clock` outlive the monitor. `address` is for the page's title.
  Monitor(Server& server, const Clock& clock, std::string address);

  // Records a sample for the rates and a point of the charts, each when it is due.
  void Sample() ABSL_LOCKS_EXCLUDED(mutex_);

  // Server::Status() with the rates.
  v1::ServerStatus Status() const ABSL_LOCKS_EXCLUDED(mutex_);
  // The page at `path`, for monitor::HttpServer.
  monitor::HttpReply Page(const std::string& path) const;
  // The Inspector service, to be registered with gRPC. It refers to this object and to `gate`. If `gate` is
  // null, anyone may call the service.
  std::unique_ptr<grpc::Service> MakeService(const net::Gate* gate = nullptr);

 private:
  struct Totals {
    TimePoint at;
    int64_t received_bytes = 0, sent_bytes = 0, version = 0, examples = 0;
    struct OfTable {
      int64_t lookups = 0, updates = 0, inserts = 0;
    };
    std::vector<OfTable> tables{};
  };

  v1::ServerStatus WithRates(v1::ServerStatus status) const ABSL_LOCKS_EXCLUDED(mutex_);

  Server& server_;
  const Clock& clock_;
  const std::string address_;
  History history_;  // updates, examples and bytes per second, and the workers' mean loss

  mutable Mutex mutex_;
  std::deque<Totals> recent_ ABSL_GUARDED_BY(mutex_);  // samples of the last seconds
};

}  // namespace cairn::ps
