#include "common/monitor/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn::monitor {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// One connection; calls give up after 60 s.
class Connection {
 public:
  explicit Connection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit = {.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& text) { (void)!send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Everything that arrives until the server closes the connection.
  std::string Receive() {
    std::string all;
    std::array<char, 4096> part{};
    for (ssize_t count = 0; (count = recv(fd_, part.data(), part.size(), 0)) > 0;) {
      all.append(part.data(), static_cast<size_t>(count));
    }
    return all;
  }

 private:
  const int fd_;
  bool connected_ = false;
};

std::string Query(int port, const std::string& method, const std::string& path) {
  Connection connection(port);
  connection.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
  return connection.Receive();
}

std::unique_ptr<HttpServer> StartEcho() {
  auto server = HttpServer::Start("127.0.0.1", 0, [](const std::string& path) {
    return HttpReply{.status = path == "/none" ? 404 : 200, .body = absl::StrCat("path ", path)};
  });
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpServer, AnswersWithTheHandlersReply) {
  const auto server = StartEcho();
  const std::string reply = Query(server->port(), "GET", "/a");
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/plain; charset=utf-8"));
  EXPECT_THAT(reply, EndsWith("\r\n\r\npath /a"));
  EXPECT_THAT(Query(server->port(), "GET", "/none"), StartsWith("HTTP/1.1 404"));
}

TEST(HttpServer, HeadHasNoBodyAndOtherMethodsAreRefused) {
  const auto server = StartEcho();
  const std::string head = Query(server->port(), "HEAD", "/a");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
  EXPECT_THAT(Query(server->port(), "DELETE", "/a"), StartsWith("HTTP/1.1 405"));
}

TEST(HttpServer, SilentClientsDoNotBlockOthers) {
  const auto server = StartEcho();
  std::vector<std::unique_ptr<Connection>> silent;
  for (unsigned i = 0; i + 1 < HttpServer::kMaxConnectionsOfOneAddress; ++i) {
    silent.push_back(std::make_unique<Connection>(server->port()));
    silent.back()->Send("GET /slow");
  }
  EXPECT_THAT(Query(server->port(), "GET", "/a"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, ConnectionsBeyondTheLimitAreClosed) {
  const auto server = StartEcho();
  std::vector<std::unique_ptr<Connection>> silent;
  for (unsigned i = 0; i < HttpServer::kMaxConnectionsOfOneAddress; ++i) {
    silent.push_back(std::make_unique<Connection>(server->port()));
    silent.back()->Send("GET /slow");
  }
  EXPECT_EQ(Query(server->port(), "GET", "/a"), "") << "closed at once";
}

TEST(HttpServer, AHeaderWithoutEndIsRefused) {
  const auto server = StartEcho();
  Connection connection(server->port());
  connection.Send("GET /a HTTP/1.1\r\nX: ");
  connection.Send(std::string(1 << 20, 'x'));
  EXPECT_THAT(connection.Receive(), testing::AnyOf("", HasSubstr(" 431 "), HasSubstr(" 413 ")));
  EXPECT_THAT(Query(server->port(), "GET", "/a"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServer, APortThatIsTakenIsNamed) {
  const auto server = StartEcho();
  const auto second =
      HttpServer::Start("127.0.0.1", server->port(), [](const std::string&) { return HttpReply{}; });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(second.status().message(), HasSubstr(absl::StrCat("cannot listen on 127.0.0.1:", server->port(),
                                                                ": Address already in use")));
  const auto nowhere = HttpServer::Start("example", 0, [](const std::string&) { return HttpReply{}; });
  EXPECT_THAT(nowhere.status().message(), HasSubstr("--metrics_host: 'example' is not an IP address"));
}

}  // namespace
}  // namespace cairn::monitor
