#include "nn/pipeline/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/system/thread.h"
#include "nn/replica/gradient_queue.h"

namespace cairn::nn {
namespace {

using ::testing::ElementsAre;

// The stages of a chain, with one node each.
std::vector<PipelineStage> Chain(int stages) {
  std::vector<PipelineStage> chain;
  for (int i = 0; i < stages; ++i) {
    PipelineStage stage;
    stage.begin = i;
    stage.end = i + 1;
    stage.inputs = {i - 1};
    stage.input_needs_gradient = {i > 0};
    stage.outputs = {i};
    stage.variables = {i};
    stage.needs_gradient = true;
    stage.last = i + 1 == stages;
    chain.push_back(stage);
  }
  return chain;
}

// Simulates devices that take one tick for a forward task and two for a backward task. Returns what each did,
// tick by tick.
std::vector<std::string> Play(PipelineSchedule& schedule, int devices, int tasks) {
  struct Player {
    std::optional<PipelineSchedule::Task> task;
    int left = 0;
    std::vector<std::string> done;
  };
  std::vector<Player> players(static_cast<size_t>(devices));
  schedule.Start();
  // Uses TryNext(), since Next() would block if no task is ready.
  std::vector<std::tuple<bool, int, int>> finished;
  for (int tick = 0; tick < 100 && static_cast<int>(finished.size()) < tasks; ++tick) {
    for (int device = 0; device < devices; ++device) {
      Player& player = players[static_cast<size_t>(device)];
      if (!player.task.has_value()) player.task = schedule.TryNext(device);
      if (player.task.has_value() && player.left == 0) player.left = player.task->backward ? 2 : 1;
      player.done.push_back(!player.task.has_value()
                                ? "."
                                : absl::StrCat(player.task->backward ? "B" : "F", player.task->micro_batch));
    }
    for (Player& player : players) {
      if (!player.task.has_value() || --player.left > 0) continue;
      schedule.Finish(*player.task);
      finished.emplace_back(player.task->backward, player.task->stage, player.task->micro_batch);
      player.task.reset();
    }
  }
  std::vector<std::string> lines;
  for (const Player& player : players) lines.push_back(absl::StrJoin(player.done, " "));
  return lines;
}

TEST(PipelineSchedule, TwoDevicesWorkAtTheSameTime) {
  PipelineSchedule schedule(Chain(2), {0, 1}, 4, true);
  EXPECT_THAT(Play(schedule, 2, 16), ElementsAre("F0 F1 F2 F3 B0 B0 . B1 B1 . B2 B2 . B3 B3",
                                                 ". F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 . ."));
}

TEST(PipelineSchedule, AnEvaluationHasNoBackwardTasks) {
  PipelineSchedule schedule(Chain(2), {0, 1}, 3, false);
  EXPECT_THAT(Play(schedule, 2, 6), ElementsAre("F0 F1 F2 .", ". F0 F1 F2"));
}

TEST(PipelineSchedule, OneDeviceRunsAllTasks) {
  PipelineSchedule schedule(Chain(1), {0}, 2, true);
  EXPECT_THAT(Play(schedule, 1, 4), ElementsAre("F0 B0 B0 F1 B1 B1"));
}

TEST(PipelineSchedule, StagesThatShareAVariableAlternateBackward) {
  // Stages 0 and 2, on one device, share a variable. While stage 1 runs, that device could run other tasks.
  std::vector<PipelineStage> stages = Chain(3);
  stages[2].variables = {0};
  PipelineSchedule schedule(stages, {0, 1, 0}, 2, true);
  std::vector<std::string> backward;
  schedule.Start();
  for (bool any = true; any;) {
    any = false;
    for (const int device : {0, 1}) {
      const auto task = schedule.TryNext(device);
      if (!task.has_value()) continue;
      any = true;
      if (task->backward && device == 0)
        backward.push_back(absl::StrCat(task->stage, ":", task->micro_batch));
      schedule.Finish(*task);
    }
  }
  EXPECT_THAT(backward, ElementsAre("2:0", "0:0", "2:1", "0:1"));
}

TEST(PipelineSchedule, ThreadsRunEachTaskOnceAfterItsDependencies) {
  constexpr int kParts = 6, kDevices = 3, kMicroBatches = 5;
  PipelineSchedule schedule(Chain(kParts), {0, 1, 2, 0, 1, 2}, kMicroBatches, true);
  for (int round = 0; round < 20; ++round) {
    schedule.Start();
    // Not synchronized: the order of the tasks must order these accesses, or a sanitizer reports a race.
    std::vector<int> value(kParts * kMicroBatches);  // 1 after forward, 2 after backward
    GradientQueue gradient_queue(kDevices);
    std::vector<Thread> threads;
    for (int device = 0; device < kDevices; ++device) {
      threads.emplace_back("device", [&, device] {
        while (const auto task = schedule.Next(device)) {
          const int at = task->stage * kMicroBatches + task->micro_batch;
          const int neighbour = at + (task->backward ? kMicroBatches : -kMicroBatches);
          if (neighbour >= 0 && neighbour < kParts * kMicroBatches) {
            EXPECT_GE(value[static_cast<size_t>(neighbour)], task->backward ? 2 : 1);
          }
          EXPECT_EQ(value[static_cast<size_t>(at)]++, task->backward ? 1 : 0);
          if (task->backward && task->micro_batch + 1 == kMicroBatches) gradient_queue.Announce(task->stage);
          schedule.Finish(*task);
        }
        gradient_queue.Done();
      });
    }
    std::vector<int> announced;
    gradient_queue.Await([&](int stage) { announced.push_back(stage); });
    EXPECT_THAT(announced, ElementsAre(5, 4, 3, 2, 1, 0));
    EXPECT_THAT(value, ::testing::Each(2));
    threads.clear();
  }
}

TEST(PipelineSchedule, AFailureStopsAllDevicesUntilTheNextStart) {
  PipelineSchedule schedule(Chain(2), {0, 1}, 1, true);
  schedule.Start();
  ASSERT_TRUE(schedule.Next(0).has_value());
  schedule.Fail(absl::InternalError("broken"));
  schedule.Fail(absl::InternalError("also broken"));
  EXPECT_FALSE(schedule.Next(0).has_value());
  EXPECT_FALSE(schedule.Next(1).has_value());
  EXPECT_EQ(schedule.status(), absl::InternalError("broken"));
  schedule.Start();
  EXPECT_TRUE(schedule.status().ok());
  EXPECT_TRUE(schedule.Next(0).has_value());
}

}  // namespace
}  // namespace cairn::nn
