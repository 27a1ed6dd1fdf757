#include "cli/commands/status_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cairn::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// Two servers and two workers in the middle of a synchronous job.
ClusterView AtWork() {
  ClusterView view = {
      .cluster = *net::ClusterSpec::FromJson(R"({"ps": ["a:1", "b:2"], "worker": ["c:3", "d:4"]})", "test"),
      .servers = {}};
  for (int index = 0; index < 2; ++index) {
    v1::ServerStatus server;
    server.set_task(absl::StrCat("ps/", index));
    server.set_state(v1::STATE_READY);
    server.set_cluster_hash(view.cluster.Hash());
    server.set_version(1500);
    server.set_sequences(index == 0);
    server.mutable_job()->set_run_id("run");
    server.mutable_job()->set_mode(v1::MODE_SYNC);
    server.mutable_job()->set_final_version(3000);
    server.mutable_rates()->set_updates_per_second(10);
    server.mutable_rates()->set_examples_per_second(2500);
    for (const char* task : {"worker/0", "worker/1"}) {
      v1::Member& member = *server.add_members();
      member.set_task(task);
      member.set_state(v1::MEMBER_STATE_LIVE);
      member.set_step(1500);
      member.mutable_report()->set_step_seconds(0.1);
      member.mutable_report()->set_examples_per_second(1250);
    }
    view.servers.emplace_back(server);
  }
  return view;
}

TEST(AsTable, AddsUpTheRowsOfATableOnAllServers) {
  ClusterView view = AtWork();
  for (int server = 0; server < 2; ++server) {
    v1::TableStatus& table = *view.servers[static_cast<size_t>(server)]->add_tables();
    table.set_name("users");
    table.set_rows(server == 0 ? 1000 : 3000);
    table.set_lookups(100);
    table.set_hits(50 + 40 * server);
    table.set_gradients(100);
    table.set_updates(80);
    table.set_lookups_per_second(250);
    v1::HotRow& row = *table.add_hottest();
    row.set_id(server);
    row.set_share(server == 0 ? 0.1 : 0.3);
  }
  EXPECT_THAT(AsTable(view), HasSubstr("TABLE  LARGEST    HOTTEST ROWS            ROWS"));
  EXPECT_THAT(AsTable(view), HasSubstr("users  ps/1 1.50  1 (15.0 %), 0 (5.0 %)  4,000"));
  EXPECT_THAT(AsTable(view), ::testing::ContainsRegex("500 +70 % +0 +80 % +0\n"));
  EXPECT_EQ(nlohmann::json::parse(AsJson(view))["servers"][1]["tables"][0]["rows"], 3000);
  EXPECT_THAT(AsTable(AtWork()), ::testing::Not(HasSubstr("TABLE")));
}

TEST(ClusterView, ARunningClusterHasNoTroubles) {
  EXPECT_TRUE(AtWork().well());
  EXPECT_THAT(AtWork().troubles(), IsEmpty());
}

TEST(ClusterView, TroublesAreNamed) {
  ClusterView view = AtWork();
  view.servers[0] = absl::UnavailableError("connection refused");
  view.servers[1]->mutable_members(1)->set_state(v1::MEMBER_STATE_LOST);
  view.servers[1]->mutable_members(1)->set_heard_seconds(12);
  EXPECT_THAT(view.troubles(),
              ElementsAre("ps/0 at a:1: connection refused", "worker/1 is lost: no heartbeat for 12.0 s"));
  view = AtWork();
  view.servers[0]->set_task("ps/1");
  view.servers[1]->set_cluster_hash(1);
  EXPECT_THAT(view.troubles(), ElementsAre("ps/0 at a:1 identifies itself as ps/1",
                                           "ps/1 at b:2 belongs to another cluster than this one"));
}

TEST(AsTable, HasALineForEachTask) {
  const std::string table = AsTable(AtWork());
  EXPECT_THAT(table, HasSubstr("step 1,500 of 3,000, 2,500 examples/s, about 2 min 30 s left"));
  EXPECT_THAT(table, MatchesRegex("(.|\n)*\nps/0 +a:1 +ready +1,500(.|\n)*"));
  EXPECT_THAT(table, MatchesRegex("(.|\n)*\nps/1 +b:2 +ready +1,500(.|\n)*"));
  EXPECT_THAT(table, MatchesRegex("(.|\n)*\nworker/1 +d:4 +live +1,500 +1,250 +100.0 ms(.|\n)*"));
}

TEST(AsTable, UnreachableServersAreListed) {
  ClusterView view = AtWork();
  view.servers[0] = view.servers[1] = absl::UnavailableError("connection refused");
  const std::string table = AsTable(view);
  EXPECT_THAT(table, MatchesRegex("(.|\n)*ps/1 +b:2 +unreachable(.|\n)*"));
  EXPECT_THAT(table, HasSubstr("! ps/0 at a:1: connection refused"));
}

TEST(AsJson, HasTheDataOfTheTable) {
  const auto json = nlohmann::json::parse(AsJson(AtWork()));
  EXPECT_EQ(json["well"], true);
  EXPECT_EQ(json["job"]["version"], 1500);
  EXPECT_EQ(json["job"]["mode"], "sync");
  EXPECT_EQ(json["servers"].size(), 2u);
  EXPECT_EQ(json["servers"][1]["address"], "b:2");
  EXPECT_EQ(json["workers"][1]["examples_per_second"], 1250);
  ClusterView view = AtWork();
  view.servers[0] = view.servers[1] = absl::UnavailableError("no answer");
  const auto none = nlohmann::json::parse(AsJson(view));
  EXPECT_EQ(none["job"], nullptr);
  EXPECT_EQ(none["servers"][0]["state"], "unreachable");
  EXPECT_EQ(none["well"], false);
}

}  // namespace
}  // namespace cairn::cli
