#include "common/net/security/tls.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/clock.h"
#include "common/core/files.h"
#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/net/grpc/grpc_log.h"
#include "grpc/support/log.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace cairn::net {
namespace {

constexpr auto kLogEvery = std::chrono::seconds(10);

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;

template <typename... Args>
absl::Status Fault(const char* flag, const std::string& path, const Args&... what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", path, ": ", what...));
}

absl::StatusOr<Bio> Open(const char* flag, const std::string& path) {
  const auto contents = ReadFile(path);  // its error names the path
  if (!contents.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", contents.status().message()));
  }
  Bio bio(BIO_new(BIO_s_mem()));
  CAIRN_CHECK(BIO_write(bio.get(), contents->data(), static_cast<int>(contents->size())) ==
              static_cast<int>(contents->size()));
  return bio;
}

// Reads the certificates of a PEM file, at least one.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(const char* flag, const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Bio bio, Open(flag, path));
  std::vector<Certificate> certificates;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(certificate);
  }
  const bool broken = ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (broken) return Fault(flag, path, "a certificate in it cannot be read");
  if (certificates.empty()) return Fault(flag, path, "holds no certificate in PEM");
  return certificates;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Bio bio, Open("tls_key", path));
  // Called for the password of an encrypted key; without this callback OpenSSL would prompt on the terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (key == nullptr) return Fault("tls_key", path, "holds no private key in PEM that needs no password");
  return key;
}

// Verifies the certificate as a peer does.
absl::Status CheckIssuer(const TlsFiles& files, const std::vector<Certificate>& chain,
                         const std::vector<Certificate>& authorities) {
  const Store store(X509_STORE_new());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  for (const Certificate& authority : authorities) X509_STORE_add_cert(store.get(), authority.get());
  STACK_OF(X509)* between = sk_X509_new_null();
  for (const Certificate& certificate : chain) sk_X509_push(between, certificate.get());
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), between);
  const bool valid = X509_verify_cert(context.get()) == 1;
  sk_X509_free(between);  // frees the stack, not the certificates
  ERR_clear_error();
  if (valid) return absl::OkStatus();
  return Fault("tls_cert", files.cert, "not accepted by --tls_ca ", files.ca, ": ",
               X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
}

std::string Text(const ASN1_STRING* string) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                     static_cast<size_t>(ASN1_STRING_length(string)));
}

// The DNS names and IP addresses in the certificate.
std::vector<std::string> NamesOf(X509* certificate) {
  const Names names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> texts;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) texts.push_back(Text(name->d.dNSName));
    if (name->type == GEN_IPADD) {
      const std::string bytes = Text(name->d.iPAddress);
      char text[INET6_ADDRSTRLEN] = "";
      inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
      texts.emplace_back(text);
    }
  }
  return texts;
}

std::string CommonNameOf(X509* certificate) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  return at < 0 ? "" : Text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
}

std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider> Watch(const TlsFiles& files) {
  return std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(files.key, files.cert, files.ca,
                                                                              kTlsRefreshSeconds);
}

// Settings that both libraries need before they start; harmless if repeated.
void PrepareLibraries() {
  // gRPC's threads use OpenSSL until the process ends, so OpenSSL must not clean up when main returns.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  // A handshake needs several polls of its socket within its time limit of a second. At gRPC's default of one
  // poll every 5 s, no handshake would complete after the first one has failed.
  setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "20", /*overwrite=*/0);
}

// A text in gRPC's log, and its meaning.
struct Trouble {
  const char* grpc_says;
  const char* meaning;
};
constexpr Trouble kTroubles[] = {
    {"peer did not return a certificate", "a peer was refused: it shows no certificate"},
    {"certificate verify failed",
     "a peer was refused: its certificate is not from our --tls_ca, or not valid now"},
    {"wrong version number", "a peer was refused: it speaks plain text, without --tls_cert"},
    {"http request", "a peer was refused: it speaks plain text"},
    {"alert", "a peer refuses our certificate"},
    {"Handshake failed with fatal error", "a handshake failed"},
    {"Handshaker factory creation failed",
     "the files of --tls_cert, --tls_key and --tls_ca do not fit together"},
};

}  // namespace

