// gRPC's standard health service (grpc.health.v1), which container platforms probe, and server reflection,
// with which grpcurl calls a server without its protos.
//
// Services of the health check: "" is SERVING while the process takes calls, "ready" while it has variables.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/core/clock.h"
#include "common/net/security/tls.h"
#include "grpcpp/server.h"

namespace cairn::net {

inline constexpr char kReadyService[] = "ready";

// Every server built afterwards offers health checks and reflection. Call it once, before the first
// ServerBuilder.
void OfferHealthAndReflection();

// Sets the health of the service "ready" of `server`, which was built after OfferHealthAndReflection(). Cheap
// to repeat.
void SetReady(grpc::Server& server, bool ready);
// From now on the server reports NOT_SERVING for all services, so that load balancers send it no more calls.
void StopServing(grpc::Server& server);

// OK if the server at `address` reports SERVING for `service`. UNAVAILABLE if it reports another state or is
// not reached within `timeout`, with the reason from WhyUnreachable(); NOT_FOUND if it has no such service.
absl::Status CheckHealth(const std::string& address, const std::string& service, Duration timeout,
                         const TlsFiles& tls);

}  // namespace cairn::net
