#include "worker/allreduce/ring_means.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace cairn::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TimePoint In(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Workers whose frames arrive at once.
class Ringed {
 public:
  explicit Ringed(int workers) {
    for (int worker = 0; worker < workers; ++worker) {
      means.push_back(std::make_unique<RingMeans>(
          worker, workers, /*step=*/4,
          [this, worker](const v1::RingHeader& header, net::FloatSpans, const auto&) {
            ++frames;
            EXPECT_EQ(means[static_cast<size_t>(worker + 1) % means.size()]->OnPart(header.batch()),
                      absl::OkStatus());
          }));
    }
  }

  std::vector<std::unique_ptr<RingMeans>> means;
  std::atomic<int> frames{0};
};

TEST(RingMeans, EveryWorkerGetsTheWeightedMean) {
  Ringed ring(3);
  for (int64_t step = 5; step < 8; ++step) {
    std::vector<std::thread> workers;
    for (int worker = 0; worker < 3; ++worker) {
      workers.emplace_back([&ring, worker, step] {
        RingMeans& means = *ring.means[static_cast<size_t>(worker)];
        means.BeginStep(step, /*examples=*/worker + 1);
        for (int mean = 0; mean < 20; ++mean) {
          std::vector<double> values = {1.0 * worker, 10.0 * mean};
          ASSERT_EQ(means.Mean(absl::MakeSpan(values), In(std::chrono::seconds(60))), absl::OkStatus());
          EXPECT_THAT(values, ElementsAre((0 * 1 + 1 * 2 + 2 * 3) / 6.0, 10.0 * mean));
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
  }
  EXPECT_EQ(ring.frames, 3 * 20 * 3 * 2) << "each part makes two hops";
}

TEST(RingMeans, NoWorkerWaitsForOneWithoutExamples) {
  Ringed ring(2);
  ring.means[1]->BeginStep(5, 0);
  ring.means[1]->Skip();  // before the other one has begun the step
  ring.means[0]->BeginStep(5, 3);
  std::vector<double> values = {7};
  EXPECT_EQ(ring.means[0]->Mean(absl::MakeSpan(values), In(std::chrono::seconds(60))), absl::OkStatus());
  EXPECT_THAT(values, ElementsAre(7));
}

TEST(RingMeans, AWaitEndsAtItsDeadlineOrWithTheRing) {
  Ringed ring(3);
  ring.means[0]->BeginStep(5, 1);
  std::vector<double> values = {7};
  const absl::Status late = ring.means[0]->Mean(absl::MakeSpan(values), In(std::chrono::milliseconds(10)));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("in step 5 lacks the workers at positions 1, 2"));
  std::thread fails([&] { ring.means[0]->Fail(absl::AbortedError("lost worker/1")); });
  EXPECT_EQ(ring.means[0]->Mean(absl::MakeSpan(values), In(std::chrono::seconds(60))),
            absl::AbortedError("lost worker/1"));
  fails.join();
}

TEST(RingMeans, PartsThatNoNeighbourSendsAreRefused) {
  RingMeans means(0, 3, /*step=*/4, [](const v1::RingHeader&, net::FloatSpans, const auto&) {});
  means.BeginStep(5, 1);
  const auto part = [](int worker, int64_t step, int64_t index, int64_t examples) {
    v1::BatchPart made;
    made.set_worker(worker);
    made.set_step(step);
    made.set_index(index);
    made.set_examples(examples);
    made.add_values(1);
    return made;
  };
  EXPECT_EQ(means.OnPart(part(1, 5, 0, 2)), absl::OkStatus());
  EXPECT_EQ(means.OnPart(part(2, 6, 0, 0)), absl::OkStatus());
  for (const v1::BatchPart& wrong :
       {part(1, 5, 0, 2), part(2, 6, 3, 1), part(0, 5, 1, 1), part(3, 5, 1, 1), part(1, 4, 1, 1),
        part(1, 7, 1, 1), part(1, 5, -1, 1), part(1, 5, RingMeans::kMaxMeans, 1), part(1, 5, 1, -1)}) {
    EXPECT_EQ(means.OnPart(wrong).code(), absl::StatusCode::kInvalidArgument) << wrong.ShortDebugString();
  }
  EXPECT_EQ(means.OnPart(part(2, 5, 0, 2)), absl::OkStatus());
  std::vector<double> two = {1, 2};
  const absl::Status sizes = means.Mean(absl::MakeSpan(two), In(std::chrono::seconds(60)));
  EXPECT_EQ(sizes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sizes.message()), HasSubstr("worker 1 has 1 values for a mean of 2"));
  std::vector<double> none, many(RingMeans::kMaxValues + 1);
  for (std::vector<double>* values : {&none, &many}) {
    EXPECT_EQ(means.Mean(absl::MakeSpan(*values), In(std::chrono::seconds(60))).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace cairn::allreduce
