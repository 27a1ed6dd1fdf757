#include "worker/training/callbacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "common/core/files.h"
#include "tests/unit/nn/models.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/options/job.h"

namespace cairn::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

class CallbacksTest : public testing::Test {
 protected:
  CallbacksTest()
      : model_(*nn::Model::FromJson(
            nn::SequentialOf(
                R"({"class_name": "Dense", "config": {"name": "out", "units": 1, "input_shape": [2]}})"),
            "test")),
        directory_(testing::TempDir() + "cairn_callbacks_" + std::to_string(getpid())) {
    std::filesystem::create_directory(directory_);
    options_.loss = "mean_squared_error";
    options_.metrics = "mae,auc";
  }
  ~CallbacksTest() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<Callbacks> Create(bool validation = true) {
    const auto loss = *MakeObjective(options_, model_);
    return Callbacks::Create(flags_, model_, *MakeMetrics(options_, model_, loss), validation);
  }
  // Runs an epoch for each value, with `name` as the only metric. Returns the first one that orders a stop,
  // or -1.
  static int64_t StopsAfter(Callbacks& callbacks, const std::string& name,
                            const std::vector<double>& values) {
    for (size_t epoch = 0; epoch < values.size(); ++epoch) {
      const std::vector<float> parameters(3, static_cast<float>(epoch));
      const auto orders =
          callbacks.OnEpochEnd(static_cast<int64_t>(epoch), {{name, values[epoch]}}, parameters);
      EXPECT_TRUE(orders.ok()) << orders.status();
      if (orders->stop) return static_cast<int64_t>(epoch);
    }
    return -1;
  }

  // The monitored metric's.
  int64_t StopsAfter(const std::vector<double>& values) {
    auto callbacks = *Create();
    return StopsAfter(callbacks, flags_.monitor, values);
  }

  nn::Model model_;
  TrainOptions options_;
  CallbackFlags& flags_ = options_.callbacks;
  const std::string directory_;
};

TEST_F(CallbacksTest, WithoutFlagsNoMetricIsRequiredAndNothingIsOrdered) {
  flags_.monitor = "none";
  auto callbacks = Create();
  ASSERT_TRUE(callbacks.ok()) << callbacks.status();
  const auto orders = callbacks->OnEpochEnd(0, {{"loss", 1}}, {});
  ASSERT_TRUE(orders.ok());
  EXPECT_THAT(orders->messages, IsEmpty());
  EXPECT_FALSE(orders->stop || orders->learning_rate.has_value() || callbacks->best_epoch().has_value());
}

TEST_F(CallbacksTest, AnUnknownMonitorIsRefusedWithTheExistingMetrics) {
  flags_.early_stopping_patience = 1;
  flags_.monitor = "accuracy";
  EXPECT_EQ(std::string(Create().status().message()),
            "--monitor: there is no metric 'accuracy'; there are auc, loss, mae, val_auc, "
            "val_loss, val_mae");
  flags_.monitor = "val_loss";
  EXPECT_EQ(std::string(Create(/*validation=*/false).status().message()),
            "--monitor: there is no metric 'val_loss'; there are auc, loss, mae; no validation "
            "set is evaluated");
}

TEST_F(CallbacksTest, AutoKnowsWhichMetricsShouldIncrease) {
  flags_.early_stopping_patience = 1;
  const std::vector<double> rising = {1, 2, 3}, falling = {3, 2, 1};
  for (const std::string prefix : {"", "val_"}) {
    for (const auto& [name, rises] :
         {std::pair<std::string, bool>{"loss", false}, {"mae", false}, {"auc", true}}) {
      flags_.monitor = prefix + name;
      EXPECT_EQ(StopsAfter(rises ? rising : falling), -1) << flags_.monitor;
      EXPECT_EQ(StopsAfter(rises ? falling : rising), 1) << flags_.monitor;
    }
  }
  flags_.monitor_mode = "max";
  flags_.monitor = "loss";
  EXPECT_EQ(StopsAfter(rising), -1);
}

TEST_F(CallbacksTest, ParametersOfTheBestEpochAreKept) {
  flags_.early_stopping_patience = 2;
  flags_.restore_best_weights = true;
  auto callbacks = *Create();
  EXPECT_EQ(StopsAfter(callbacks, "val_loss", {3, 1, 2, 2}), 3);
  EXPECT_EQ(callbacks.best_epoch(), 2);
  EXPECT_THAT(callbacks.best_parameters(), ElementsAre(1, 1, 1));
}

