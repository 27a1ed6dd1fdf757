// What a task does that others connect to: who it is in this life, its ways beside gRPC, and what is to be
// said of a port that is open to others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/net/access.h"
#include "common/net/direct/listeners.h"
#include "common/net/direct/transport.h"
#include "common/net/tls.h"

namespace CLI {
class App;
}

namespace cairn::net {

// Differs between processes: the time of the start, in microseconds, above the process id.
uint64_t DrawIncarnation();

// As far as `transport` goes: a socket for tasks of this host, and one at `listens_at`'s host
// ("0.0.0.0:2222") and `data_port` (0: any) for others. None with TLS: what is encrypted stays so, and
// certificates alone decide who may take part. A socket that the system lacks, or whose port another process
// still uses after 5 s, is left out, and a log line names it; `clients`: "clients".
DirectListeners ListenDirectly(const TlsFiles& tls, Transport transport, const std::string& listens_at,
                               int data_port, absl::string_view clients);

// --data_port.
void AddDataPortFlag(CLI::App& app, int& port);

// Warnings of what lets others read, change (`what`: "the variables") or end what this task does, or makes
// the task, which its own know as `host`, unreachable to `clients` ("clients").
void WarnOfAccess(const Access& access, const std::string& listens_at, const std::string& host,
                  absl::string_view what, absl::string_view clients);

}  // namespace cairn::net
