#include "ps/job/batch_means.h"

#include <chrono>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/job/server_calls.h"

namespace cairn::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The answers outlive the server.
struct Answers {
  std::deque<std::optional<absl::StatusOr<v1::BatchMeanResponse>>> answers_;
};

// A job of two workers, of which both have joined.
class BatchMeansTest : private Answers, public ServerTest {
 protected:
  using Answer = std::optional<absl::StatusOr<v1::BatchMeanResponse>>;

  BatchMeansTest() {
    MakeReady();
    for (const int worker : {0, 1}) incarnations_.push_back(Join(worker).value().incarnation());
  }

  v1::BatchMeanRequest Request(int worker, int64_t index, const std::vector<double>& values,
                               int64_t examples = 1) {
    v1::BatchMeanRequest request;
    request.set_layout(Describe().layout());
    request.set_worker(worker);
    request.set_incarnation(incarnations_[static_cast<size_t>(worker)]);
    request.set_examples(examples);
    request.set_index(index);
    request.set_first(index);
    request.set_wait_seconds(1);
    if (!values.empty()) request.add_parts()->mutable_values()->Add(values.begin(), values.end());
    return request;
  }
  // The server may answer when it is destroyed.
  Answer& Send(const v1::BatchMeanRequest& request) {
    Answer& answer = answers_.emplace_back();
    server_.BatchMean(request,
                      [&answer](absl::StatusOr<v1::BatchMeanResponse> got) { answer = std::move(got); });
    return answer;
  }
  absl::Status Refusal(const v1::BatchMeanRequest& request) {
    const Answer& answer = Send(request);
    return answer.has_value() ? answer->status() : absl::OkStatus();
  }
  static std::vector<double> MeanOf(const Answer& answer) {
    EXPECT_TRUE(answer.has_value() && answer->ok() && (*answer)->holds());
    return {(*answer)->mean().begin(), (*answer)->mean().end()};
  }

  std::vector<uint64_t> incarnations_;
};

TEST_F(BatchMeansTest, TheMeanIsWeightedByExamples) {
  const Answer& first = Send(Request(0, 0, {8, 0}, 1));
  EXPECT_FALSE(first.has_value()) << "worker/1 is missing";
  const Answer& second = Send(Request(1, 0, {4, 1}, 3));
  EXPECT_THAT(MeanOf(first), ElementsAre(5, 0.75));
  EXPECT_EQ(MeanOf(second), MeanOf(first));
}

TEST_F(BatchMeansTest, AnAnswerAfterTheWaitNamesWhatIsMissing) {
  const Answer& answer = Send(Request(0, 0, {8}));
  clock_.Advance(std::chrono::milliseconds(1100));
  server_.Tick();
  ASSERT_TRUE(answer.has_value() && answer->ok());
  EXPECT_FALSE((*answer)->holds());
  EXPECT_EQ((*answer)->missing(), "worker/1");
  EXPECT_EQ((*answer)->known(), 1);
}

TEST_F(BatchMeansTest, ARestartedWorkerGetsTheSameMeans) {
  Send(Request(0, 0, {8}));
  EXPECT_THAT(MeanOf(Send(Request(1, 0, {4}))), ElementsAre(6));
  incarnations_[1] = Join(1).value().incarnation();
  const Answer& again = Send(Request(1, 0, {4}));
  EXPECT_THAT(MeanOf(again), ElementsAre(6));
}

TEST_F(BatchMeansTest, AServerThatHasTakenOverAsksForEarlierValues) {
  const Answer& answer = Send(Request(0, 2, {8}));
  ASSERT_TRUE(answer.has_value() && answer->ok());
  EXPECT_FALSE((*answer)->holds());
  EXPECT_EQ((*answer)->known(), 0) << "it lacks the values for means 0 and 1";
  v1::BatchMeanRequest all = Request(0, 2, {});
  all.set_first(0);
  for (const double value : {1, 2, 3}) all.add_parts()->add_values(value);
  const Answer& earlier = Send(all);
  EXPECT_FALSE(earlier.has_value());
  EXPECT_THAT(MeanOf(Send(Request(1, 0, {5}))), ElementsAre(3))
      << "a worker that was restarted begins with mean 0";
  EXPECT_THAT(MeanOf(Send(Request(1, 1, {4}))), ElementsAre(3));
  EXPECT_THAT(MeanOf(Send(Request(1, 2, {9}))), ElementsAre(6));
  EXPECT_THAT(MeanOf(earlier), ElementsAre(6));
}

TEST_F(BatchMeansTest, NoWorkerWaitsForOneWithoutExamplesOrOneThatHasLeft) {
  const Answer& skipped = Send(Request(1, 0, {}, /*examples=*/0));
  EXPECT_TRUE(skipped.has_value() && skipped->ok());
  const Answer& alone = Send(Request(0, 0, {8}));
  EXPECT_THAT(MeanOf(alone), ElementsAre(8));

  incarnations_[1] = Join(1).value().incarnation();
  const Answer& waits = Send(Request(1, 1, {6}));
  v1::LeaveRequest leave;
  leave.set_worker(0);
  leave.set_incarnation(incarnations_[0]);
  EXPECT_TRUE(Call(server_, &Server::Leave, leave).ok());
  server_.Tick();
  EXPECT_THAT(MeanOf(waits), ElementsAre(6));
}

TEST_F(BatchMeansTest, WrongRequestsAreRefused) {
  v1::BatchMeanRequest request = Request(0, 0, {8});
  request.set_layout(request.layout() + 1);
  EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kAborted);
  request = Request(0, 0, {8});
  request.set_incarnation(99);
  EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kAborted);
  request = Request(0, 0, {8});
  request.set_version(1);
  EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kInvalidArgument);
  request.set_version(-1);
  EXPECT_THAT(MessageOf(Refusal(request)), HasSubstr("the round of version -1 has ended without worker/0"));
  for (const int64_t index : {int64_t{-1}, BatchMeans::kMaxMeans, std::numeric_limits<int64_t>::max()}) {
    request = Request(0, 0, {8});
    request.set_index(index);
    EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kInvalidArgument) << index;
    request = Request(0, 0, {8});
    request.set_first(index);
    EXPECT_EQ(Refusal(request).code(), absl::StatusCode::kInvalidArgument) << index;
  }
  EXPECT_EQ(Refusal(Request(0, 0, {8}, -1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal(Request(0, 0, std::vector<double>(BatchMeans::kMaxValues + 1))).code(),
            absl::StatusCode::kInvalidArgument);

  Send(Request(0, 0, {8, 1}));
  EXPECT_THAT(MessageOf(Refusal(Request(1, 0, {4}))),
              HasSubstr("worker/1: 1 values for mean 0 of version 0, worker/0 has 2"));
}

TEST_F(BatchMeansTest, WaitsEndWithTheJob) {
  const Answer& waits = Send(Request(0, 0, {8}));
  server_.Shutdown();
  ASSERT_TRUE(waits.has_value());
  EXPECT_EQ(waits->status().code(), absl::StatusCode::kUnavailable);
}

TEST(BatchMeans, AsynchronousJobsHaveNone) {
  test::FakeClock clock;
  Server server({.index = 0, .incarnation = 5, .connect_to_leader = nullptr}, clock);
  v1::CreateRequest create = TrainingJob();
  create.mutable_job()->set_mode(v1::MODE_ASYNC);
  v1::BatchMeanRequest request;
  request.set_layout(Call(server, &Server::Create, create).value().layout());
  server.OnInitialised(request.layout());
  EXPECT_EQ(Call(server, &Server::BatchMean, request).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cairn::ps
