#include "common/net/listening.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/strip.h"
#include "common/core/flags.h"
#include "common/core/log.h"

namespace cairn::net {

uint64_t DrawIncarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  return (micros << 12) | (static_cast<uint64_t>(getpid()) & 0xFFF);
}

DirectListeners ListenDirectly(const TlsFiles& tls, Transport transport, const std::string& listens_at,
                               int data_port, absl::string_view clients) {
  if (tls.any() || transport == Transport::kGrpc) return {};
  absl::StatusOr<LocalListener> local = LocalListener();
  if (transport > Transport::kTcp) local = ListenLocally();
  if (!local.ok()) LogInfo(clients, " of this host come by TCP: ", local.status().message());
  const absl::string_view host = absl::string_view(listens_at).substr(0, listens_at.rfind(':'));
  auto tcp = ListenByTcp(std::string(absl::StripSuffix(absl::StripPrefix(host, "["), "]")), data_port);
  if (!tcp.ok()) {
    LogWarning(clients, " of other hosts come by gRPC, which is slower: no port for gradients and values: ",
               tcp.status().message());
  }
  if (tcp.ok()) LogInfo("gradients and values of other hosts come to port ", tcp->port);
  return DirectListeners(local.ok() ? *std::move(local) : LocalListener(),
                         tcp.ok() ? *std::move(tcp) : TcpListener());
}

void AddDataPortFlag(CLI::App& app, int& port) {
  app.add_option(FlagNames("data_port"), port,
                 "TCP port for gradients and values of other hosts, beside gRPC's; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT");
}

void WarnOfTls(const TlsFiles& tls, const std::string& listens_at, const std::string& host,
               absl::string_view what, absl::string_view clients) {
  if (!tls.any() && ReachableFromOutside(listens_at)) {
    LogWarning("NOT ENCRYPTED: whoever reaches ", listens_at, " can read and change ", what,
               "; --tls_cert, --tls_key and --tls_ca prevent it");
  }
  if (const absl::Status status = CheckTlsNames(tls, host); !status.ok()) {
    LogWarning(status.message(), ": ", clients, " will refuse it");
  }
}

}  // namespace cairn::net
