#include "common/net/data_channel/transport.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::net {

absl::StatusOr<Transport> ParseTransport(absl::string_view word) {
  if (word == "auto" || word == "shm") return Transport::kShm;
  if (word == "unix") return Transport::kUnix;
  if (word == "tcp") return Transport::kTcp;
  if (word == "grpc") return Transport::kGrpc;
  return absl::InvalidArgumentError(
      absl::StrCat("'", word, "' is none of ", absl::StrJoin(kTransportWords, ", ")));
}

std::string InWords(Transport transport) {
  switch (transport) {
    case Transport::kGrpc:
      return "gRPC";
    case Transport::kTcp:
      return "TCP";
    case Transport::kUnix:
      return "a Unix socket";
    case Transport::kShm:
      return "shared memory";
  }
  return "";
}

Transport NextBest(Transport transport) {
  return static_cast<Transport>(static_cast<int>(transport) - 1);
}

}  // namespace cairn::net
