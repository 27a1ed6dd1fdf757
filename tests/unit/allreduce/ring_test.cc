#include "worker/allreduce/ring.h"

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::allreduce {
namespace {

using testing::HasSubstr;

struct Frame {
  v1::RingHeader header;
  std::vector<float> payload;
};

net::Payload AsPayload(const std::vector<float>& values, absl::Span<const char>& run) {
  run = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  return run.empty() ? net::Payload() : net::Payload(&run, 1);
}

absl::Status Give(Ring& ring, const Frame& frame) {
  if (frame.header.has_record()) return ring.OnRecord(frame.header.record());
  absl::Span<const char> run;
  return ring.OnGradient(frame.header.gradient(), AsPayload(frame.payload, run));
}

// The rings of all workers in one thread: frames wait on each link until they are delivered.
class Circle {
 public:
  Circle(int workers, int64_t size, std::vector<int64_t> begins = {}, int64_t version = 0)
      : links_(static_cast<size_t>(workers)) {
    if (begins.empty()) begins = {0, size};
    for (int worker = 0; worker < workers; ++worker) {
      auto& link = links_[static_cast<size_t>((worker + 1) % workers)];
      rings_.push_back(std::make_unique<Ring>(
          Ring::Options{.worker = worker,
                        .version = version,
                        .plan = ChunkPlan::Make(size, workers, /*most_chunk=*/4),
                        .variable_begins = begins},
          [&link](const v1::RingHeader& header, net::FloatSpans payload, const std::shared_ptr<const void>&) {
            Frame frame = {.header = header, .payload = {}};
            for (const auto& run : payload) frame.payload.insert(frame.payload.end(), run.begin(), run.end());
            link.push_back(std::move(frame));
          }));
    }
  }

  Ring& operator[](int worker) { return *rings_[static_cast<size_t>(worker)]; }
  std::deque<Frame>& link_to(int worker) { return links_[static_cast<size_t>(worker)]; }

  // Delivers frames, each from a random link, until none is left.
  void Carry(uint64_t seed = 0) {
    Random random(seed, "carry");
    for (;;) {
      std::vector<int> full;
      for (size_t i = 0; i < links_.size(); ++i) {
        if (!links_[i].empty()) full.push_back(static_cast<int>(i));
      }
      if (full.empty()) return;
      const int to =
          full[static_cast<size_t>(random.NextUniform(0, 1) * static_cast<float>(full.size())) % full.size()];
      const Frame frame = std::move(link_to(to).front());
      link_to(to).pop_front();
      ASSERT_TRUE(Give((*this)[to], frame).ok()) << frame.header.ShortDebugString();
    }
  }

 private:
  std::vector<std::deque<Frame>> links_;  // [to worker]
  std::vector<std::unique_ptr<Ring>> rings_;
};

std::vector<float> Gradient(int64_t size, int worker, int step) {
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i) {
    values.push_back(static_cast<float>((i % 13) * 8 + worker * 64 + step * 128));  // exact in sums
  }
  return values;
}

std::vector<float> MeanOf(Ring& ring, int64_t size, int64_t* examples = nullptr) {
  const auto step = ring.Await(TimePoint::max());
  EXPECT_TRUE(step.ok()) << step.status();
  if (!step.ok() || step->mean == nullptr) return {};
  if (examples != nullptr) *examples = step->examples;
  return {step->mean, step->mean + size};
}

TEST(Ring, TheMeanOfEqualBatchesIsTheSumOverTheNumberOfWorkers) {
  for (const int workers : {1, 2, 3, 4}) {
    for (const int64_t size : {0, 1, 2, 3, 5, 16, 33, 100}) {
      SCOPED_TRACE(testing::Message() << workers << " workers, " << size << " elements");
      Circle circle(workers, size);
      for (int step = 1; step <= 3; ++step) {
        std::vector<std::vector<float>> gradients;
        std::vector<float> wanted(static_cast<size_t>(size));
        for (int worker = 0; worker < workers; ++worker) {
          gradients.push_back(Gradient(size, worker, step));
          for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += gradients.back()[i];
        }
        for (float& value : wanted) value /= static_cast<float>(workers);
        for (int worker = 0; worker < workers; ++worker) {
          circle[worker].Begin(32, gradients[static_cast<size_t>(worker)]);
          circle[worker].Announce(0);
        }
        circle.Carry(static_cast<uint64_t>(step));
        for (int worker = 0; worker < workers; ++worker) {
          EXPECT_EQ(circle[worker].step(), step);
          if (size > 0) {
            EXPECT_EQ(MeanOf(circle[worker], size), wanted);
          }
        }
      }
    }
  }
}

TEST(Ring, WeightsAreTheNumbersOfExamples) {
  Circle circle(3, 2);
  const std::vector<float> first = {4, 8}, second = {16, 0}, third = {1e30f, 1e30f};
  circle[0].Begin(30, first), circle[1].Begin(10, second), circle[2].Begin(0, third);
  circle[0].Announce(0), circle[1].Announce(0);
  circle.Carry();
  int64_t examples = 0;
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_THAT(MeanOf(circle[worker], 2, &examples),
                testing::ElementsAre((3 * 4 + 16) / 4.0f, 3 * 8 / 4.0f));
    EXPECT_EQ(examples, 40);
  }
}

