#include "common/net/security/gate.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/log.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/seal.h"
#include "common/net/security/tls.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_context.h"

namespace cairn::net {
namespace {

constexpr auto kRefusalLogEvery = std::chrono::seconds(10);

bool NamesTasks(const TlsFiles& tls) {
  const auto names = OwnNames(tls);
  return names.ok() && Caller::Of(*names).named();
}

std::vector<std::string> Texts(const grpc::AuthContext& context, const char* property) {
  std::vector<std::string> texts;
  for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
    texts.emplace_back(value.data(), value.size());
  }
  return texts;
}

}  // namespace

Gate::Gate(std::string self, const Access& access)
    : self_(std::move(self)),
      token_(access.token),
      tls_(access.tls.any()),
      wants_names_(tls_ && NamesTasks(access.tls)) {}

absl::StatusOr<Caller> Gate::Admit(const grpc::ServerContextBase& context) const {
  absl::Status refused = CheckToken(context);
  if (refused.ok()) {
    auto caller = Identify(context);
    if (caller.ok()) return caller;
    refused = caller.status();
  }
  MutexLock lock(mutex_);
  const TimePoint now = std::chrono::steady_clock::now();
  if (said_ == TimePoint() || now - said_ >= kRefusalLogEvery) {
    said_ = now;
    LogWarning("a call from ", context.peer(), " was refused: ", refused.message());
  }
  return refused;
}

absl::Status Gate::CheckToken(const grpc::ServerContextBase& context) const {
  if (token_.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTokenMetadata);
  if (found == metadata.end()) {
    return absl::UnauthenticatedError(
        absl::StrCat(self_, " wants the job token, and none was given: give --job_token_file or ",
                     kTokenVariable, ", the same as for ", self_));
  }
  if (!SameSecret(token_, absl::string_view(found->second.data(), found->second.size()))) {
    return absl::UnauthenticatedError(absl::StrCat("the job token given is not the one of ", self_,
                                                   ": give --job_token_file or ", kTokenVariable,
                                                   ", the same as for ", self_));
  }
  return absl::OkStatus();
}

absl::StatusOr<Caller> Gate::Identify(const grpc::ServerContextBase& context) const {
  if (!tls_) return Caller::Anyone();
  const auto peer = context.auth_context();
  CertificateNames names = {.dns = Texts(*peer, GRPC_PEER_DNS_PROPERTY_NAME),
                            .uris = Texts(*peer, GRPC_PEER_URI_PROPERTY_NAME)};
  for (std::string& name : Texts(*peer, GRPC_X509_CN_PROPERTY_NAME)) names.common_name = std::move(name);
  Caller caller = Caller::Of(names);
  if (caller.named() || !wants_names_) return caller;
  return absl::PermissionDeniedError(
      absl::StrCat(self_, "'s certificate names its task, and the caller's names none (CN '",
                   names.common_name, "'): make one with deploy/make-certs.sh --task"));
}

}  // namespace cairn::net
