// gRPC's standard ways to ask a server about itself: grpc.health.v1, which container platforms probe, and
// server reflection, with which grpcurl calls it without its protos.
//
// Services of the health check: "" is SERVING while the process takes calls, "ready" while it has variables.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/core/clock.h"
#include "common/net/tls.h"
#include "grpcpp/server.h"

namespace cairn::net {

inline constexpr char kReadyService[] = "ready";

// Every server built afterwards answers health checks and reflection. Once, before the first ServerBuilder.
void OfferHealthAndReflection();

// What `server`, built after OfferHealthAndReflection(), says of "ready" from now on. Cheap to repeat.
void SetReady(grpc::Server& server, bool ready);
// It says NOT_SERVING of everything from now on: whoever routes calls by health checks sends none any more.
void StopServing(grpc::Server& server);

// OK when the server at `address` says SERVING of `service`. UNAVAILABLE when it says otherwise or is not
// reached within `timeout`, with the reason as WhyUnreachable() words it; NOT_FOUND when it has no such
// service.
absl::Status CheckHealth(const std::string& address, const std::string& service, Duration timeout,
                         const TlsFiles& tls);

}  // namespace cairn::net