TEST(Ring, TheGradientOfTheOnlyWorkerWithExamplesIsTheMeanToTheBit) {
  Circle circle(4, 7);
  const std::vector<float> gradient = {0.1f, 0.2f, 0.3f, 1e-30f, -7.7f, 3e38f, 1.0f / 3};
  for (int worker = 0; worker < 4; ++worker) circle[worker].Begin(worker == 2 ? 17 : 0, gradient);
  circle[2].Announce(0);
  circle.Carry();
  for (int worker = 0; worker < 4; ++worker) EXPECT_EQ(MeanOf(circle[worker], 7), gradient);
}

TEST(Ring, AllWorkersHaveTheSameBitsInAnyOrderOfArrival) {
  std::vector<std::vector<float>> seen;
  Random random(7, "gradients");
  std::vector<std::vector<float>> gradients(4);
  for (auto& gradient : gradients) {
    for (int i = 0; i < 61; ++i) gradient.push_back(random.NextUniform(-1, 1));
  }
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    Circle circle(4, 61, {0, 20, 40, 61});
    for (int worker = 0; worker < 4; ++worker)
      circle[worker].Begin(5 + worker, gradients[static_cast<size_t>(worker)]);
    circle.Carry(seed);
    for (int variable = 2; variable >= 0; --variable) {
      for (int worker = 0; worker < 4; ++worker) {
        circle[static_cast<int>(seed + static_cast<uint64_t>(worker)) % 4].Announce(variable);
        if (seed % 2 == 0) circle.Carry(seed);
      }
    }
    circle.Carry(seed);
    for (int worker = 0; worker < 4; ++worker) seen.push_back(MeanOf(circle[worker], 61));
  }
  EXPECT_THAT(seen, testing::Each(seen[0]));
}

TEST(Ring, ABucketIsSentWhenItsVariablesAreFinal) {
  Circle circle(2, 32, {0, 16, 32});
  const std::vector<float> gradient(32, 1);
  circle[0].Begin(1, gradient), circle[1].Begin(1, gradient);
  circle.Carry();
  EXPECT_TRUE(circle.link_to(1).empty());
  circle[0].Announce(1);
  ASSERT_FALSE(circle.link_to(1).empty());
  for (const Frame& frame : circle.link_to(1))
    EXPECT_LT(frame.header.gradient().index(), 4);  // the last buckets
}

TEST(Ring, WithoutExamplesThereIsNoMean) {
  Circle circle(2, 8);
  circle[0].Begin(0, {}), circle[1].Begin(0, {});
  circle.Carry();
  const auto step = circle[1].Await(TimePoint::max());
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->mean, nullptr);
  EXPECT_FALSE(step->end);
}

