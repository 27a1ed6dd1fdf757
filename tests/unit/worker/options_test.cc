#include "worker/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "common/core/flags.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class Options : public testing::Test {
 protected:
  Options() { AddTrainOptions(app_, options_); }

  std::optional<ExitCode> Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "cairn-worker");
    testing::internal::CaptureStderr();
    const auto code = ParseCommandLine(app_, static_cast<int>(arguments.size()), arguments.data());
    fault_ = testing::internal::GetCapturedStderr();
    return code;
  }

  CLI::App app_{"One worker task", "cairn-worker"};
  TrainOptions options_;
  std::string fault_;
};

TEST_F(Options, EveryFlagIsReadInBothSpellings) {
  const std::vector<std::pair<std::string, std::string>> flags = {{"model", "m.json"},
                                                                  {"data_dir", "d"},
                                                                  {"input_scale", "0.5"},
                                                                  {"limit_examples", "10"},
                                                                  {"label_column", "y"},
                                                                  {"feature_column", "a,b"},
                                                                  {"missing_value", "-1"},
                                                                  {"max_bad_rows", "3"},
                                                                  {"class_weight", "0:1,2:2.5"},
                                                                  {"augment", "flip,crop:4,shift:0.25"},
                                                                  {"batch_size", "8"},
                                                                  {"epochs", "2"},
                                                                  {"train_steps", "100"},
                                                                  {"mode", "sync"},
                                                                  {"max_staleness", "3"},
                                                                  {"optimizer", "sgd"},
                                                                  {"replicas_to_aggregate", "2"},
                                                                  {"learning_rate", "0.25"},
                                                                  {"momentum", "0.5"},
                                                                  {"clipnorm", "2"},
                                                                  {"weight_decay", "0.004"},
                                                                  {"loss", "mse"},
                                                                  {"metrics", "mae,mse"},
                                                                  {"seed", "7"},
                                                                  {"shard_tail", "pad"},
                                                                  {"display_every", "10"},
                                                                  {"summary", "out.json"},
                                                                  {"log_level", "debug"},
                                                                  {"threads", "2"},
                                                                  {"connect_timeout", "5"},
                                                                  {"step_timeout", "1.5"}};
  for (const bool dashes : {false, true}) {
    TrainOptions options;
    CLI::App app("One worker task", "cairn-worker");
    AddTrainOptions(app, options);
    std::vector<std::string> arguments = {"cairn-worker"};
    for (auto [name, value] : flags) {
      if (dashes) std::replace(name.begin(), name.end(), '_', '-');
      arguments.push_back("--" + name + "=" + value);
    }
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    ASSERT_EQ(ParseCommandLine(app, static_cast<int>(argv.size()), argv.data()), std::nullopt);

    EXPECT_EQ(options.model, "m.json");
    EXPECT_EQ(options.data_dir, "d");
    EXPECT_EQ(options.input_scale, 0.5f);
    EXPECT_EQ(options.limit_examples, 10);
    EXPECT_EQ(options.label_column, "y");
    EXPECT_THAT(options.feature_columns, ElementsAre("a", "b"));
    EXPECT_EQ(options.missing_value, -1.0f);
    EXPECT_EQ(options.max_bad_rows, 3);
    EXPECT_THAT(options.class_weights, ElementsAre(Pair(0, 1.0f), Pair(2, 2.5f)));
    EXPECT_TRUE(options.augmentation.flip);
    EXPECT_EQ(options.augmentation.crop, 4);
    EXPECT_EQ(options.augmentation.shift, 0.25f);
    EXPECT_EQ(options.batch_size, 8);
    EXPECT_EQ(options.epochs, 2);
    EXPECT_EQ(options.train_steps, 100);
    EXPECT_EQ(options.mode, "sync");
    EXPECT_EQ(options.replicas_to_aggregate, 2);
    EXPECT_EQ(options.max_staleness, 3);
    EXPECT_EQ(options.optimizer, "sgd");
    EXPECT_EQ(options.learning_rate, 0.25);
    EXPECT_EQ(options.momentum, 0.5);
    EXPECT_EQ(options.clipnorm, 2);
    EXPECT_EQ(options.weight_decay, 0.004);
    EXPECT_EQ(options.loss, "mse");
    EXPECT_EQ(options.metrics, "mae,mse");
    EXPECT_EQ(options.seed, 7u);
    EXPECT_EQ(options.shard_tail, "pad");
    EXPECT_EQ(options.display_every, 10);
    EXPECT_EQ(options.summary, "out.json");
    EXPECT_EQ(options.log_level, "debug");
    EXPECT_EQ(options.threads, 2);
    EXPECT_EQ(options.connect_timeout_seconds, 5);
    EXPECT_EQ(options.step_timeout_seconds, 1.5);
  }
}

TEST_F(Options, UnsaidKeepsTheDefaults) {
  ASSERT_EQ(Parse({}), std::nullopt);
  EXPECT_EQ(options_.mode, "async");
  EXPECT_EQ(options_.batch_size, 32);
  EXPECT_EQ(options_.learning_rate, std::nullopt);
  EXPECT_TRUE(std::isnan(options_.input_scale));
  EXPECT_EQ(options_.missing_value, std::nullopt);
  EXPECT_TRUE(options_.augmentation.empty());
  EXPECT_TRUE(options_.shuffle);
  EXPECT_TRUE(options_.validation);
}

