#include "common/monitor/http_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/flags/flag_table.h"
#include "common/net/cluster/host_port.h"

namespace cairn::monitor {
namespace {

constexpr size_t kConnectionBytes = 32 << 10;
constexpr int kLowestPriority = 19;

// Creates the listening socket here, to distinguish a port that is in use from other errors.
absl::StatusOr<int> Listen(const std::string& host, int port) {
  const addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                          .ai_family = AF_UNSPEC,
                          .ai_socktype = SOCK_STREAM,
                          .ai_protocol = 0,
                          .ai_addrlen = 0,
                          .ai_addr = nullptr,
                          .ai_canonname = nullptr,
                          .ai_next = nullptr};
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--metrics_host: '", host, "' is not an IP address"));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::InvalidArgumentError(absl::StrCat("--metrics_port: ", std::strerror(errno)));
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 16) != 0) {
    const int error = errno;
    close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics_port: cannot listen on ", host, ":", port, ": ", std::strerror(error)));
  }
  return fd;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

MHD_Result Answer(void* server, MHD_Connection* connection, const char* path, const char* method,
                  const char* /*version*/, const char* /*upload*/, size_t* upload_size, void** /*state*/) {
  // Under Linux, the priority applies only to this thread.
  static thread_local const bool stepped_back = setpriority(PRIO_PROCESS, 0, kLowestPriority) == 0;
  (void)stepped_back;
  HttpReply reply;
  if (std::strcmp(method, MHD_HTTP_METHOD_GET) != 0 && std::strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
    if (*upload_size != 0) {  // request bodies are not read
      *upload_size = 0;
      return MHD_YES;
    }
    reply = {.status = 405, .body = "only GET and HEAD are supported\n"};
  } else {
    reply = static_cast<HttpServer*>(server)->handler()(path);
  }
  MHD_Response* response =
      MHD_create_response_from_buffer(reply.body.size(), reply.body.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.content_type.c_str());
  MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  const MHD_Result result = MHD_queue_response(connection, static_cast<unsigned>(reply.status), response);
  MHD_destroy_response(response);
  return result;
}

}  // namespace

void AddMetricsFlags(CLI::App& app, MetricsFlags& flags) {
  AddFlags(app, "Monitoring",
           {{"--metrics_port PORT", &flags.port,
             "HTTP port that serves /metrics for Prometheus, /healthz and /statusz; 0: any free port [none]",
             WholeNumberBetween(0, 65535)},
            {"--metrics_host ADDRESS", &flags.host, "IP address that the HTTP port listens on"}});
}

std::optional<net::TaskPort> PortOf(const MetricsFlags& flags) {
  if (flags.port.value_or(0) == 0) return std::nullopt;
  return net::TaskPort{.address = net::HostPort{.host = flags.host, .port = *flags.port}.ToString(),
                       .flag = "--metrics_port"};
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                              Handler handler) {
  const auto fd = Listen(host, port);
  if (!fd.ok()) return fd.status();
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(handler)));
  server->port_ = PortOf(*fd);
  server->daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD, 0, nullptr, nullptr, &Answer, server.get(), MHD_OPTION_LISTEN_SOCKET,
      *fd, MHD_OPTION_CONNECTION_LIMIT, kMaxConnections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
      kMaxConnectionsOfOneAddress, MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutSeconds,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_END);
  if (server->daemon_ == nullptr) {
    close(*fd);
    return absl::InternalError("the HTTP server of --metrics_port does not start");
  }
  return server;
}

HttpServer::~HttpServer() {
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

}  // namespace cairn::monitor