TEST(Ring, OneWorkerEndsTrainingForAll) {
  Circle circle(3, 8);
  const std::vector<float> gradient(8, 1);
  circle[0].Begin(0, {}, /*end=*/true), circle[1].Begin(4, gradient), circle[2].Begin(4, gradient);
  circle[1].Announce(0), circle[2].Announce(0);
  circle.Carry();
  for (int worker = 0; worker < 3; ++worker) {
    const auto step = circle[worker].Await(TimePoint::max());
    ASSERT_TRUE(step.ok());
    EXPECT_TRUE(step->end);
    EXPECT_EQ(step->mean, nullptr);
  }
}

TEST(Ring, AWorkerThatIsDoneTakesPartUntilAllAre) {
  Circle circle(2, 2);
  const std::vector<float> gradient = {4, 8};
  for (const bool all : {false, true}) {
    circle[0].Begin(0, gradient, /*end=*/false, /*learning_rate=*/{}, /*done=*/true);
    circle[1].Begin(all ? 0 : 3, gradient, /*end=*/false, /*learning_rate=*/{}, /*done=*/all);
    circle[1].Announce(0);
    circle.Carry();
    for (int worker = 0; worker < 2; ++worker) {
      const Ring::Step step = circle[worker].Await(TimePoint::max()).value();
      EXPECT_EQ(step.done, all);
      EXPECT_EQ(step.mean == nullptr, all);
    }
  }
}

TEST(Ring, TheMemoryOfTheMeanIsFreeWhenItsFramesHaveLeft) {
  std::vector<std::shared_ptr<const void>> on_their_way;
  Ring ring({.worker = 0, .version = 0, .plan = ChunkPlan::Make(2, 2), .variable_begins = {0, 2}},
            [&](const v1::RingHeader&, net::FloatSpans payload, const std::shared_ptr<const void>& owner) {
              if (!payload.empty()) on_their_way.push_back(owner);
            });
  const std::vector<float> gradient = {4, 8};
  ring.Begin(1, gradient);
  ring.Announce(0);
  v1::StepRecord record;
  record.set_worker(1);
  record.set_step(1);
  record.set_examples(1);
  ASSERT_TRUE(ring.OnRecord(record).ok());
  EXPECT_FALSE(on_their_way.empty());
  EXPECT_FALSE(ring.HasSent());
  on_their_way.clear();
  EXPECT_TRUE(ring.HasSent());
}

TEST(Ring, ALearningRateArrivesWithItsStep) {
  Circle circle(2, 4);
  const std::vector<float> gradient(4, 1);
  circle[0].Begin(1, gradient, /*end=*/false, 0.25f), circle[1].Begin(1, gradient);
  circle[0].Announce(0), circle[1].Announce(0);
  circle.Carry();
  const auto step = circle[1].Await(TimePoint::max());
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->records[0].learning_rate(), 0.25f);
  EXPECT_FALSE(step->records[1].has_learning_rate());
}

TEST(Ring, ATimeoutNamesTheMissingWorkers) {
  Circle circle(3, 4);
  circle[0].Begin(1, std::vector<float>(4, 1));
  const absl::Status status = circle[0].Await(std::chrono::steady_clock::now()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("step 1 lacks the workers at positions 1, 2"));
}

TEST(Ring, AFaultEndsTheWait) {
  Circle circle(2, 4);
  circle[0].Begin(1, std::vector<float>(4, 1));
  circle[0].Fail(absl::AbortedError("lost worker/1"));
  circle[0].Fail(absl::AbortedError("and something else"));
  EXPECT_EQ(circle[0].Await(TimePoint::max()).status(), absl::AbortedError("lost worker/1"));
}

