// The gRPC side of the peers' process: see peers.h.
#pragma once

#include <cstddef>
#include <memory>

#include "grpcpp/generic/async_generic_service.h"

namespace cairn::bench {

// On a stream, a message of kEndBytes asks for an answer, one of kWantBytes (a uint64) for so many bytes;
// others are thrown away.
inline constexpr char kStreamMethod[] = "/cairn.bench/Stream";
inline constexpr size_t kEndBytes = 1;
inline constexpr size_t kWantBytes = 8;
// Unary, with the messages of session.proto: the payload is added up, or as long as the request's id says.
inline constexpr char kNaivePushMethod[] = "/cairn.bench/Push";
inline constexpr char kNaivePullMethod[] = "/cairn.bench/Pull";

std::unique_ptr<grpc::CallbackGenericService> MakePeerService();

}  // namespace cairn::bench
