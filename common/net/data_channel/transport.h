// The transports of gradients and values: the values of --transport.
#pragma once

#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::net {

// Ordered from the last resort to the best transport. A transport that is not available is replaced by the
// one before it.
enum class Transport {
  kGrpc,  // the gRPC stream that carries everything else
  kTcp,   // a separate TCP socket
  kUnix,  // a Unix socket, within a host
  kShm,   // a Unix socket and shared memory, within a host
};

// "auto" and "shm" mean the same.
inline constexpr std::initializer_list<const char*> kTransportWords = {"auto", "shm", "unix", "tcp", "grpc"};
// INVALID_ARGUMENT, quoting `word`, if it is none of these words.
absl::StatusOr<Transport> ParseTransport(absl::string_view word);
// The transport in words, for messages: "shared memory".
std::string InWords(Transport transport);
// The next transport to try when `transport`, which must not be kGrpc, is not available.
Transport NextBest(Transport transport);

}  // namespace cairn::net
