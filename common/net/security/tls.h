// Mutual TLS for all traffic of a cluster: --tls_cert, --tls_key and --tls_ca, their check at start, and the
// credentials that servers and channels take from them. Without the flags everything is plain text.
//
// Every task, server or client, presents the certificate of --tls_cert and accepts only peers whose
// certificate comes from --tls_ca. A client also checks that the server's certificate names the host of its
// address in the cluster (subjectAltName: DNS names or IP addresses). A Gate (gate.h) decides what a client's
// names allow.
//
// The files are read again every kTlsRefreshSeconds; the new contents apply to connections that are opened
// later. Replace the files by renaming. Between the renames of a new certificate and its key, handshakes fail
// and are retried.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/security/caller.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace CLI {
class App;
}

namespace cairn::net {

inline constexpr unsigned kTlsRefreshSeconds = 10;

// Paths of PEM files; all empty: plain text.
struct TlsFiles {
  std::string cert{};  // --tls_cert: our certificate, and intermediate certificates
  std::string key{};   // --tls_key: key of the first certificate, not encrypted
  std::string ca{};    // --tls_ca: one or several CA certificates
  bool any() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

void AddTlsFlags(CLI::App& app, TlsFiles& files);

// INVALID_ARGUMENT naming the missing flags, or the file and its fault: it cannot be read or is not PEM, the
// key belongs to another certificate, or the certificate is not from the CA or is not valid now. OK if no
// file is given.
absl::Status CheckTlsFiles(const TlsFiles& files);

// INVALID_ARGUMENT listing the names in the certificate, if a client that knows this task as `host` would
// refuse it. OK without files. The files must have been checked.
absl::Status CheckTlsNames(const TlsFiles& files, const std::string& host);

// The names in the first certificate of --tls_cert. The files must have been checked.
absl::StatusOr<CertificateNames> OwnNames(const TlsFiles& files);

// The credentials of channels, for files that have been checked; plain text without files. Each call starts a
// thread that rereads the files for as long as the result is in use. Call it before any other use of gRPC:
// gRPC then polls channels on which no call waits every 20 ms instead of every 5 s, because otherwise a
// repeated TLS handshake never completes.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files);
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const TlsFiles& files);

// For servers, in place of QuietGrpc(): also logs TLS errors as warnings, each kind at most once in 10 s,
// because only the server may know the reason. gRPC does not report whose handshake failed.
void LogRefusedPeers();

// The meaning of a line of gRPC's log about a TLS error: "Handshake failed with fatal error SSL_ERROR_SSL:
// error:0A0000C7:SSL routines::peer did not return a certificate." -> "a peer was refused: it shows no
// certificate". Empty for other lines.
std::string TlsTroubleIn(absl::string_view grpc_line);

// Whether other hosts can connect to the address. "0.0.0.0:2222", "[::]:2222", "10.0.0.1:2222": true.
// "127.0.0.1:2222", "[::1]:2222", "localhost:2222", "unix:/tmp/x": false.
bool ReachableFromOutside(const std::string& listen_address);

}  // namespace cairn::net
