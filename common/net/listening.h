// What a task does that others connect to: who it is in this life, its way for tasks of the same host, and
// what is to be said of a port that is open to others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/net/local/socket.h"
#include "common/net/tls.h"

namespace cairn::net {

// Differs between processes: the time of the start, in microseconds, above the process id.
uint64_t DrawIncarnation();

// For tasks of this host. None with TLS: what is encrypted stays so, and whoever may take part is told by
// certificates alone. None where the system has no such sockets, and then a line says that `clients`
// ("clients of this host") come by TCP.
LocalListener ListenForThisHost(const TlsFiles& tls, absl::string_view clients);

// Warnings of what makes the traffic readable to others (`what`: "the variables"), or the task, which its own
// know as `host`, unreachable to `clients` ("clients").
void WarnOfTls(const TlsFiles& tls, const std::string& listens_at, const std::string& host,
               absl::string_view what, absl::string_view clients);

}  // namespace cairn::net
