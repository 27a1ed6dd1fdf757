#include "common/net/server/listening.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/core/log.h"
#include "common/flags/flag_table.h"
#include "common/net/server/port_wait.h"

namespace cairn::net {
namespace {

// How long to wait for a predecessor that has closed its gRPC port and is still closing its streams.
constexpr auto kDataPortWait = std::chrono::seconds(5);

}  // namespace

uint64_t DrawIncarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  return (micros << 12) | (static_cast<uint64_t>(getpid()) & 0xFFF);
}

DataListeners ListenForData(const TlsFiles& tls, Transport transport, const std::string& listens_at,
                            int data_port, absl::string_view clients) {
  if (tls.any() || transport == Transport::kGrpc) return {};
  absl::StatusOr<LocalListener> local = LocalListener();
  if (transport > Transport::kTcp) local = ListenLocally();
  if (!local.ok()) LogInfo(clients, " on this host use TCP: ", local.status().message());
  const absl::string_view host = absl::string_view(listens_at).substr(0, listens_at.rfind(':'));
  if (data_port > 0) {
    AwaitPort(absl::StrCat(host, ":", data_port), /*reuse_port=*/false, kDataPortWait, [](auto time) {
      std::this_thread::sleep_for(time);
      return true;
    });
  }
  auto tcp = ListenByTcp(std::string(absl::StripSuffix(absl::StripPrefix(host, "["), "]")), data_port);
  if (!tcp.ok()) {
    LogWarning(clients, " on other hosts use gRPC, which is slower: no port for the data channel: ",
               tcp.status().message());
  }
  if (tcp.ok()) LogInfo("data channel for other hosts on port ", tcp->port);
  return DataListeners(local.ok() ? *std::move(local) : LocalListener(),
                       tcp.ok() ? *std::move(tcp) : TcpListener());
}

void AddDataPortFlag(CLI::App& app, int& port) {
  AddFlags(
      app, kNetworkGroup,
      {{"--data_port PORT", &port,
        "TCP port of the data channel for gradients and values from other hosts, in addition to the gRPC "
        "port; 0: any free port [0]",
        WholeNumberBetween(0, 65535), kDefaultInText}});
}

void WarnOfAccess(const Access& access, const std::string& listens_at, const std::string& host,
                  absl::string_view what, absl::string_view clients) {
  if (!access.any() && ReachableFromOutside(listens_at)) {
    LogWarning("OPEN AND NOT ENCRYPTED: anyone on the network who reaches ", listens_at,
               " can read and change ", what,
               " and end the job; a job token (--job_token_file) prevents that, and --tls_cert, --tls_key "
               "and --tls_ca also prevent eavesdropping");
  } else if (!access.tls.any() && ReachableFromOutside(listens_at)) {
    LogInfo("not encrypted: anyone who can intercept traffic to ", listens_at, " can read ", what,
            " and the job token; --tls_cert, --tls_key and --tls_ca prevent that");
  }
  if (access.tls.any() && !Caller::Of(OwnNames(access.tls).value_or(CertificateNames())).named()) {
    LogInfo(
        "this task's certificate names no task: every certificate of --tls_ca that names none may make every "
        "call; deploy/make-certs.sh --task makes certificates that do");
  }
  if (const absl::Status status = CheckTlsNames(access.tls, host); !status.ok()) {
    LogWarning(status.message(), ": ", clients, " will refuse it");
  }
}

}  // namespace cairn::net
