#include "common/net/security/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/flags/flags.h"
#include "tests/support/source_dir.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Runs deploy/make-certs.sh in a directory of the test.
class TlsFilesTest : public testing::Test {
 protected:
  TlsFilesTest() : dir_(testing::TempDir() + "cairn_tls_XXXXXX") { EXPECT_NE(mkdtemp(dir_.data()), nullptr); }
  ~TlsFilesTest() override { std::filesystem::remove_all(dir_); }

  TlsFiles Make(const std::string& name, const std::string& hosts = "") {
    const std::string path = absl::StrCat(dir_, "/", name);
    const std::string command =
        absl::StrCat("timeout 60 ", InSource("deploy/make-certs.sh"), " ", path, " ", hosts, " >/dev/null");
    EXPECT_EQ(std::system(command.c_str()), 0);
    return {.cert = path + "/cert.pem", .key = path + "/key.pem", .ca = path + "/ca.pem"};
  }
  // The fault, without the directory's name.
  std::string FaultOf(const TlsFiles& files) const {
    const absl::Status status = CheckTlsFiles(files);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return WithoutDirectory(std::string(status.message()));
  }
  std::string WithoutDirectory(std::string text) const {
    for (size_t at = 0; (at = text.find(dir_ + "/")) != std::string::npos;) text.erase(at, dir_.size() + 1);
    return text;
  }
  std::string Write(const std::string& name, const std::string& contents) const {
    const std::string path = absl::StrCat(dir_, "/", name);
    std::ofstream(path) << contents;
    return path;
  }

  // Signs the same certificate again with another end of validity: old.pem.
  std::string EndYesterday(const std::string& cert, const std::string& ca_key) const {
    std::FILE* file = std::fopen(cert.c_str(), "r");
    X509* certificate = PEM_read_X509(file, nullptr, nullptr, nullptr);
    std::fclose(file);
    file = std::fopen(ca_key.c_str(), "r");
    EVP_PKEY* key = PEM_read_PrivateKey(file, nullptr, nullptr, nullptr);
    std::fclose(file);
    constexpr long kDay = 24 * 60 * 60;
    X509_gmtime_adj(X509_getm_notBefore(certificate), -2 * kDay);
    X509_gmtime_adj(X509_getm_notAfter(certificate), -kDay);
    EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
    const std::string path = dir_ + "/old.pem";
    file = std::fopen(path.c_str(), "w");
    EXPECT_EQ(PEM_write_X509(file, certificate), 1);
    std::fclose(file);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return path;
  }

  std::string dir_;
};

TEST_F(TlsFilesTest, CertificatesOfTheScriptAreAccepted) {
  EXPECT_EQ(CheckTlsFiles(Make("a")), absl::OkStatus());
}

TEST_F(TlsFilesTest, WithoutFlagsNoFileIsRead) {
  EXPECT_EQ(CheckTlsFiles({}), absl::OkStatus());
  EXPECT_EQ(CheckTlsNames({}, "ps0"), absl::OkStatus());
}

TEST_F(TlsFilesTest, AllThreeFlagsOrNoneMustBeGiven) {
  EXPECT_EQ(FaultOf({.cert = "c.pem"}),
            "--tls_key and --tls_ca are missing: TLS takes --tls_cert, --tls_key and --tls_ca together");
  EXPECT_EQ(FaultOf({.cert = "c.pem", .ca = "a.pem"}),
            "--tls_key is missing: TLS takes --tls_cert, --tls_key and --tls_ca together");
  EXPECT_THAT(FaultOf({.key = "k.pem"}), HasSubstr("--tls_cert and --tls_ca are missing"));
}

TEST_F(TlsFilesTest, AMissingFileIsNamed) {
  TlsFiles files = Make("a");
  files.key = dir_ + "/nowhere.pem";
  EXPECT_THAT(FaultOf(files), MatchesRegex("--tls_key: .*nowhere.pem.*[Nn]o such file.*"));
}

TEST_F(TlsFilesTest, AFileWithoutPemIsNamed) {
  TlsFiles files = Make("a");
  const std::string empty = Write("empty.pem", "");
  EXPECT_EQ(FaultOf({.cert = empty, .key = files.key, .ca = files.ca}),
            "--tls_cert: empty.pem: holds no certificate in PEM");
  EXPECT_EQ(FaultOf({.cert = files.cert, .key = files.cert, .ca = files.ca}),
            "--tls_key: a/cert.pem: holds no private key in PEM that needs no password");
  EXPECT_EQ(FaultOf({.cert = files.cert, .key = files.key, .ca = files.key}),
            "--tls_ca: a/key.pem: holds no certificate in PEM");
  const std::string torn =
      Write("torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  EXPECT_EQ(FaultOf({.cert = files.cert, .key = files.key, .ca = torn}),
            "--tls_ca: torn.pem: a certificate in it cannot be read");
}

