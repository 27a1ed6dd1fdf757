// How gradients and values travel: the words of --transport.
#pragma once

#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::net {

// From the last resort to the best: what cannot be had is replaced by the next lower.
enum class Transport {
  kGrpc,  // with all else
  kTcp,   // a TCP socket of its own
  kUnix,  // a Unix socket, within a host
  kShm,   // and shared memory there
};

// "auto" and "shm" are the same.
inline constexpr std::initializer_list<const char*> kTransportWords = {"auto", "shm", "unix", "tcp", "grpc"};
// INVALID_ARGUMENT, quoting it, when `word` is none of them.
absl::StatusOr<Transport> ParseTransport(absl::string_view word);
// "shared memory"
std::string InWords(Transport transport);
// Of any but kGrpc.
Transport NextBest(Transport transport);

}  // namespace cairn::net