TEST_F(CallbacksTest, ReducedLearningRateIsReportedInKerasWords) {
  flags_.plateau_factor = 0.5;
  flags_.plateau_patience = 1;
  auto callbacks = *Create();
  EXPECT_TRUE(callbacks.needs_learning_rate());
  callbacks.set_learning_rate(0.25f);
  EXPECT_FALSE(callbacks.OnEpochEnd(0, {{"val_loss", 1}}, {})->learning_rate.has_value());
  const auto orders = callbacks.OnEpochEnd(1, {{"val_loss", 1}}, {});
  EXPECT_EQ(orders->learning_rate, 0.125f);
  EXPECT_THAT(orders->messages, ElementsAre("Epoch 2: ReduceLROnPlateau reducing learning rate to 0.125."));
  EXPECT_EQ(callbacks.learning_rate(), 0.125f);
}

TEST_F(CallbacksTest, OnlyTheBestParametersAreSaved) {
  flags_.save_best = directory_ + "/best.safetensors";
  auto callbacks = *Create();
  EXPECT_THAT(
      callbacks.OnEpochEnd(0, {{"val_loss", 2}}, std::vector<float>{1, 2, 3})->messages,
      ElementsAre("Epoch 1: val_loss improved from None to 2.00000, saving model to " + flags_.save_best));
  EXPECT_THAT(
      callbacks.OnEpochEnd(1, {{"val_loss", 0.5}}, std::vector<float>{4, 5, 6})->messages,
      ElementsAre("Epoch 2: val_loss improved from 2.00000 to 0.50000, saving model to " + flags_.save_best));
  EXPECT_THAT(callbacks.OnEpochEnd(2, {{"val_loss", 0.5}}, std::vector<float>{7, 8, 9})->messages, IsEmpty());
  EXPECT_EQ(callbacks.best_epoch(), 2);

  const std::string file = *ReadFile(flags_.save_best);
  ASSERT_GT(file.size(), 3 * sizeof(float));
  const size_t head_bytes = file.size() - 3 * sizeof(float);
  const auto saved = ParseSafetensorsHead(absl::string_view(file).substr(0, head_bytes), file.size());
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_THAT(saved->metadata,
              ElementsAre(Pair("epoch", "2"), Pair("format", "pt"), Pair("val_loss", "0.5")));
  ASSERT_EQ(saved->tensors.size(), 2u);
  EXPECT_EQ(saved->tensors[0].name, "out/bias");
  EXPECT_EQ(saved->tensors[1].name, "out/kernel");
  EXPECT_EQ(saved->tensors[1].shape, Shape({2, 1}));
  std::vector<float> values(3);
  std::memcpy(values.data(), file.data() + head_bytes, 3 * sizeof(float));
  EXPECT_THAT(values, ElementsAre(6, 4, 5)) << "the model has the kernel first";
}

TEST_F(CallbacksTest, UnwritableFileIsRefusedByCreate) {
  flags_.save_best = directory_ + "/missing/best.safetensors";
  EXPECT_THAT(std::string(Create().status().message()),
              HasSubstr("--save_best: cannot create " + directory_));
  flags_.save_best = directory_ + "/is_one.safetensors";
  std::filesystem::create_directory(flags_.save_best);
  EXPECT_THAT(std::string(Create().status().message()), HasSubstr("Is a directory"));
  std::filesystem::remove(flags_.save_best);
  EXPECT_TRUE(Create().ok());
  EXPECT_TRUE(std::filesystem::is_empty(directory_)) << "the check leaves no file";
}

TEST_F(CallbacksTest, FileThatBecomesUnwritableIsAnError) {
  flags_.save_best = directory_ + "/best.safetensors";
  auto callbacks = *Create();
  std::filesystem::remove_all(directory_);
  const auto orders = callbacks.OnEpochEnd(0, {{"val_loss", 1}}, std::vector<float>(3));
  EXPECT_THAT(std::string(orders.status().message()), HasSubstr("--save_best: "));
}

}  // namespace
}  // namespace cairn::worker
