// A small read-only HTTP server for monitoring: pages for people and for Prometheus.
//
// One thread of the lowest priority answers all requests. The number of connections, their time and their
// memory are limited, so that a slow or frequent client affects only itself. Plain text, without TLS: see
// --metrics_host. Created in main.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/net/server/port_wait.h"

struct MHD_Daemon;
namespace CLI {
class App;
}

namespace cairn::monitor {

// --metrics_port and --metrics_host.
struct MetricsFlags {
  std::optional<int> port;  // none: no server; 0: any free port
  std::string host = "0.0.0.0";
};
void AddMetricsFlags(CLI::App& app, MetricsFlags& flags);
// The port of the server; nullopt if there is no server, or if any free port will do.
std::optional<net::TaskPort> PortOf(const MetricsFlags& flags);

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  static constexpr unsigned kMaxConnections = 32, kMaxConnectionsOfOneAddress = 16;
  static constexpr unsigned kTimeoutSeconds = 10;

  // Called on the server's thread, one request at a time, with the path ("/metrics"). Only GET and HEAD
  // requests reach the handler.
  using Handler = std::function<HttpReply(const std::string& path)>;

  // `host`: an IP address to listen on. INVALID_ARGUMENT if `host` is no IP address, or if the port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                           Handler handler);
  // Closes all connections.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  const Handler& handler() const { return handler_; }

 private:
  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {}
  const Handler handler_;
  MHD_Daemon* daemon_ = nullptr;
  int port_ = 0;
};

}  // namespace cairn::monitor
