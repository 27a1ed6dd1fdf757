#include "common/net/grpc/unreachable.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cairn::net {
namespace {

// A message in the form of gRPC 1.51.
absl::Status NotConnected(const std::string& last_error) {
  return absl::UnavailableError(absl::StrCat(
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: ", last_error));
}

TEST(WhyUnreachable, DistinguishesRefusedConnectionsAndTlsErrors) {
  EXPECT_EQ(WhyUnreachable(NotConnected("Failed to connect to remote host: Connection refused")),
            "connection refused");
  EXPECT_EQ(
      WhyUnreachable(NotConnected(
          "Tls handshake failed: SSL_ERROR_SSL: error:0A000086:SSL routines::certificate verify failed")),
      "TLS: its certificate is not from our --tls_ca, or not valid now");
  EXPECT_EQ(WhyUnreachable(NotConnected(
                "Tls handshake failed: SSL_ERROR_SSL: error:0A00010B:SSL routines::wrong version number")),
            "TLS: it speaks plain text, without --tls_cert");
  EXPECT_EQ(WhyUnreachable(NotConnected("Custom verification check failed with error: UNAUTHENTICATED: "
                                        "Hostname Verification Check failed.")),
            "TLS: its certificate is for other host names than this");
  EXPECT_EQ(
      WhyUnreachable(NotConnected("Socket closed")),
      "it closes the connection: it requires TLS, or refuses our TLS certificate, or has no file descriptor "
      "left; see its log");
  EXPECT_EQ(WhyUnreachable(NotConnected("socket: Too many open files")),
            "no file descriptor is left here: raise the limit of open files (ulimit -n)");
}

TEST(WhyUnreachable, ABrokenConnectionIsNotATlsError) {
  EXPECT_EQ(WhyUnreachable(absl::UnavailableError("Socket closed")), "Socket closed");
}

TEST(WhyUnreachable, AnAttemptThatGrpcDidNotPollKeepsThePreviousReason) {
  EXPECT_EQ(WhyUnreachable(NotConnected("tcp handshaker shutdown"), "connection refused"),
            "connection refused");
  EXPECT_EQ(WhyUnreachable(NotConnected("tcp handshaker shutdown")), "no answer in time");
}

}  // namespace
}  // namespace cairn::net