// Invalid frames of a neighbour, received by worker 1 of 3 in step 6.
class RingRefusesTest : public testing::Test {
 protected:
  RingRefusesTest() : gradient_(24, 1) {
    circle_[1].Begin(1, gradient_);
    circle_[1].Announce(0);
  }
  void ExpectRefused(const Frame& frame, const std::string& said) {
    const absl::Status status = Give(circle_[1], frame);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(said));
  }
  static Frame Record(int worker, int64_t step, int64_t examples = 1) {
    Frame frame;
    frame.header.mutable_record()->set_worker(worker);
    frame.header.mutable_record()->set_step(step);
    frame.header.mutable_record()->set_examples(examples);
    return frame;
  }
  static Frame Sum(int index, int64_t step, size_t elements = 4, bool mean = false) {
    Frame frame = {.header = {}, .payload = std::vector<float>(elements)};
    frame.header.mutable_gradient()->set_index(index);
    frame.header.mutable_gradient()->set_step(step);
    frame.header.mutable_gradient()->set_mean(mean);
    return frame;
  }

  std::vector<float> gradient_;
  Circle circle_{3, 24, {}, /*version=*/5};
};

TEST_F(RingRefusesTest, InvalidRecords) {
  ExpectRefused(Record(3, 6), "invalid record of worker 3 of 3");
  ExpectRefused(Record(-1, 6), "invalid record of worker -1 of 3");
  ExpectRefused(Record(1, 6), "invalid record of worker 1 of 3");
  ExpectRefused(Record(0, 5), "a record of step 5 arrived during step 6");
  ExpectRefused(Record(0, 8), "a record of step 8 arrived during step 6");
  ExpectRefused(Record(0, 6, -1), "a gradient cannot come from -1 examples");
  ExpectRefused(Record(0, 6, int64_t{1} << 32), "a gradient cannot come from 4294967296 examples");
  for (const auto& [rate, said] :
       {std::pair(-0.5f, "invalid learning rate -0.5"), std::pair(NAN, "invalid learning rate nan")}) {
    Frame frame = Record(0, 6);
    frame.header.mutable_record()->set_learning_rate(rate);
    ExpectRefused(frame, said);
  }
  ASSERT_TRUE(Give(circle_[1], Record(0, 6)).ok());
  ExpectRefused(Record(0, 6), "a second record of worker 0 for step 6");
}

TEST_F(RingRefusesTest, InvalidChunks) {
  ExpectRefused(Sum(-1, 6), "chunk -1, but the number of chunks is 6");
  ExpectRefused(Sum(6, 6), "chunk 6, but the number of chunks is 6");
  ExpectRefused(Sum(0, 5), "a gradient of step 5 arrived during step 6");
  ExpectRefused(Sum(0, 8), "a gradient of step 8 arrived during step 6");
  ExpectRefused(Sum(0, 6, 3), "chunk 0 has 12 bytes instead of those of 4 elements");
  ExpectRefused(Sum(0, 6, 5), "chunk 0 has 20 bytes instead of those of 4 elements");
  ExpectRefused(Sum(0, 6, 0), "chunk 0 has 0 bytes instead of those of 4 elements");
  ExpectRefused(Sum(1, 6), "chunk 1 of step 6, a sum, which is not expected now");  // it begins here
  ExpectRefused(Sum(0, 6, 4, /*mean=*/true), "chunk 0 of step 6, the mean, which is not expected now");
  ExpectRefused(Sum(2, 6, 4, /*mean=*/true),
                "chunk 2 of step 6, the mean, which is not expected now");  // made here
  ASSERT_TRUE(Give(circle_[1], Sum(0, 6)).ok());
  ExpectRefused(Sum(0, 6), "chunk 0 of step 6, a sum, which is not expected now");
}

TEST(Ring, AnEmptyChunkIsNeverSent) {
  Circle circle(4, 2);
  const std::vector<float> gradient = {1, 2};
  for (int worker = 0; worker < 4; ++worker) circle[worker].Begin(1, gradient);
  Frame frame;
  frame.header.mutable_gradient()->set_step(1);
  frame.header.mutable_gradient()->set_index(0);  // [0, 0)
  EXPECT_TRUE(absl::IsInvalidArgument(Give(circle[1], frame)));
}

}  // namespace
}  // namespace cairn::allreduce
