#include "worker/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "common/flags/flags.h"

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

TEST_F(Options, EveryFlagIsAcceptedInBothSpellings) {
  const std::vector<std::pair<std::string, std::string>> flags = {{"model", "m.json"},
                                                                  {"data_dir", "d"},
                                                                  {"input_scale", "0.5"},
                                                                  {"limit_examples", "10"},
                                                                  {"label_column", "y"},
                                                                  {"feature_column", "a,b"},
                                                                  {"label_threshold", "3.5"},
                                                                  {"missing_value", "-1"},
                                                                  {"max_bad_rows", "3"},
                                                                  {"csv_separator", "tab"},
                                                                  {"class_weight", "0:1,2:2.5"},
                                                                  {"augment", "flip,crop:4,shift:0.25"},
                                                                  {"batch_size", "8"},
                                                                  {"epochs", "2"},
                                                                  {"train_steps", "100"},
                                                                  {"mode", "sync"},
                                                                  {"max_staleness", "3"},
                                                                  {"staleness_aware_learning_rate", "true"},
                                                                  {"train_dir", "run"},
                                                                  {"save_steps", "50"},
                                                                  {"save_secs", "0.5"},
                                                                  {"max_to_keep", "2"},
                                                                  {"resume", "never"},
                                                                  {"lost_workers", "wait"},
                                                                  {"ps_replication", "1"},
                                                                  {"lease", "3.5"},
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
                                                                  {"monitor", "val_accuracy"},
                                                                  {"monitor_mode", "max"},
                                                                  {"min_delta", "0.01"},
                                                                  {"early_stopping", "3"},
                                                                  {"baseline", "-0.5"},
                                                                  {"start_from_epoch", "4"},
                                                                  {"restore_best_weights", "true"},
                                                                  {"reduce_lr_on_plateau", "0.1"},
                                                                  {"plateau_patience", "5"},
                                                                  {"plateau_cooldown", "6"},
                                                                  {"min_learning_rate", "0.001"},
                                                                  {"save_best", "best.safetensors"},
                                                                  {"display_every", "10"},
                                                                  {"summary", "out.json"},
                                                                  {"log_level", "debug"},
                                                                  {"device", "/gpu:1"},
                                                                  {"devices", "/gpu:0,cpu:1"},
                                                                  {"mirrored", "true"},
                                                                  {"place", "conv*=/gpu:0,dense=/cpu:0"},
                                                                  {"micro_batches", "3"},
                                                                  {"cpu_devices", "2"},
                                                                  {"visible_devices", "0,GPU-8932f937"},
                                                                  {"precision", "bf16"},
                                                                  {"per_process_gpu_memory_fraction", "0.5"},
                                                                  {"allow_soft_placement", "true"},
                                                                  {"allow_growth", "true"},
                                                                  {"log_device_placement", "true"},
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
    EXPECT_EQ(options.data.path, "d");
    EXPECT_EQ(options.data.input_scale, 0.5f);
    EXPECT_EQ(options.data.limit, 10);
    EXPECT_EQ(options.data.label_column, "y");
    EXPECT_THAT(options.data.feature_columns, ElementsAre("a", "b"));
    EXPECT_EQ(options.data.label_threshold, 3.5f);
    EXPECT_EQ(options.data.missing_value, -1.0f);
    EXPECT_EQ(options.data.max_bad_rows, 3);
    EXPECT_EQ(options.data.csv_separator, '\t');
    EXPECT_THAT(options.data.class_weights, ElementsAre(Pair(0, 1.0f), Pair(2, 2.5f)));
    EXPECT_TRUE(options.data.augmentation.flip);
    EXPECT_EQ(options.data.augmentation.crop, 4);
    EXPECT_EQ(options.data.augmentation.shift, 0.25f);
    EXPECT_EQ(options.batch_size, 8);
    EXPECT_EQ(options.epochs, 2);
    EXPECT_EQ(options.train_steps, 100);
    EXPECT_EQ(options.mode, "sync");
    EXPECT_EQ(options.replicas_to_aggregate, 2);
    EXPECT_EQ(options.max_staleness, 3);
    EXPECT_TRUE(options.staleness_aware_learning_rate);
    EXPECT_EQ(options.train_dir, "run");
    EXPECT_EQ(options.save_steps, 50);
    EXPECT_EQ(options.save_secs, 0.5);
    EXPECT_EQ(options.max_to_keep, 2);
    EXPECT_EQ(options.resume, "never");
    EXPECT_EQ(options.lost_workers, "wait");
    EXPECT_EQ(options.ps_replication, 1);
    EXPECT_EQ(options.lease_seconds, 3.5);
    EXPECT_EQ(options.optimizer.name, "sgd");
    EXPECT_EQ(options.optimizer.learning_rate, 0.25);
    EXPECT_EQ(options.optimizer.momentum, 0.5);
    EXPECT_EQ(options.optimizer.clipnorm, 2);
    EXPECT_EQ(options.optimizer.weight_decay, 0.004);
    EXPECT_EQ(options.loss, "mse");
    EXPECT_EQ(options.metrics, "mae,mse");
    EXPECT_EQ(options.seed, 7u);
    EXPECT_EQ(options.shard_tail, "pad");
    EXPECT_EQ(options.callbacks.monitor, "val_accuracy");
    EXPECT_EQ(options.callbacks.monitor_mode, "max");
    EXPECT_EQ(options.callbacks.min_delta, 0.01);
    EXPECT_EQ(options.callbacks.early_stopping_patience, 3);
    EXPECT_EQ(options.callbacks.baseline, -0.5);
    EXPECT_EQ(options.callbacks.start_from_epoch, 4);
    EXPECT_TRUE(options.callbacks.restore_best_weights);
    EXPECT_EQ(options.callbacks.plateau_factor, 0.1);
    EXPECT_EQ(options.callbacks.plateau_patience, 5);
    EXPECT_EQ(options.callbacks.plateau_cooldown, 6);
    EXPECT_EQ(options.callbacks.min_learning_rate, 0.001);
    EXPECT_EQ(options.callbacks.save_best, "best.safetensors");
    EXPECT_EQ(options.display_every, 10);
    EXPECT_EQ(options.summary, "out.json");
    EXPECT_EQ(options.log_level, "debug");
    EXPECT_EQ(options.devices.device, "/gpu:1");
    EXPECT_THAT(options.devices.replicas, ElementsAre("/gpu:0", "cpu:1"));
    EXPECT_TRUE(options.devices.mirrored);
    EXPECT_THAT(options.devices.place, ElementsAre("conv*=/gpu:0", "dense=/cpu:0"));
    EXPECT_EQ(options.devices.micro_batches, 3);
    EXPECT_EQ(options.devices.cpu_devices, 2);
    EXPECT_EQ(options.devices.visible_devices, "0,GPU-8932f937");
    EXPECT_EQ(options.devices.cuda.precision, kernels::Precision::kBFloat16);
    EXPECT_EQ(options.devices.cuda.memory_fraction, 0.5);
    EXPECT_TRUE(options.devices.allow_soft_placement);
    EXPECT_TRUE(options.devices.cuda.allow_growth);
    EXPECT_TRUE(options.devices.log_device_placement);
    EXPECT_EQ(options.threads, 2);
    EXPECT_EQ(options.connect_timeout_seconds, 5);
    EXPECT_EQ(options.step_timeout_seconds, 1.5);
  }
}