TEST_F(Options, SyncReplicasIsModeSync) {
  ASSERT_EQ(Parse({"--sync_replicas"}), std::nullopt);
  EXPECT_EQ(options_.mode, "sync");
  ASSERT_EQ(Parse({"--nosync-replicas"}), std::nullopt);
  EXPECT_EQ(options_.mode, "async");
  ASSERT_EQ(Parse({"--sync-replicas=True"}), std::nullopt);
  EXPECT_EQ(options_.mode, "sync");
  ASSERT_EQ(Parse({"--sync_replicas=false"}), std::nullopt);
  EXPECT_EQ(options_.mode, "async");
}

TEST_F(Options, TheLastOfTwoSwitchesWins) {
  ASSERT_EQ(Parse({"--sync_replicas", "--nosync_replicas"}), std::nullopt);
  EXPECT_EQ(options_.mode, "async");
  ASSERT_EQ(Parse({"--nosync_replicas", "--sync_replicas"}), std::nullopt);
  EXPECT_EQ(options_.mode, "sync");
}

TEST_F(Options, ModeAndSyncReplicasDoNotGoTogether) {
  EXPECT_EQ(Parse({"--mode=async", "--sync_replicas"}), ExitCode::kUsage);
  EXPECT_THAT(fault_, HasSubstr("--mode"));
  EXPECT_THAT(fault_, HasSubstr("--sync_replicas"));
}

TEST_F(Options, BadValuesAreRefusedByName) {
  for (const char* argument : {"--batch_size=0",
                               "--epochs=0",
                               "--train_steps=-1",
                               "--replicas_to_aggregate=-1",
                               "--max_staleness=-2",
                               "--learning_rate=-0.1",
                               "--learning_rate=nan",
                               "--momentum=1",
                               "--seed=-1",
                               "--clipvalue=-1",
                               "--clipnorm=nan",
                               "--global_clipnorm=-1",
                               "--weight_decay=-1",
                               "--threads=-1",
                               "--connect_timeout=0",
                               "--step_timeout=0",
                               "--limit_examples=-1",
                               "--display_every=-1",
                               "--input_scale=0",
                               "--mode=ssp",
                               "--shard_tail=wrap",
                               "--log_level=loud",
                               "--feature_column=a,,b",
                               "--missing_value=none",
                               "--max_bad_rows=-1",
                               "--class_weight=0=1",
                               "--class_weight=-1:1",
                               "--class_weight=0:-1",
                               "--class_weight=0:1,0:2",
                               "--augment=turn",
                               "--augment=crop:0",
                               "--augment=shift:1"}) {
    EXPECT_EQ(Parse({argument}), ExitCode::kUsage) << argument;
    const std::string flag(argument, std::string(argument).find('='));
    EXPECT_THAT(fault_, HasSubstr("cairn-worker: " + flag + ": ")) << argument;
  }
}

TEST_F(Options, OnlyOneClipMayBeGiven) {
  EXPECT_EQ(Parse({"--clipvalue=1", "--clipnorm=1"}), ExitCode::kUsage);
  EXPECT_THAT(fault_, HasSubstr("--clipvalue"));
  EXPECT_EQ(Parse({"--clipnorm=1", "--global_clipnorm=1"}), ExitCode::kUsage);
  EXPECT_EQ(Parse({"--global-clipnorm=1"}), std::nullopt);
  EXPECT_EQ(options_.global_clipnorm, 1);
}

TEST_F(Options, GivenFlagsMakeTheSameOptionsInAnotherProcess) {
  ASSERT_EQ(Parse({"--nosync_replicas", "--learning-rate", "0.1", "--novalidation", "--model=a b.json"}),
            std::nullopt);
  EXPECT_THAT(GivenFlags(app_, app_), ElementsAre("--model=a b.json", "--sync_replicas=false",
                                                  "--learning_rate=0.1", "--validation=false"));
}

TrainOptions Complete() {
  TrainOptions options;
  options.model = "m.json";
  options.data_dir = "d";
  return options;
}

TEST(Validate, AModelAndDataAreEnough) {
  EXPECT_TRUE(Validate(Complete()).ok());
}

TEST(Validate, NamesTheMissingFlag) {
  EXPECT_EQ(Validate(TrainOptions()).message(), "--model is missing");
  TrainOptions options = Complete();
  options.data_dir.clear();
  EXPECT_EQ(Validate(options).message(), "--data_dir is missing");
}

TEST(Validate, FlagsOfOneModeDoNotGoWithTheOther) {
  TrainOptions options = Complete();
  options.replicas_to_aggregate = 2;
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr("--replicas_to_aggregate needs --sync_replicas"));
  options = Complete();
  options.mode = "sync";
  options.max_staleness = 4;
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("--max_staleness"));
}

TEST(Validate, AdamHasNoMomentum) {
  TrainOptions options = Complete();
  options.optimizer = "adam";
  options.momentum = 0.9;
  EXPECT_EQ(Validate(options).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::worker
