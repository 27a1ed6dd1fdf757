// Access control of a cluster: the credentials that a task presents to others and demands of them.
//
// There are two mechanisms, which may be combined (docs/security.md):
//   TLS          --tls_cert, --tls_key, --tls_ca: certificates of one CA, which may name tasks (caller.h)
//   a job token  --job_token_file or CAIRN_JOB_TOKEN: a secret that every task of the job has. Each call
//                carries it as metadata. TLS keeps it secret on the network; without TLS, anyone who can
//                listen there learns it.
//
// main() reads the flags into an Access and checks it once; all other code uses that Access.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/tls.h"

namespace CLI {
class App;
}

namespace cairn::net {

inline constexpr char kTokenVariable[] = "CAIRN_JOB_TOKEN";
inline constexpr size_t kMinTokenCharacters = 16;
inline constexpr size_t kMaxTokenCharacters = 1024;

struct Access {
  TlsFiles tls{};
  std::string token_file{};  // --job_token_file
  std::string token{};       // from the file or the environment; empty: none
  bool any() const { return tls.any() || !token.empty(); }
};

// Adds the flags of TLS, and --job_token_file.
void AddAccessFlags(CLI::App& app, Access& access);

// Checks the files and reads the token: from the file, else from `environment`, the value of CAIRN_JOB_TOKEN
// or null. INVALID_ARGUMENT naming the flag, or the file and what is wrong with it.
absl::Status CheckAccess(Access& access, const char* environment);

// The credentials that channels present. `access` has passed CheckAccess(). See ChannelCredentialsOf().
Credentials CredentialsOf(const Access& access);

}  // namespace cairn::net