void AddTlsFlags(CLI::App& app, TlsFiles& files) {
  AddFlags(
      app, "Encryption (TLS)",
      {{"--tls_cert FILE", &files.cert,
        "Certificate of this task, PEM; --tls_cert, --tls_key and --tls_ca are given together"},
       {"--tls_key FILE", &files.key, "Private key of the certificate, PEM"},
       {"--tls_ca FILE", &files.ca, "Certificate of the CA that signed the certificates of all tasks, PEM"}});
}

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (!files.any()) return absl::OkStatus();
  PrepareLibraries();
  std::vector<std::string> missing;
  if (files.cert.empty()) missing.push_back("--tls_cert");
  if (files.key.empty()) missing.push_back("--tls_key");
  if (files.ca.empty()) missing.push_back("--tls_ca");
  if (!missing.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::StrJoin(missing, " and "), missing.size() == 1 ? " is" : " are",
                     " missing: TLS takes --tls_cert, --tls_key and --tls_ca together"));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto chain, ReadCertificates("tls_cert", files.cert));
  CAIRN_ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  CAIRN_ASSIGN_OR_RETURN(const auto authorities, ReadCertificates("tls_ca", files.ca));
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return Fault("tls_key", files.key, "is not the key of --tls_cert ", files.cert);
  }
  return CheckIssuer(files, chain, authorities);
}

absl::Status CheckTlsNames(const TlsFiles& files, const std::string& host) {
  if (!files.any()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const auto chain, ReadCertificates("tls_cert", files.cert));
  X509* const certificate = chain.front().get();
  if (X509_check_ip_asc(certificate, host.c_str(), 0) == 1 ||
      X509_check_host(certificate, host.data(), host.size(), 0, nullptr) == 1) {
    return absl::OkStatus();
  }
  const std::vector<std::string> names = NamesOf(certificate);
  return Fault("tls_cert", files.cert, "is for ", names.empty() ? "no host" : absl::StrJoin(names, ", "),
               ", not for ", host);
}

absl::StatusOr<CertificateNames> OwnNames(const TlsFiles& files) {
  CAIRN_ASSIGN_OR_RETURN(const auto chain, ReadCertificates("tls_cert", files.cert));
  X509* const certificate = chain.front().get();
  CertificateNames names = {.common_name = CommonNameOf(certificate)};
  const Names alternatives(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; alternatives != nullptr && i < sk_GENERAL_NAME_num(alternatives.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(alternatives.get(), i);
    if (name->type == GEN_DNS) names.dns.push_back(Text(name->d.dNSName));
    if (name->type == GEN_URI) names.uris.push_back(Text(name->d.uniformResourceIdentifier));
  }
  return names;
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files) {
  PrepareLibraries();
  if (!files.any()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(Watch(files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const TlsFiles& files) {
  PrepareLibraries();
  if (!files.any()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(std::make_shared<grpc::experimental::HostNameCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

std::string TlsTroubleIn(absl::string_view grpc_line) {
  for (const char* unreadable : {"Reading file ", "stat failed for "}) {
    if (absl::StartsWith(grpc_line, unreadable))
      return absl::StrCat("certificates stay as they are: ", grpc_line);
  }
  if (!absl::StartsWith(grpc_line, "Handshake")) return "";
  for (const Trouble& trouble : kTroubles) {
    if (absl::StrContains(grpc_line, trouble.grpc_says)) return trouble.meaning;
  }
  return "";
}

void LogRefusedPeers() {
  gpr_set_log_function([](gpr_log_func_args* line) {
    // gRPC takes a plain function, so the state cannot be stored elsewhere.
    static auto* const mutex = new Mutex;
    static auto* const said = new std::map<std::string, TimePoint>;
    const std::string trouble = TlsTroubleIn(line->message);
    LogGrpcLine(line->message);
    if (trouble.empty()) return;
    {
      MutexLock lock(*mutex);
      const TimePoint now = std::chrono::steady_clock::now();
      const auto [last, first] = said->emplace(trouble, now);
      if (!first && now - last->second < kLogEvery) return;
      last->second = now;
    }
    LogWarning("TLS: ", trouble);
  });
}

bool ReachableFromOutside(const std::string& listen_address) {
  if (absl::StartsWith(listen_address, "unix:")) return false;
  std::string host = listen_address.substr(0, listen_address.rfind(':'));
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  in_addr ipv4;
  const bool loopback_ipv4 =
      inet_pton(AF_INET, host.c_str(), &ipv4) == 1 && (ntohl(ipv4.s_addr) >> 24) == IN_LOOPBACKNET;
  return host != "localhost" && host != "::1" && !loopback_ipv4;
}

}  // namespace cairn::net
