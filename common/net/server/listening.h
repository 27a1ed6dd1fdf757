// The identity of a task's process, its listeners for data channels, and warnings about open ports.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/net/data_channel/listeners.h"
#include "common/net/data_channel/transport.h"
#include "common/net/security/access.h"
#include "common/net/security/tls.h"

namespace CLI {
class App;
}

namespace cairn::net {

// Returns a number that no other process has: the start time in microseconds, in the bits above the process
// id.
uint64_t DrawIncarnation();

// Listens for data channels as far as `transport` allows: on a Unix socket for tasks of this host, and for
// other tasks on TCP port `data_port` (0: any) of the host in `listens_at` ("0.0.0.0:2222"). Returns none
// with TLS, because data channels do not encrypt or check certificates. A socket that the system does not
// support, or whose port another process still uses after 5 s, is left out and named in a log line.
// `clients`: "clients", for messages.
DataListeners ListenForData(const TlsFiles& tls, Transport transport, const std::string& listens_at,
                            int data_port, absl::string_view clients);

// --data_port.
void AddDataPortFlag(CLI::App& app, int& port);

// Logs warnings if others on the network can read or change `what` ("the variables") or end the job, or if
// `clients` ("clients") will refuse this task's certificate because it does not name `host`, the task's host
// in the cluster.
void WarnOfAccess(const Access& access, const std::string& listens_at, const std::string& host,
                  absl::string_view what, absl::string_view clients);

}  // namespace cairn::net
