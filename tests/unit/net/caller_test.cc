#include "common/net/security/caller.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

struct Row {
  const char* name;
  CertificateNames names;
  const char* speaks_as;  // Caller::ToString(); "anyone": no name stands for a task
};

class CallerNames : public testing::TestWithParam<Row> {};

TEST_P(CallerNames, DetermineTheTasksOfACertificate) {
  EXPECT_EQ(Caller::Of(GetParam().names).ToString(), GetParam().speaks_as);
}

INSTANTIATE_TEST_SUITE_P(
    Table, CallerNames,
    testing::Values(Row{"Nothing", {}, "anyone"},
                    Row{"HostsAlone",
                        {.common_name = "Cairn task", .dns = {"localhost", "node-1.example.com"}},
                        "anyone"},
                    Row{"CnWithIndex", {.common_name = "worker/3"}, "worker/3"},
                    Row{"CnOfARole", {.common_name = "operator"}, "operator"},
                    Row{"CnOfEveryWorker", {.common_name = "worker/*"}, "worker"},
                    Row{"CnThatOnlyBeginsSo", {.common_name = "worker/3x"}, "anyone"},
                    Row{"CnWithANegativeIndex", {.common_name = "worker/-3"}, "anyone"},
                    Row{"CnWithALeadingPlus", {.common_name = "worker/+3"}, "anyone"},
                    Row{"CnWithoutIndexBehindTheSlash", {.common_name = "worker/"}, "anyone"},
                    Row{"CnWithAHugeIndex", {.common_name = "worker/99999999999999999999"}, "anyone"},
                    Row{"CnStarAlone", {.common_name = "*"}, "anyone"},
                    Row{"Dns", {.dns = {"localhost", "worker-3.cairn"}}, "worker/3"},
                    Row{"DnsOfARole", {.dns = {"chief.cairn"}}, "chief"},
                    Row{"DnsOfAll", {.dns = {"*.cairn"}}, "every task"},
                    Row{"DnsOfAHostInThatZone", {.dns = {"node-1.cairn"}}, "anyone"},
                    Row{"DnsBelowATask", {.dns = {"x.worker-3.cairn"}}, "anyone"},
                    Row{"DnsOfAnotherZone", {.dns = {"worker-3.cairn.example.com"}}, "anyone"},
                    Row{"Uri", {.uris = {"cairn:ps/0"}}, "ps/0"},
                    Row{"UriOfAll", {.uris = {"cairn:*"}}, "every task"},
                    Row{"UriThatIsMisspelt", {.uris = {"cairn:wroker/3"}}, "no task"},
                    Row{"UriOfSomethingElse", {.uris = {"spiffe://example.com/worker/3"}}, "anyone"},
                    Row{"Several",
                        {.common_name = "worker/0", .dns = {"operator.cairn"}, .uris = {"cairn:chief"}},
                        "worker/0, operator, chief"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Caller, ACertificateOfOneWorkerIsNotForOthers) {
  const Caller caller = Caller::Of({.common_name = "worker/3"});
  EXPECT_TRUE(caller.named());
  EXPECT_TRUE(caller.Is("worker/3"));
  EXPECT_TRUE(caller.IsExactly("worker/3"));
  EXPECT_FALSE(caller.Is("worker/30"));
  EXPECT_FALSE(caller.Is("ps/3"));
  EXPECT_FALSE(caller.Is("worker/abc"));
  EXPECT_TRUE(caller.HasRole("worker"));
  EXPECT_FALSE(caller.HasRole("operator"));
}

TEST(Caller, ACertificateOfARoleIsForEveryTaskOfItButNamesNoneExactly) {
  const Caller caller = Caller::Of({.common_name = "worker"});
  EXPECT_TRUE(caller.Is("worker/0"));
  EXPECT_TRUE(caller.Is("worker/41"));
  EXPECT_FALSE(caller.IsExactly("worker/0")) << "worker/0 may be the chief";
}

TEST(Caller, AMisspeltNameAllowsNothing) {
  const Caller caller = Caller::Of({.common_name = "Cairn task", .uris = {"cairn:wroker/3"}});
  EXPECT_TRUE(caller.named());
  EXPECT_FALSE(caller.Is("worker/3"));
}

TEST(Caller, AnyoneMaySpeakAsEveryTask) {
  EXPECT_FALSE(Caller::Anyone().named());
  EXPECT_TRUE(Caller::Anyone().IsExactly("chief/0"));
  EXPECT_TRUE(Caller::Anyone().HasRole("operator"));
}

}  // namespace
}  // namespace cairn::net
