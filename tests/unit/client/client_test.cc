#include "client/client.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/in_process_cluster.h"
#include "tests/support/toy_job.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Client> ClientOf(test::InProcessCluster& cluster, const std::string& name = "client") {
  return Client::Connect(cluster.Stubs(name), {.task = name,
                                               .cluster_hash = 0,
                                               .connect_timeout = std::chrono::seconds(20),
                                               .say = nullptr,
                                               .stop = nullptr})
      .value();
}

TEST(Client, AClientReadsTheValuesThatAnotherHasWritten) {
  test::InProcessCluster cluster({.servers = 2});
  const auto one = ClientOf(cluster, "one"), another = ClientOf(cluster, "another");
  ASSERT_EQ(one->Create("a", Shape({}), {3.0f}), absl::OkStatus());
  ASSERT_EQ(one->Create("b", Shape({2, 2}), {1.0f, 2.0f, 3.0f, 4.0f}), absl::OkStatus());
  EXPECT_THAT(*another->Read("a"), ElementsAre(3));
  ASSERT_EQ(another->Write("b", {5.0f, 6.0f, 7.0f, 8.0f}), absl::OkStatus());
  EXPECT_THAT(*one->Read("b"), ElementsAre(5, 6, 7, 8));
  const auto listed = one->List().value();
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[1].name, "b");
  EXPECT_EQ(listed[1].shape, Shape({2, 2}));
  EXPECT_THAT(listed[0].servers, ElementsAre(0));
  EXPECT_THAT(listed[1].servers, ElementsAre(1)) << "on the server that stores the fewest elements";
}

TEST(Client, ErrorsNameTheVariableAndBothValues) {
  test::InProcessCluster cluster;
  const auto client = ClientOf(cluster);
  EXPECT_THAT(std::string(client->Read("a").status().message()), HasSubstr("they have none"));
  ASSERT_TRUE(client->Create("a", Shape({2}), {1.0f, 2.0f}).ok());
  EXPECT_EQ(client->Create("a", Shape({2}), {1.0f, 2.0f}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(client->Read("b").status().message()),
              HasSubstr("no variable 'b' on the servers; they have a"));
  EXPECT_THAT(std::string(client->Write("a", {1.0f}).message()), HasSubstr("takes 2 values, not 1"));
  EXPECT_EQ(client->Create("c", Shape({2}), {1.0f}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client->Read("c").status().code(), absl::StatusCode::kNotFound)
      << "a failed call leaves nothing behind";
}

int64_t BytesSent(test::InProcessCluster& cluster) {
  int64_t bytes = 0;
  for (int server = 0; server < cluster.num_servers(); ++server) {
    bytes += cluster.server(server)->metrics().sent_bytes.value();
  }
  return bytes;
}

TEST(VariableReader, UnchangedValuesAreNotSent) {
  test::InProcessCluster cluster({.servers = 2});
  const auto client = ClientOf(cluster), another = ClientOf(cluster, "another");
  ASSERT_EQ(client->Create("a", Shape({2}), {1.0f, 2.0f}), absl::OkStatus());
  const auto reader = client->OpenReader("a").value();
  EXPECT_THAT(reader->values(), ElementsAre(1, 2));
  EXPECT_EQ(reader->shape(), Shape({2}));
  const int64_t before = BytesSent(cluster);
  EXPECT_GT(before, 0);
  EXPECT_EQ(*reader->Refresh(), false);
  EXPECT_THAT(reader->values(), ElementsAre(1, 2));
  EXPECT_EQ(BytesSent(cluster), before);
  ASSERT_EQ(another->Write("a", {3.0f, 4.0f}), absl::OkStatus());
  EXPECT_EQ(*reader->Refresh(), true);
  EXPECT_THAT(reader->values(), ElementsAre(3, 4));
  EXPECT_EQ(*reader->Refresh(), false);
}

TEST(VariableReader, FollowsAVariableWhenItsServerStoresMore) {
  test::InProcessCluster cluster;
  const auto client = ClientOf(cluster);
  ASSERT_EQ(client->Create("b", Shape({}), {1.0f}), absl::OkStatus());
  const auto reader = client->OpenReader("b").value();
  ASSERT_EQ(client->Create("a", Shape({}), {5.0f}), absl::OkStatus());  // another layout
  ASSERT_EQ(client->Write("b", {2.0f}), absl::OkStatus());
  EXPECT_EQ(*reader->Refresh(), true);
  EXPECT_THAT(reader->values(), ElementsAre(2));
}

TEST(VariableReader, ReadsEverythingAgainAfterItsStreamBroke) {
  test::InProcessCluster cluster;
  const auto client = ClientOf(cluster);
  ASSERT_EQ(client->Create("a", Shape({}), {1.0f}), absl::OkStatus());
  const auto reader = client->OpenReader("a").value();
  cluster.link("client", 0).Break();
  auto refreshed = reader->Refresh();
  if (!refreshed.ok()) {  // the broken stream was noticed during the refresh
    EXPECT_EQ(refreshed.status().code(), absl::StatusCode::kUnavailable);
    refreshed = reader->Refresh();
  }
  ASSERT_TRUE(refreshed.ok()) << refreshed.status();
  EXPECT_EQ(*refreshed, true);
  EXPECT_THAT(reader->values(), ElementsAre(1));
}

TEST(VariableReader, NamesAVariableThatDoesNotExist) {
  test::InProcessCluster cluster;
  EXPECT_THAT(std::string(ClientOf(cluster)->OpenReader("a").status().message()),
              HasSubstr("they have none"));
}

// Several threads write and create variables at the same time: every acknowledged write is kept.
TEST(Client, NoWriteIsLostWhileVariablesAreAdded) {
  test::InProcessCluster cluster;
  ASSERT_TRUE(ClientOf(cluster)->Create("a", Shape({}), {0.0f}).ok());
  test::InParallel(2, [&](int which) {
    const auto client = ClientOf(cluster, test::TaskName(which));
    for (int i = 0; i < 40; ++i) {
      if (which == 0) {
        ASSERT_EQ(client->Create(absl::StrCat("v", i), Shape({}), {1.0f}), absl::OkStatus());
      } else {
        const float value = static_cast<float>(i);
        const absl::Status written = client->Write("a", {value});
        if (absl::IsAborted(written))
          continue;  // overtaken by new variables in all five attempts, as reported
        ASSERT_EQ(written, absl::OkStatus());
        const auto read = client->Read("a");
        if (absl::IsAborted(read.status())) continue;
        ASSERT_THAT(*read, ElementsAre(value));
      }
    }
  });
}

TEST(Client, ReadsAndWritesAModelDuringTraining) {
  test::InProcessCluster cluster({.servers = 2});
  test::ToyJob toy(1, {{"kernel", {4, 1}, {1, 2, 3, 4}}});
  toy.split_bytes = 8;
  test::ToyWorkers workers = test::StartAll(cluster, toy);
  ASSERT_TRUE(workers[0]->Push(std::vector<float>{1, 1, 1, 1}).ok());
  const auto client = ClientOf(cluster);
  EXPECT_THAT(*client->Read("kernel"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(client->List().value()[0].servers, ElementsAre(0, 1));
  ASSERT_EQ(client->Write("kernel", {10.0f, 20.0f, 30.0f, 40.0f}), absl::OkStatus());
  ASSERT_TRUE(workers[0]->Push(std::vector<float>{1, 1, 1, 1}).ok());
  EXPECT_THAT(workers[0]->Values(), ElementsAre(9, 19, 29, 39));
  EXPECT_EQ(client->Create("other", Shape({}), {1.0f}).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cairn::client