TEST_F(Options, MissingFlagsKeepTheDefaults) {
  ASSERT_EQ(Parse({}), std::nullopt);
  EXPECT_EQ(options_.mode, "async");
  EXPECT_EQ(options_.batch_size, 32);
  EXPECT_EQ(options_.optimizer.learning_rate, std::nullopt);
  EXPECT_TRUE(std::isnan(options_.data.input_scale));
  EXPECT_EQ(options_.data.missing_value, std::nullopt);
  EXPECT_TRUE(options_.data.augmentation.empty());
  EXPECT_TRUE(options_.shuffle);
  EXPECT_TRUE(options_.validation);
  EXPECT_EQ(options_.devices.device, "auto");
  EXPECT_EQ(options_.devices.cuda.precision, kernels::Precision::kTensorFloat32);
  EXPECT_EQ(options_.devices.cuda.memory_fraction, 1);
}

TEST_F(Options, SyncReplicasSelectsModeSync) {
  ASSERT_EQ(Parse({"--sync_replicas"}), std::nullopt);
  EXPECT_EQ(options_.mode, "sync");
  ASSERT_EQ(Parse({"--nosync-replicas"}), std::nullopt);
  EXPECT_EQ(options_.mode, "async");
  ASSERT_EQ(Parse({"--sync-replicas=True"}), std::nullopt);
  EXPECT_EQ(options_.mode, "sync");
  ASSERT_EQ(Parse({"--sync_replicas=false"}), std::nullopt);
  EXPECT_EQ(options_.mode, "async");
}

TEST_F(Options, SwitchAndItsOppositeAreRefusedTogether) {
  EXPECT_EQ(Parse({"--sync_replicas", "--nosync_replicas"}), ExitCode::kUsage);
  EXPECT_EQ(Parse({"--nosync_replicas", "--sync_replicas"}), ExitCode::kUsage);
}

TEST_F(Options, PlacementRulesAccumulate) {
  ASSERT_EQ(Parse({"--place=a=/cpu:0", "--place=b=/cpu:0,c=/cpu:0"}), std::nullopt);
  EXPECT_EQ(options_.devices.place.size(), 3u);
}

