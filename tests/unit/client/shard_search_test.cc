#include "client/transport/shard_search.h"

#include <map>
#include <utility>

#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using Answer = absl::StatusOr<v1::ConnectResponse>;

// The answers of the two hosts of a shard. A backup that accepts Promote serves from the next epoch on.
struct Places {
  Answer home = absl::UnavailableError("Connection refused");
  Answer away = absl::NotFoundError("the shard is not here");
  absl::Status promotion = absl::AbortedError("no backup in sync");  // the answer to Promote
};

Answer Server(v1::State state, uint64_t incarnation = 7, int64_t epoch = 0) {
  v1::ConnectResponse response;
  response.set_state(state);
  response.set_incarnation(incarnation);
  response.set_epoch(epoch);
  return response;
}

ShardSearch::Options From(bool away = false) {
  return {.away = away, .has_backup = true};
}
ShardSearch::Options Knowing(uint64_t incarnation, bool away = false) {
  return {.away = away, .has_backup = true, .known = {.incarnation = incarnation}, .only_known = true};
}

absl::StatusOr<ShardSearch::Found> Search(Places places, const ShardSearch::Options& options) {
  ShardSearch search(options);
  while (const auto question = search.question()) {
    Answer& place = question->away ? places.away : places.home;
    if (question->call == ShardSearch::Question::Call::kConnect) {
      search.OnConnected(place);
      continue;
    }
    if (places.promotion.ok()) place = Server(v1::STATE_READY, place->incarnation(), place->epoch() + 1);
    search.OnPromoted(places.promotion);
  }
  return search.result();
}

TEST(ShardSearch, AServerAtHomeIsFoundWithoutAQueryToTheOtherHost) {
  ShardSearch search(From());
  search.OnConnected(Server(v1::STATE_READY));
  EXPECT_FALSE(search.question().has_value());
  EXPECT_FALSE(search.result()->away);
}

TEST(ShardSearch, TheBackupIsPromotedWhenTheServerIsGone) {
  const auto found =
      Search({.away = Server(v1::STATE_BACKUP), .promotion = absl::OkStatus()}, Knowing(7)).value();
  EXPECT_TRUE(found.away);
  EXPECT_EQ(found.known().epoch, 1);
}

TEST(ShardSearch, ABackupOnTheFirstHostIsPromotedIfTheOtherDoesNotServe) {
  for (const Answer& away : {Answer(Server(v1::STATE_EMPTY, 9)), Places().away, Places().home}) {
    const auto found =
        Search({.home = Server(v1::STATE_BACKUP), .away = away, .promotion = absl::OkStatus()}, From());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE(found->away);
    EXPECT_EQ(found->response.state(), v1::STATE_READY);
  }
}

// The server has dropped its shard: neither host serves it, and the job must be created again on the server.
TEST(ShardSearch, ABackupThatCannotBePromotedIsFoundButNotRemembered) {
  for (const bool away_first : {false, true}) {
    const auto found =
        Search({.home = Server(v1::STATE_BACKUP), .away = Server(v1::STATE_EMPTY, 9)}, From(away_first));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE(found->away);
    EXPECT_EQ(found->response.state(), v1::STATE_BACKUP);
    EXPECT_EQ(found->known().incarnation, 0u)
        << "otherwise its next answer would look like that of a lost server";
  }
}

TEST(ShardSearch, AShardIsLostOnlyWhenBothHostsHaveAnswered) {
  const Answer restarted = Server(v1::STATE_EMPTY, 9), silent = absl::DeadlineExceededError("no answer");
  EXPECT_EQ(Search({.home = restarted, .away = silent}, Knowing(7)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Search({.home = silent, .away = restarted}, Knowing(7)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Search({.home = restarted,
                    .away = Server(v1::STATE_BACKUP),
                    .promotion = absl::UnavailableError("its server is there")},
                   Knowing(7))
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Search({.home = restarted, .away = Places().away}, Knowing(7)).status().code(),
            absl::StatusCode::kAborted);
}

TEST(ShardSearch, AServerOfAnotherIncarnationIsNotTheKnownOne) {
  EXPECT_TRUE(Search({.home = Server(v1::STATE_READY, 8)}, From()).ok());
  EXPECT_EQ(Search({.home = Server(v1::STATE_READY, 8)}, Knowing(7)).status().code(),
            absl::StatusCode::kAborted);
}

TEST(ShardSearch, AServerThatWasReplacedIsNotTheKnownOne) {
  ShardSearch::Options options = Knowing(7, /*away=*/true);
  options.known.epoch = 1;
  const auto found = Search({.home = Server(v1::STATE_READY, 7, 0), .away = Places().home}, options);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kUnavailable);
}

// A server that was suspended while its backup was promoted, and resumed for the rollback.
TEST(ShardSearch, AServerThatWasReplacedIsTheKnownOneAgainInTheNextGeneration) {
  ShardSearch::Options options = Knowing(7, /*away=*/true);
  options.known.epoch = 1;
  Answer rolled_back = Server(v1::STATE_READY, 7, 0);
  rolled_back->mutable_job()->set_generation(1);
  const auto found = Search({.home = rolled_back,
                             .away = Server(v1::STATE_BACKUP),
                             .promotion = absl::UnavailableError("its server is there")},
                            options);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->away);
  EXPECT_FALSE(found->known().IsBefore(options.known)) << "else the client would not follow it";
}

// The known server was lost before it had a backup. The backup of its earlier generation has been promoted
// and has a backup itself.
TEST(ShardSearch, AShardIsLostIfBothHostsAreOfAnEarlierGeneration) {
  ShardSearch::Options options = Knowing(7);
  options.known.generation = 1;
  const Places places = {.home = Server(v1::STATE_READY, 7, 2),
                         .away = Server(v1::STATE_BACKUP),
                         .promotion = absl::UnavailableError("its server is there")};
  EXPECT_EQ(Search(places, options).status().code(), absl::StatusCode::kAborted);
  const auto found = Search(places, From());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->known().epoch, 2);
}

TEST(ShardSearch, APromotedBackupOfAnEarlierGenerationIsNotTheKnownServer) {
  ShardSearch::Options options = Knowing(7);
  options.known.generation = 1;
  EXPECT_EQ(
      Search({.away = Server(v1::STATE_BACKUP), .promotion = absl::OkStatus()}, options).status().code(),
      absl::StatusCode::kAborted);
}

TEST(ShardSearch, AServerThatRefusesTheClientEndsTheSearch) {
  const Places wrong = {.home = absl::FailedPreconditionError("another cluster"),
                        .away = Server(v1::STATE_READY)};
  EXPECT_EQ(Search(wrong, From()).status(), wrong.home.status());
}

}  // namespace
}  // namespace cairn::client
