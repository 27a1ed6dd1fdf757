// Mutual TLS for all traffic of a cluster: --tls_cert, --tls_key and --tls_ca, their check at start, and the
// credentials that servers and channels take from them. Without the flags everything is plain text.
//
// Every task, server or client, shows the certificate of --tls_cert and lets in only peers whose certificate
// comes from --tls_ca. A client also checks that the server's certificate names the host of its address in
// the cluster (subjectAltName: DNS names or IP addresses). What a client's names allow is decided by a Gate
// (access.h).
//
// The files are read again every kTlsRefreshSeconds, and what they hold then is for connections that are
// opened later. Replace them by renaming; between a new certificate and its new key handshakes fail, and are
// tried again.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/caller.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace CLI {
class App;
}

namespace cairn::net {

inline constexpr unsigned kTlsRefreshSeconds = 10;

// Paths of PEM files; all empty: plain text.
struct TlsFiles {
  std::string cert{};  // --tls_cert: ours, and what lies between it and the CA's
  std::string key{};   // --tls_key: of the first certificate there, not encrypted
  std::string ca{};    // --tls_ca: the CA's, one or several
  bool any() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

void AddTlsFlags(CLI::App& app, TlsFiles& files);

// INVALID_ARGUMENT naming the flags that are missing, or the file and what is wrong with it: it cannot be
// read, holds no PEM, the key is of another certificate, the certificate is not of the CA or not valid now.
// OK when no file is given.
absl::Status CheckTlsFiles(const TlsFiles& files);

// INVALID_ARGUMENT saying which names the certificate has when a client that knows us as `host` will refuse
// it. OK without files. Expects files that were checked.
absl::Status CheckTlsNames(const TlsFiles& files, const std::string& host);

// The names of the first certificate of --tls_cert. Expects files that were checked.
absl::StatusOr<CertificateNames> OwnNames(const TlsFiles& files);

// Of files that were checked; plain text without files. Each call starts a thread that reads the files again,
// for as long as something holds what it returned. To be called before any other use of gRPC: gRPC is told to
// look after channels that no call waits for every 20 ms, not every 5 s, without which a TLS handshake that
// is tried again never comes to its end.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files);
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const TlsFiles& files);

// In place of QuietGrpc() in a server: what goes wrong with TLS is a warning, each thing at most once in 10
// s, since only the server may know it. gRPC does not tell whose handshake it was.
void LogRefusedPeers();

// What such a line of gRPC's log means: "Handshake failed with fatal error SSL_ERROR_SSL: error:0A0000C7:SSL
// routines::peer did not return a certificate." -> "a peer was refused: it shows no certificate". Empty:
// another line.
std::string TlsTroubleIn(absl::string_view grpc_line);

// "0.0.0.0:2222", "[::]:2222", "10.0.0.1:2222": true. "127.0.0.1:2222", "[::1]:2222", "localhost:2222",
// "unix:/tmp/x": false.
bool ReachableFromOutside(const std::string& listen_address);

}  // namespace cairn::net