TEST_F(Options, ModeAndSyncReplicasExcludeEachOther) {
  EXPECT_EQ(Parse({"--mode=async", "--sync_replicas"}), ExitCode::kUsage);
  EXPECT_THAT(fault_, HasSubstr("--mode"));
  EXPECT_THAT(fault_, HasSubstr("--sync_replicas"));
}

TEST_F(Options, BadValuesAreRefusedNamingTheFlag) {
  for (const char* argument : {"--batch_size=0",
                               "--epochs=0",
                               "--train_steps=-1",
                               "--replicas_to_aggregate=-1",
                               "--max_staleness=-2",
                               "--save_steps=-1",
                               "--save_secs=-1",
                               "--max_to_keep=-1",
                               "--lost_workers=stay",
                               "--ps_replication=2",
                               "--lease=0",
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
                               "--mode=bsp",
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
                               "--augment=shift:1",
                               "--device=tpu:0",
                               "--visible_devices=0,,1",
                               "--visible_devices=-1",
                               "--precision=fp8",
                               "--per_process_gpu_memory_fraction=0",
                               "--per_process_gpu_memory_fraction=1.5"}) {
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
  EXPECT_EQ(options_.optimizer.global_clipnorm, 1);
}

TEST_F(Options, GivenFlagsGiveTheSameOptionsInAnotherProcess) {
  ASSERT_EQ(Parse({"--nosync_replicas", "--learning-rate", "0.1", "--novalidation", "--model=a b.json"}),
            std::nullopt);
  EXPECT_THAT(GivenFlags(app_, app_), ElementsAre("--model=a b.json", "--validation=false",
                                                  "--sync_replicas=false", "--learning_rate=0.1"));
}

TrainOptions Complete() {
  TrainOptions options;
  options.model = "m.json";
  options.data.path = "d";
  return options;
}

TEST(Validate, ModelAndDataAreSufficient) {
  EXPECT_TRUE(Validate(Complete()).ok());
}

TEST(Validate, NamesTheMissingFlag) {
  EXPECT_EQ(Validate(TrainOptions()).message(), "--model is missing");
  TrainOptions options = Complete();
  options.data.path.clear();
  EXPECT_EQ(Validate(options).message(), "--data_dir is missing");
}

TEST(Validate, FlagsOfOneModeAreRefusedInAnother) {
  TrainOptions options = Complete();
  options.replicas_to_aggregate = 2;
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr("--replicas_to_aggregate needs --sync_replicas"));
  options = Complete();
  options.mode = "sync";
  options.max_staleness = 4;
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("--max_staleness"));
  options = Complete();
  options.mode = "sync";
  options.staleness_aware_learning_rate = true;
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr("--staleness_aware_learning_rate does not go with --sync_replicas"));
  options.mode = "ssp";
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("--mode ssp needs --max_staleness"));
  options.max_staleness = 0;
  EXPECT_EQ(Validate(options), absl::OkStatus());
}

TEST(Validate, CpuRefusesFloat16) {
  TrainOptions options = Complete();
  options.devices.cuda.precision = kernels::Precision::kFloat16;
  EXPECT_TRUE(Validate(options).ok()) << "a GPU may be found";
  options.devices.device = "/cpu:0";
  EXPECT_EQ(Validate(options).message(),
            "--precision fp16 does not go with --device /cpu:0: the CPU computes in fp32 or bf16");
  for (const auto precision : {kernels::Precision::kTensorFloat32, kernels::Precision::kBFloat16}) {
    options.devices.cuda.precision = precision;
    EXPECT_TRUE(Validate(options).ok()) << kernels::NameOf(precision);
  }
}

TEST(Validate, SeveralReplicasExcludeFlagsForOneDevice) {
  TrainOptions options = Complete();
  options.devices.mirrored = true;
  EXPECT_TRUE(Validate(options).ok());
  options.devices.replicas = {"/gpu:0"};
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("--mirrored does not go with --devices"));
  options.devices.mirrored = false;
  options.devices.device = "/gpu:0";
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("--devices does not go with --device"));
  options.devices.device = "auto";
  options.devices.place = {"dense=/gpu:1"};
  EXPECT_THAT(std::string(Validate(options).message()), HasSubstr("--devices does not go with --place"));
  options.devices.place.clear();
  options.devices.micro_batches = 2;
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr("--devices does not go with --micro_batches"));
}

TEST(Validate, AdamHasNoMomentum) {
  TrainOptions options = Complete();
  options.optimizer.name = "adam";
  options.optimizer.momentum = 0.9;
  EXPECT_EQ(Validate(options).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::worker
