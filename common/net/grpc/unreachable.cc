#include "common/net/grpc/unreachable.h"

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace cairn::net {
namespace {

struct Row {
  const char* grpc_says;
  const char* meaning;
};

// The first row whose text occurs in gRPC's message is used. Such a message reads "failed to connect to all
// addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused".
constexpr Row kMeanings[] = {
    {"Connection refused", "connection refused"},
    {"DNS resolution failed", "its name cannot be resolved"},
    {"Domain name not found", "its name cannot be resolved"},
    {"Hostname Verification Check failed", "TLS: its certificate is for other host names than this"},
    {"certificate verify failed", "TLS: its certificate is not from our --tls_ca, or not valid now"},
    {"Failed parsing HTTP/2", "it speaks HTTP/1 or another protocol, and is not cairn-ps"},
    {"wrong version number", "TLS: it speaks plain text, without --tls_cert"},
    {"handshake failed", "TLS: no agreement in the handshake"},
    {"handshaker shutdown", "no answer to a connection"},
    {"No route to host", "no route to the host"},
    {"Too many open files", "no file descriptor is left here: raise the limit of open files (ulimit -n)"},
};

// A server that requires a certificate, or that has no descriptor for another connection, closes the
// connection, and its log states the reason.
constexpr char kHungUp[] =
    "it closes the connection: it requires TLS, or refuses our TLS certificate, or has no file descriptor "
    "left; see its log";

}  // namespace

std::string WhyUnreachable(const absl::Status& status, const std::string& before) {
  const absl::string_view message = status.message();
  // gRPC gave up an attempt to connect without polling it, which reveals nothing new.
  const bool not_tried = absl::StrContains(message, "tcp handshaker shutdown");
  if (not_tried && !before.empty()) return before;
  if (not_tried || absl::IsDeadlineExceeded(status)) return "no answer in time";
  for (const Row& row : kMeanings) {
    if (absl::StrContains(message, row.grpc_says)) return row.meaning;
  }
  const bool connecting = absl::StrContains(message, "failed to connect");
  for (const char* hung_up : {"Socket closed", "Connection reset by peer", "Broken pipe"}) {
    if (connecting && absl::StrContains(message, hung_up)) return kHungUp;
  }
  return std::string(message);
}

}  // namespace cairn::net
