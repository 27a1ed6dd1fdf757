#include "client/transport/transport.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::client {
namespace {

// The unary call of v1.ParameterServer that takes `request` and returns `response`.
const google::protobuf::MethodDescriptor& MethodOf(const google::protobuf::Descriptor* request,
                                                   const google::protobuf::Descriptor* response) {
  const google::protobuf::ServiceDescriptor* const service =
      v1::ConnectRequest::descriptor()->file()->FindServiceByName("ParameterServer");
  for (int i = 0; i < service->method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *service->method(i);
    if (method.input_type() == request && method.output_type() == response) return method;
  }
  CAIRN_CHECK(false && "the service has no call with this request and response");
  return *service->method(0);
}

}  // namespace

StopCheck Latched(StopCheck check) {
  if (!check) return nullptr;
  // Copies share the state.
  return [check = std::move(check), stopped = std::make_shared<bool>(false)] {
    return *stopped = *stopped || check();
  };
}

absl::Status ServerStub::Call(const google::protobuf::Message& request, google::protobuf::Message* response,
                              Timeout timeout, const StopCheck& stopped) {
  const auto& method = MethodOf(request.GetDescriptor(), response->GetDescriptor());
  const absl::Status status = parts_.control->Call(method, request, response, timeout, stopped);
  const auto* const connected = dynamic_cast<const v1::ConnectResponse*>(response);
  if (status.ok() && connected != nullptr) parts_.streams->Learn(*connected);
  return status;
}

}  // namespace cairn::client
