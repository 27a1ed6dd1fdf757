#include "common/net/security/access.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "common/net/security/local_token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

class AccessTest : public testing::Test {
 protected:
  AccessTest() : dir_(testing::TempDir() + "cairn_access_XXXXXX") {
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
  }
  ~AccessTest() override { std::filesystem::remove_all(dir_); }

  std::string File(const std::string& contents) const {
    std::ofstream(dir_ + "/token") << contents;
    return dir_ + "/token";
  }
  static std::string FaultOf(Access access, const char* environment = nullptr) {
    const absl::Status status = CheckAccess(access, environment);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  std::string dir_;
};

TEST_F(AccessTest, WithoutFlagsAndEnvironmentThereIsNoToken) {
  Access access;
  EXPECT_EQ(CheckAccess(access, nullptr), absl::OkStatus());
  EXPECT_EQ(CheckAccess(access, ""), absl::OkStatus());
  EXPECT_FALSE(access.any());
}

TEST_F(AccessTest, TheTokenIsTheContentOfTheFileWithoutTheNewline) {
  Access access = {.token_file = File(std::string(kToken) + "\n")};
  ASSERT_EQ(CheckAccess(access, nullptr), absl::OkStatus());
  EXPECT_EQ(access.token, kToken);
}

TEST_F(AccessTest, TheFileTakesPrecedenceOverTheEnvironment) {
  Access access = {.token_file = File(kToken)};
  ASSERT_EQ(CheckAccess(access, "fedcba9876543210"), absl::OkStatus());
  EXPECT_EQ(access.token, kToken);
  Access by_environment;
  ASSERT_EQ(CheckAccess(by_environment, "fedcba9876543210"), absl::OkStatus());
  EXPECT_EQ(by_environment.token, "fedcba9876543210");
}

TEST_F(AccessTest, AnInvalidTokenIsRefusedNamingItsSourceAndNotShown) {
  EXPECT_THAT(FaultOf({.token_file = dir_ + "/none"}), HasSubstr(dir_ + "/none"));
  EXPECT_THAT(FaultOf({.token_file = File("")}), HasSubstr("16 to 1024 characters, this one 0"));
  EXPECT_THAT(FaultOf({.token_file = File("012345678 abcdef")}),
              HasSubstr("printable ASCII characters without spaces"));
  EXPECT_THAT(FaultOf({.token_file = File("0123456789\nabcdef")}), HasSubstr("one line"));
  EXPECT_THAT(FaultOf({.token_file = File("0123456789abcd\xc3\xa9")}), HasSubstr("ASCII"));
  const std::string fault = FaultOf({}, "secret");
  EXPECT_THAT(fault, HasSubstr("CAIRN_JOB_TOKEN: a job token has"));
  EXPECT_THAT(fault, testing::Not(HasSubstr("secret")));
}

// No job uses ports above 65535.
TEST(LocalToken, IsFoundOnlyOnThisMachineDuringTheJobAndByTheUser) {
  constexpr int kPort = 70001;
  Access access;
  {
    const auto published = LocalToken::Publish(kPort, kToken);
    ASSERT_TRUE(published.ok()) << published.status();
    TakeLocalToken({.host = "127.0.0.1", .port = kPort}, access);
    EXPECT_EQ(access.token, kToken);
    Access elsewhere, other_port;
    TakeLocalToken({.host = "ps0", .port = kPort}, elsewhere);
    TakeLocalToken({.host = "127.0.0.1", .port = kPort + 1}, other_port);
    EXPECT_EQ(elsewhere.token, "");
    EXPECT_EQ(other_port.token, "");
  }
  Access after;
  TakeLocalToken({.host = "127.0.0.1", .port = kPort}, after);
  EXPECT_EQ(after.token, "");
}

TEST(LocalToken, AnotherJobsFileAtThePortIsReplaced) {
  constexpr int kPort = 70002;
  const auto killed = LocalToken::Publish(kPort, "the one of before");
  const auto published = LocalToken::Publish(kPort, kToken);
  ASSERT_TRUE(published.ok()) << published.status();
  Access access;
  TakeLocalToken({.host = "localhost", .port = kPort}, access);
  EXPECT_EQ(access.token, kToken);
}

TEST(LocalToken, DoesNotReplaceAnExistingToken) {
  constexpr int kPort = 70003;
  const auto published = LocalToken::Publish(kPort, kToken);
  Access access = {.token = "fedcba9876543210"};
  TakeLocalToken({.host = "localhost", .port = kPort}, access);
  EXPECT_EQ(access.token, "fedcba9876543210");
}

}  // namespace
}  // namespace cairn::net