TEST_F(TlsFilesTest, TheKeyMustBelongToTheCertificate) {
  const TlsFiles a = Make("a"), b = Make("b");
  EXPECT_EQ(FaultOf({.cert = a.cert, .key = b.key, .ca = a.ca}),
            "--tls_key: b/key.pem: is not the key of --tls_cert a/cert.pem");
}

TEST_F(TlsFilesTest, TheCertificateMustComeFromTheCa) {
  const TlsFiles a = Make("a"), b = Make("b");
  EXPECT_EQ(
      FaultOf({.cert = a.cert, .key = a.key, .ca = b.ca}),
      "--tls_cert: a/cert.pem: not accepted by --tls_ca b/ca.pem: unable to get local issuer certificate");
}

TEST_F(TlsFilesTest, AnExpiredCertificateIsRefused) {
  const TlsFiles a = Make("a");
  const std::string old = EndYesterday(a.cert, dir_ + "/a/ca.key");
  EXPECT_EQ(FaultOf({.cert = old, .key = a.key, .ca = a.ca}),
            "--tls_cert: old.pem: not accepted by --tls_ca a/ca.pem: certificate has expired");
}

TEST_F(TlsFilesTest, TheNamesAreThoseOfTheScript) {
  const TlsFiles files = Make("a", "ps0 10.0.0.1 fd00::1");
  for (const char* host : {"localhost", "127.0.0.1", "::1", "ps0", "10.0.0.1", "fd00::1"}) {
    EXPECT_EQ(CheckTlsNames(files, host), absl::OkStatus()) << host;
  }
  for (const char* host : {"ps1", "10.0.0.2", "fd00::2"}) {
    const absl::Status status = CheckTlsNames(files, host);
    EXPECT_EQ(
        WithoutDirectory(std::string(status.message())),
        absl::StrCat("--tls_cert: a/cert.pem: is for localhost, 127.0.0.1, ::1, ps0, 10.0.0.1, fd00::1, "
                     "not for ",
                     host));
  }
}

TEST_F(TlsFilesTest, TheScriptRenewsUnderTheSameCaAndKeepsKeysPrivate) {
  const TlsFiles before = Make("a");
  const std::string ca = Write("old_ca.pem", "");
  std::filesystem::copy_file(before.ca, ca, std::filesystem::copy_options::overwrite_existing);
  const TlsFiles after = Make("a", "ps0");
  EXPECT_EQ(CheckTlsFiles({.cert = after.cert, .key = after.key, .ca = ca}), absl::OkStatus());
  EXPECT_EQ(CheckTlsNames(after, "ps0"), absl::OkStatus());
  for (const char* key : {"ca.key", "key.pem"}) {
    EXPECT_EQ(std::filesystem::status(absl::StrCat(dir_, "/a/", key)).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
        << key;
  }
}

TEST(TlsFlags, EachTakesItsFile) {
  CLI::App app("A program", "cairn-test");
  TlsFiles files;
  AddTlsFlags(app, files);
  const char* const argv[] = {"cairn-test", "--tls_cert", "c.pem", "--tls-key=k.pem", "--tls_ca", "a.pem"};
  ASSERT_EQ(ParseCommandLine(app, std::size(argv), argv), std::nullopt);
  EXPECT_EQ(files.cert, "c.pem");
  EXPECT_EQ(files.key, "k.pem");
  EXPECT_EQ(files.ca, "a.pem");
}

TEST(TlsTroubleIn, ExplainsGrpcsErrors) {
  const auto said = [](const char* reason) {
    return TlsTroubleIn(absl::StrCat(
        "Handshake failed with fatal error SSL_ERROR_SSL: error:0A0000C7:SSL routines::", reason, "."));
  };
  EXPECT_EQ(said("peer did not return a certificate"), "a peer was refused: it shows no certificate");
  EXPECT_EQ(said("certificate verify failed"),
            "a peer was refused: its certificate is not from our --tls_ca, or not valid now");
  EXPECT_EQ(said("wrong version number"), "a peer was refused: it speaks plain text, without --tls_cert");
  EXPECT_EQ(said("tlsv1 alert unknown ca"), "a peer refuses our certificate");
  EXPECT_EQ(said("no shared cipher"), "a handshake failed");
  EXPECT_EQ(
      TlsTroubleIn("stat failed for filename ca.pem with error No such file or directory."),
      "certificates stay as they are: stat failed for filename ca.pem with error No such file or directory.");
  EXPECT_EQ(TlsTroubleIn("TCP_USER_TIMEOUT is available."), "");
}

TEST(ReachableFromOutside, LoopbackIsNot) {
  for (const char* address :
       {"127.0.0.1:2222", "127.0.1.1:2222", "[::1]:2222", "localhost:2222", "unix:/tmp/a"}) {
    EXPECT_FALSE(ReachableFromOutside(address)) << address;
  }
  for (const char* address :
       {"0.0.0.0:2222", "[::]:2222", "10.0.0.1:2222", "ps0:2222", "127.example.org:2222"}) {
    EXPECT_TRUE(ReachableFromOutside(address)) << address;
  }
}

}  // namespace
}  // namespace cairn::net
