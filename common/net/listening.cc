#include "common/net/listening.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "common/core/log.h"

namespace cairn::net {

uint64_t DrawIncarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  return (micros << 12) | (static_cast<uint64_t>(getpid()) & 0xFFF);
}

LocalListener ListenForThisHost(const TlsFiles& tls, absl::string_view clients) {
  if (tls.any()) return {};
  auto listener = ListenLocally();
  if (listener.ok()) return *std::move(listener);
  LogInfo(clients, " come by TCP: ", listener.status().message());
  return {};
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
