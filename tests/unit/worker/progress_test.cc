#include "worker/report/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace cairn::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return now_; }
  void Advance(Duration duration) { now_ += duration; }

 private:
  TimePoint now_{seconds(1000)};
};

// Progress writes into a pipe; the test reads the other end between calls.
class ProgressTest : public testing::Test {
 protected:
  ProgressTest() { EXPECT_EQ(pipe(ends_), 0); }
  ~ProgressTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  Progress OnTerminal() { return Progress({.fd = ends_[1], .terminal = true, .color = false}, clock_); }
  Progress InAFile(int64_t display_every = 0) {
    return Progress({.fd = ends_[1], .display_every = display_every}, clock_);
  }
  // The text written since the last call.
  std::string Shown() {
    EXPECT_EQ(write(ends_[1], "$", 1), 1);  // an end mark, so that an empty pipe does not block
    std::string text;
    while (text.empty() || text.back() != '$') {
      char buffer[4096];
      const ssize_t count = read(ends_[0], buffer, sizeof buffer);
      if (count <= 0) return "read failed";
      text.append(buffer, static_cast<size_t>(count));
    }
    text.pop_back();
    return text;
  }

  FakeClock clock_;
  int ends_[2];
};

TEST_F(ProgressTest, JsonHasOneObjectPerEvent) {
  Progress progress({.fd = ends_[1], .terminal = true, .json = true, .display_every = 2}, clock_);
  progress.StartEpoch(2, 5, 4);
  EXPECT_EQ(Shown(), "{\"event\":\"epoch_begin\",\"epoch\":2,\"epochs\":5,\"steps\":4}\n");
  clock_.Advance(milliseconds(500));
  progress.Update(1, [] { return ShownMetrics{{"loss", 2.5}}; });
  EXPECT_EQ(Shown(), "");
  progress.Update(2, [] { return ShownMetrics{{"loss", 2.5}}; });
  EXPECT_EQ(
      Shown(),
      "{\"event\":\"step\",\"epoch\":2,\"step\":2,\"steps\":4,\"seconds\":0.5,\"metrics\":{\"loss\":2.5}}\n");
  progress.SetCluster({.examples_per_second = 64, .stale = 1});
  progress.EndEpoch({{"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(Shown(),
            "{\"event\":\"epoch_end\",\"epoch\":2,\"step\":2,\"steps\":4,\"seconds\":0.5,\"metrics\":{"
            "\"loss\":null},"
            "\"examples_per_second\":64.0,\"gradients_stale\":1,\"gradients_refused\":0}\n");
  progress.Say("a \"word\"");
  EXPECT_EQ(Shown(), "{\"event\":\"message\",\"message\":\"a \\\"word\\\"\"}\n");
}

TEST_F(ProgressTest, ClusterRateAndGradientsWithoutUpdateAreShown) {
  Progress progress = OnTerminal();
  progress.StartEpoch(1, 1, 2);
  progress.Update(2, [] { return ShownMetrics{}; });
  (void)Shown();
  progress.SetCluster({.examples_per_second = 1234, .stale = 3, .refused = 2});
  progress.EndEpoch({{"loss", 0.5}});
  const std::string shown = Shown();
  EXPECT_NE(shown.find("/step 1234 examples/s - loss: 0.5000"), std::string::npos) << shown;
  EXPECT_NE(shown.find("reached no update in this epoch: 3 came too late, 2 came from lost workers"),
            std::string::npos);
  progress.StartEpoch(1, 1, 2);
  progress.EndEpoch({});
  EXPECT_EQ(Shown().find("reached no update"), std::string::npos) << "a new epoch starts from 0";
}

TEST_F(ProgressTest, RedrawnLineFitsTheTerminalAlsoAfterAResize) {
  int columns = 80;
  Progress progress({.fd = ends_[1], .terminal = true, .columns = [&] { return columns; }, .color = false},
                    clock_);
  progress.StartEpoch(1, 1, 938);
  progress.SetCluster({.examples_per_second = 123456});
  const ShownMetrics metrics = {
      {"accuracy", 0.5}, {"loss", 1.5}, {"sparse_top_k_categorical_accuracy", 0.75}};
  for (const int width : {200, 80, 60, 24}) {
    columns = width;
    (void)Shown();
    clock_.Advance(seconds(1));
    progress.Update(400, [&] { return metrics; });
    const std::string line = Shown();
    ASSERT_EQ(line.find('\n'), std::string::npos);
    // Counts characters: in UTF-8, every byte of a character but the first begins with the bits 10.
    const auto shown = std::count_if(line.begin() + 1, line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LT(shown, width) << line;
    EXPECT_EQ(line.compare(0, 8, "\r400/938"), 0) << line;
  }
  columns = 10;
  clock_.Advance(seconds(1));
  progress.Update(401, [&] { return metrics; });
  EXPECT_EQ(Shown(), "") << "not even the counter fits";
  progress.EndEpoch(metrics);
  EXPECT_NE(Shown().find("sparse_top_k_categorical_accuracy: 0.7500"), std::string::npos)
      << "the last line is complete";
}

TEST_F(ProgressTest, WithoutATerminalAnEpochIsOneLine) {
  Progress progress = InAFile();
  progress.StartEpoch(1, 5, 938);
  EXPECT_EQ(Shown(), "Epoch 1/5\n");
  clock_.Advance(milliseconds(500));
  progress.Update(1, [] { return ShownMetrics{{"accuracy", 0.1}, {"loss", 2.3}}; });
  clock_.Advance(milliseconds(937 * 12));
  progress.Update(938, [] { return ShownMetrics{{"accuracy", 0.95124}, {"loss", 0.157}}; });
  EXPECT_EQ(Shown(), "");
  progress.EndEpoch({{"accuracy", 0.95124}, {"loss", 0.157}, {"val_accuracy", 0.9}, {"val_loss", 0.0005}});
  EXPECT_EQ(Shown(),
            "938/938 - 12s - 12ms/step - accuracy: 0.9512 - loss: 0.1570 - val_accuracy: 0.9000 - "
            "val_loss: 5.0000e-04\n");
}

TEST_F(ProgressTest, DisplayEveryAddsLines) {
  Progress progress = InAFile(/*display_every=*/10);
  progress.StartEpoch(1, 1, 25);
  for (int64_t step = 1; step <= 25; ++step) {
    clock_.Advance(seconds(2));
    progress.Update(step, [] { return ShownMetrics{{"loss", 1.0}}; });
  }
  progress.EndEpoch({{"loss", 1.0}});
  EXPECT_EQ(Shown(),
            "Epoch 1/1\n10/25 - 20s - 2s/step - loss: 1.0000\n20/25 - 40s - 2s/step - loss: 1.0000\n"
            "25/25 - 50s - 2s/step - loss: 1.0000\n");
}

TEST_F(ProgressTest, OnATerminalTheBarGrowsAndTheRemainingTimeShrinks) {
  Progress progress = OnTerminal();
  progress.StartEpoch(2, 5, 100);
  Shown();
  clock_.Advance(seconds(1));
  progress.Update(1, [] { return ShownMetrics{{"loss", 2.0}}; });
  EXPECT_EQ(Shown(), "\r  1/100 ──────────────────── 1:39 1s/step - loss: 2.0000");
  clock_.Advance(milliseconds(490));
  progress.Update(50, [] { return ShownMetrics{{"loss", 1.5}}; });
  EXPECT_EQ(Shown(), "\r 50/100 ━━━━━━━━━━────────── 0s 10ms/step - loss: 1.5000");
}

TEST_F(ProgressTest, TheLastDrawEndsTheLineWithTheTimeTaken) {
  Progress progress = OnTerminal();
  progress.StartEpoch(1, 1, 4);
  Shown();
  for (int64_t step = 1; step <= 4; ++step) {
    clock_.Advance(microseconds(250));
    progress.Update(step, [] { return ShownMetrics{{"loss", 1.0}}; });
  }
  EXPECT_EQ(Shown(), "\r1/4 ━━━━━─────────────── 0s 250us/step - loss: 1.0000");
  progress.EndEpoch({{"loss", 0.5}, {"val_loss", 0.75}});
  EXPECT_EQ(Shown(), "\r4/4 ━━━━━━━━━━━━━━━━━━━━ 0s 250us/step - loss: 0.5000 - val_loss: 0.7500\n");
}

TEST_F(ProgressTest, RedrawsAtMostEveryFiftyMilliseconds) {
  Progress progress = OnTerminal();
  progress.StartEpoch(1, 1, 1000);
  progress.Update(1, [] { return ShownMetrics{}; });
  Shown();
  clock_.Advance(milliseconds(49));
  progress.Update(2, [] { return ShownMetrics{}; });
  EXPECT_EQ(Shown(), "");
  clock_.Advance(milliseconds(1));
  progress.Update(3, [] { return ShownMetrics{}; });
  EXPECT_EQ(Shown(), "\r   3/1000 ──────────────────── 24s 25ms/step");
}

TEST_F(ProgressTest, SlowMetricsAreDrawnLessOften) {
  Progress progress = OnTerminal();
  progress.StartEpoch(1, 1, 100);
  int computed = 0;
  const auto slow = [&] {
    ++computed;
    clock_.Advance(milliseconds(10));
    return ShownMetrics{};
  };
  for (int64_t step = 1; step <= 100; ++step) {
    progress.Update(step, slow);
    clock_.Advance(milliseconds(10));
  }
  EXPECT_EQ(computed, 6) << "one every 200 ms";
}

TEST_F(ProgressTest, LongRemainingTimesHaveHoursAndMinutes) {
  Progress progress = OnTerminal();
  progress.StartEpoch(1, 1, 1000);
  Shown();
  clock_.Advance(seconds(10));
  progress.Update(1, [] { return ShownMetrics{}; });
  EXPECT_EQ(Shown(), "\r   1/1000 ──────────────────── 2:46:30 10s/step");
}

TEST_F(ProgressTest, ShorterLineOverwritesALongerOne) {
  Progress progress = OnTerminal();
  progress.StartEpoch(1, 1, 10);
  progress.Update(1, [] { return ShownMetrics{{"loss", 100.0}}; });
  Shown();
  clock_.Advance(seconds(1));
  progress.Update(2, [] { return ShownMetrics{{"loss", 1.0}}; });
  EXPECT_EQ(Shown(), "\r 2/10 ━━━━──────────────── 8s 1s/step - loss: 1.0000  ");
}

TEST_F(ProgressTest, WithColorTheCountIsBoldAndTheBarGreenAndWhite) {
  Progress progress({.fd = ends_[1], .terminal = true}, clock_);
  progress.StartEpoch(1, 1, 2);
  Shown();
  clock_.Advance(seconds(3));
  progress.Update(1, [] { return ShownMetrics{}; });
  EXPECT_EQ(
      Shown(),
      "\r\x1b[1m1/2\x1b[0m \x1b[32m━━━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m 3s/step");
}

TEST_F(ProgressTest, EpochThatStopsEarlyShowsTheStepReached) {
  Progress progress = InAFile();
  progress.StartEpoch(1, 1, 100);
  Shown();
  clock_.Advance(seconds(1));
  progress.Update(40, [] { return ShownMetrics{}; });
  progress.EndEpoch({});
  EXPECT_EQ(Shown(), " 40/100 - 1s - 25ms/step\n");
}

TEST_F(ProgressTest, BrokenDisplayDoesNotStopTraining) {
  Progress progress({.fd = -1, .terminal = true}, clock_);
  progress.StartEpoch(1, 1, 2);
  progress.Update(1, [] { return ShownMetrics{}; });
  progress.EndEpoch({});
}

}  // namespace
}  // namespace cairn::worker
