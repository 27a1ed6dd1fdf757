#include "common/net/server/health.h"

#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"

namespace cairn::net {
namespace {

namespace health = ::grpc::health::v1;

}  // namespace

void OfferHealthAndReflection() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

void SetReady(grpc::Server& server, bool ready) {
  server.GetHealthCheckService()->SetServingStatus(kReadyService, ready);
}

void StopServing(grpc::Server& server) {
  server.GetHealthCheckService()->Shutdown();
}

absl::Status CheckHealth(const std::string& address, const std::string& service, Duration timeout,
                         const TlsFiles& tls) {
  const auto stub = health::Health::NewStub(MakeChannel(address, ChannelCredentialsOf(tls)));
  health::HealthCheckRequest request;
  request.set_service(service);
  health::HealthCheckResponse response;
  grpc::ClientContext context;
  SetDeadline(context, std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  const absl::Status status = FromGrpc(stub->Check(&context, request, &response));
  if (absl::IsNotFound(status)) {
    return absl::NotFoundError(absl::StrCat(address, " has no service '", service, "'"));
  }
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError(absl::StrCat(address, ": ", WhyUnreachable(status)));
  }
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(address, ": ", status.message()));
  if (response.status() != health::HealthCheckResponse::SERVING) {
    return absl::UnavailableError(
        absl::StrCat(address, ": ", health::HealthCheckResponse::ServingStatus_Name(response.status())));
  }
  return absl::OkStatus();
}

}  // namespace cairn::net
