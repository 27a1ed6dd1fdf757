#include "worker/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/cores.h"
#include "common/core/flags.h"
#include "common/net/data_channel/transport.h"
#include "worker/data/csv_schema.h"
#include "worker/device_flags.h"

namespace cairn::worker {
namespace {

absl::StatusOr<std::vector<std::string>> ParseNames(absl::string_view text) {
  std::vector<std::string> names = absl::StrSplit(text, ',');
  if (std::find(names.begin(), names.end(), "") != names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' contains an empty column name"));
  }
  return names;
}

// Parses "0:1,1:2.5": the entries of a Keras class_weight dictionary.
absl::StatusOr<std::map<int64_t, float>> ParseClassWeights(absl::string_view text) {
  std::map<int64_t, float> weights;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    int64_t label = 0;
    float weight = 0;
    if (!absl::SimpleAtoi(pair.first, &label) || label < 0 || !absl::SimpleAtof(pair.second, &weight) ||
        !(weight >= 0) || !std::isfinite(weight)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is not CLASS:WEIGHT, a class index and a number of at least 0"));
    }
    if (!weights.emplace(label, weight).second) {
      return absl::InvalidArgumentError(absl::StrCat("class ", label, " has two weights"));
    }
  }
  return weights;
}

// Declares a flag whose value is parsed by `parse`.
template <typename T>
CLI::Option* AddParsed(CLI::App& app, const char* name, T& value,
                       absl::StatusOr<T> (*parse)(absl::string_view), const char* what) {
  return app
      .add_option_function<std::string>(
          FlagNames(name), [&value, parse](const std::string& text) { value = *parse(text); }, what)
      ->check(CLI::Validator(
          [parse](const std::string& text) { return std::string(parse(text).status().message()); }, ""));
}

void AddModel(CLI::App& app, TrainOptions& options) {
  const std::string group = "Model";
  app.add_option(FlagNames("model"), options.model,
                 "Model file: Keras JSON, .keras, or a .h5 file with a whole model")
      ->type_name("FILE")
      ->group(group);
  app.add_option(
         FlagNames("init_from"), options.init_from,
         "Initial values of the variables: a .keras, .h5, .safetensors or .npz file with Keras' names, "
         "the newest checkpoint of another run, or none for the model's initializers; a resumed "
         "checkpoint takes precedence [the weights in the model file, if any]")
      ->type_name("FILE|DIR|none")
      ->group(group);
  app.add_option(FlagNames("export_dir"), options.export_dir,
                 "After training, write model.onnx, model.safetensors and model.json to this directory")
      ->type_name("DIR")
      ->group(group);
}

void AddData(CLI::App& app, TrainOptions& options) {
  const std::string group = "Data";
  app.add_option(
         FlagNames("data_dir"), options.data_dir,
         "Directory with IDX, .npy, CIFAR, CSV or TFRecord files or with mnist.npz; or one .npz, .csv "
         "or .tfrecord file")
      ->type_name("DIR")
      ->group(group);
  app.add_option(FlagNames("input_scale"), options.input_scale,
                 "Factor that all inputs are multiplied by [1/255 for bytes, unless the model rescales them "
                 "itself; otherwise 1]")
      ->check(NumberAbove(0))
      ->type_name("X")
      ->group(group);
  app.add_option(FlagNames("limit_examples"), options.limit_examples,
                 "Use only the first N examples of each set; 0: all")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("label_column"), options.label_column,
                 "CSV, TFRecord: name of the label column, in CSV files also its index [label, target or "
                 "class; in TFRecord files also y; in CSV files otherwise the last column]")
      ->type_name("NAME")
      ->group(group);
  AddParsed(
      app, "feature_column", options.feature_columns, &ParseNames,
      "CSV, TFRecord: names of the input columns, in order [CSV: all except the label; TFRecord: image, "
      "x, ...]")
      ->type_name("NAME,...")
      ->group(group);
  app.add_option_function<float>(
         FlagNames("missing_value"), [&options](const float& value) { options.missing_value = value; },
         "CSV: value of an empty field [an empty field is an error]")
      ->check(NumberBetween(std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()))
      ->type_name("X")
      ->group(group);
  app.add_option(FlagNames("max_bad_rows"), options.max_bad_rows,
                 "CSV, TFRecord: skip up to N invalid rows of each set")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  AddParsed(app, "csv_separator", options.csv_separator, &data::ParseCsvSeparator,
            "CSV: comma, semicolon, tab, space, or any single character [detected from the first lines]")
      ->type_name("NAME|C")
      ->group(group);
  AddParsed(app, "class_weight", options.class_weights, &ParseClassWeights,
            "Weight of each class in the training loss, for example 0:1,1:2.5 [1 for every class]")
      ->type_name("CLASS:WEIGHT,...")
      ->group(group);
  AddParsed(app, "augment", options.augmentation, &data::ParseAugmentation,
            "Augment training images: flip, crop:PIXELS (random crop after padding), shift:FRACTION")
      ->type_name("HOW,...")
      ->group(group);
  app.add_flag(SwitchNames("shuffle"), options.shuffle, "Shuffle the training examples in every epoch [yes]")
      ->group(group);
  app.add_option(FlagNames("shard_tail"), options.shard_tail,
                 "Examples that do not divide evenly among the workers: exact: smaller last batches; pad: "
                 "repeat examples; drop: leave them out")
      ->check(OneOf({"exact", "pad", "drop"}))
      ->capture_default_str()
      ->group(group);
  app.add_option(FlagNames("data_sharding"), options.data_sharding,
                 "static: each worker has a fixed share of every epoch; dynamic: batches are assigned to "
                 "workers on demand [static; dynamic with --elastic]")
      ->check(OneOf({"static", "dynamic"}))
      ->group(group);
}

void AddTraining(CLI::App& app, TrainOptions& options) {
  const std::string group = "Training";
  const auto add = [&](const char* name, int64_t& value, int64_t minimum, const char* what) {
    app.add_option(FlagNames(name), value, what)
        ->check(WholeNumberFrom(minimum))
        ->capture_default_str()
        ->type_name("N")
        ->group(group);
  };
  add("batch_size", options.batch_size, 1, "Examples per step and worker");
  add("epochs", options.epochs, 1, "Passes over the training set");
  add("train_steps", options.train_steps, 0, "Global steps to train; 0: as many as --epochs needs");
  app.add_option(FlagNames("loss"), options.loss, "Loss function, by Keras' name [from the model file]")
      ->type_name("NAME")
      ->group(group);
  app.add_option(FlagNames("metrics"), options.metrics,
                 "Metrics, by Keras' names, for example accuracy,mse [from the model file]")
      ->type_name("NAME,...")
      ->group(group);
  app.add_flag(SwitchNames("validation"), options.validation,
               "Evaluate the validation set after every epoch [yes]")
      ->group(group);
  app.add_option(FlagNames("seed"), options.seed,
                 "Seed of initial values, shuffling, augmentation and dropout")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
}

void AddSynchronization(CLI::App& app, TrainOptions& options) {
  const std::string group = "Synchronization";
  CLI::Option* mode =
      app.add_option(
             FlagNames("mode"), options.mode,
             "When gradients are applied: sync: in rounds; async: as they arrive; ssp: as they arrive, "
             "with bounded staleness (--max_staleness); allreduce: synchronous, without servers")
          ->check(OneOf({"sync", "async", "ssp", "allreduce"}))
          ->capture_default_str()
          ->group(group);
  app.add_flag_function(
         SwitchNames("sync_replicas"), [&options](int64_t yes) { options.mode = yes > 0 ? "sync" : "async"; },
         "Same as --mode sync; --nosync_replicas: same as --mode async")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->excludes(mode)
      ->group(group);
  app.add_option(FlagNames("replicas_to_aggregate"), options.replicas_to_aggregate,
                 "sync: gradients that close a round; 0: one from every worker")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("max_staleness"), options.max_staleness,
                 "async: reject gradients that are more than N versions old; -1: no limit. ssp: a "
                 "worker that is more than N pushes ahead of the slowest worker waits")
      ->check(WholeNumberFrom(-1))
      ->type_name("N")
      ->group(group);
  app.add_flag(SwitchNames("staleness_aware_learning_rate"), options.staleness_aware_learning_rate,
               "async, ssp: divide the learning rate of each update by the staleness of its gradient")
      ->group(group);
}

void AddOptimizer(CLI::App& app, TrainOptions& options) {
  const std::string group = "Optimizer";
  app.add_option(FlagNames("optimizer"), options.optimizer, "Optimizer, by Keras' name [from the model file]")
      ->type_name("NAME")
      ->group(group);
  const auto add_number = [&](const char* name, std::optional<double>& number, const CLI::Validator& check,
                              const char* what) {
    return app
        .add_option_function<double>(
            FlagNames(name), [&number](const double& value) { number = value; }, what)
        ->check(check)
        ->type_name("X")
        ->group(group);
  };
  add_number("learning_rate", options.learning_rate, NumberFrom(0),
             "Constant learning rate, instead of the model file's value or schedule [from the model file]");
  add_number("momentum", options.momentum, NumberBetween(0, 1), "Momentum [from the model file]");
  CLI::Option* clipvalue =
      add_number("clipvalue", options.clipvalue, NumberFrom(0),
                 "Clip each element of a gradient to [-X, X]; 0: no clipping [from the model file]");
  CLI::Option* clipnorm =
      add_number("clipnorm", options.clipnorm, NumberFrom(0),
                 "Clip each variable's gradient to this norm; 0: no clipping [from the model file]")
          ->excludes(clipvalue);
  add_number("global_clipnorm", options.global_clipnorm, NumberFrom(0),
             "Clip all gradients together to this global norm; 0: no clipping [from the model file]")
      ->excludes(clipvalue)
      ->excludes(clipnorm);
  add_number("weight_decay", options.weight_decay, NumberFrom(0),
             "Decoupled weight decay: each update subtracts X * learning rate * variable [from the model "
             "file]");
}

void AddElastic(CLI::App& app, TrainOptions& options) {
  const std::string group = "Elastic training";
  CLI::Option* elastic =
      app.add_flag(SwitchNames("elastic"), options.elastic,
                   "Workers may join and leave a running job, including workers that the cluster does not "
                   "list")
          ->group(group);
  const auto add = [&](const char* name, int64_t& value, int64_t least, const char* what) {
    app.add_option(FlagNames(name), value, what)
        ->check(NumberBetween(static_cast<double>(least), 4096))
        ->needs(elastic)
        ->capture_default_str()
        ->type_name("N")
        ->group(group);
  };
  add("min_workers", options.min_workers, 1,
      "Training pauses while there are fewer workers, for at most --step_timeout");
  add("max_workers", options.max_workers, 0, "Additional workers wait until another one leaves; 0: no limit");
}

void AddCallbacks(CLI::App& app, TrainOptions& options) {
  const std::string group = "Callbacks";
  app.add_option(FlagNames("monitor"), options.monitor,
                 "Metric that the callbacks observe, named as in the progress line")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  app.add_option(FlagNames("monitor_mode"), options.monitor_mode,
                 "Whether the metric should decrease (min) or increase (max); auto: as the metric requires")
      ->check(OneOf({"auto", "min", "max"}))
      ->capture_default_str()
      ->group(group);
  const auto add_number = [&](const char* name, std::optional<double>& number, const CLI::Validator& check,
                              const char* what) {
    return app
        .add_option_function<double>(
            FlagNames(name), [&number](const double& value) { number = value; }, what)
        ->check(check)
        ->type_name("X")
        ->group(group);
  };
  add_number("min_delta", options.min_delta, NumberFrom(0),
             "Smallest change that counts as an improvement [0 for --early_stopping, 0.0001 for "
             "--reduce_lr_on_plateau]");
  CLI::Option* stop =
      app.add_option_function<int64_t>(
             FlagNames("early_stopping"),
             [&options](const int64_t& patience) { options.early_stopping_patience = patience; },
             "End the job for all workers after PATIENCE epochs without improvement")
          ->check(WholeNumberFrom(0))
          ->type_name("PATIENCE")
          ->group(group);
  add_number("baseline", options.baseline,
             NumberBetween(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()),
             "Value that the metric must also pass to count as improved")
      ->needs(stop);
  app.add_option(FlagNames("start_from_epoch"), options.start_from_epoch,
                 "Number of initial epochs that early stopping ignores")
      ->check(WholeNumberFrom(0))
      ->needs(stop)
      ->type_name("N")
      ->group(group);
  app.add_flag(SwitchNames("restore_best_weights"), options.restore_best_weights,
               "The result has the parameters of the best epoch, not of the last one")
      ->needs(stop)
      ->group(group);
  CLI::Option* reduce = add_number("reduce_lr_on_plateau", options.plateau_factor, NumberBetween(0, 1),
                                   "Multiply the learning rate by FACTOR when the metric stops improving")
                            ->type_name("FACTOR");
  const auto add_epochs = [&](const char* name, int64_t& epochs, const char* what) {
    app.add_option(FlagNames(name), epochs, what)
        ->check(WholeNumberFrom(0))
        ->needs(reduce)
        ->capture_default_str()
        ->type_name("N")
        ->group(group);
  };
  add_epochs("plateau_patience", options.plateau_patience,
             "Epochs without improvement before the learning rate is reduced");
  add_epochs("plateau_cooldown", options.plateau_cooldown,
             "Epochs after a reduction before epochs without improvement are counted again");
  app.add_option(FlagNames("min_learning_rate"), options.min_learning_rate,
                 "Lower bound of the reduced learning rate")
      ->check(NumberFrom(0))
      ->needs(reduce)
      ->capture_default_str()
      ->type_name("X")
      ->group(group);
  app.add_option(FlagNames("save_best"), options.save_best,
                 "Write the parameters to this file whenever the metric improves, as float32 with Keras' "
                 "names")
      ->type_name("FILE.safetensors")
      ->group(group);
}

void AddCheckpoints(CLI::App& app, TrainOptions& options) {
  const std::string group = "Checkpoints and resume";
  app.add_option(FlagNames("train_dir"), options.train_dir,
                 "Directory for checkpoints, TensorBoard event files and log.csv; also used to restore a "
                 "server that failed")
      ->type_name("DIR")
      ->group(group);
  app.add_option(FlagNames("save_steps"), options.save_steps,
                 "Save a checkpoint every N steps; 0: only by time")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("save_secs"), options.save_secs,
                 "Save a checkpoint at this interval; 0: only by steps")
      ->check(NumberBetween(0, 1e9))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
  app.add_option(FlagNames("max_to_keep"), options.max_to_keep,
                 "Number of newest checkpoints to keep; 0: all")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("resume"), options.resume,
                 "auto: resume from the newest checkpoint in --train_dir, if any; never: start at step 0, "
                 "and refuse a --train_dir that has checkpoints; DIR: resume from this checkpoint, or from "
                 "the newest one of this other --train_dir")
      ->capture_default_str()
      ->type_name("auto|never|DIR")
      ->group(group);
}

void AddFaultTolerance(CLI::App& app, TrainOptions& options) {
  const std::string group = "Fault tolerance";
  app.add_option(FlagNames("ps_replication"), options.ps_replication,
                 "1: every server's shard has a live backup on another server, which takes over when the "
                 "server fails; 0: no backups")
      ->check(WholeNumberBetween(0, 1))
      ->capture_default_str()
      ->type_name("0|1")
      ->group(group);
  app.add_option(FlagNames("lost_workers"), options.lost_workers,
                 "sync: leave: rounds close without a failed worker; wait: rounds wait until it is back")
      ->check(OneOf({"leave", "wait"}))
      ->capture_default_str()
      ->group(group);
  app.add_option(FlagNames("lease"), options.lease_seconds,
                 "A worker counts as failed after this time without a heartbeat")
      ->check(NumberAbove(0))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
  app.add_option(FlagNames("connect_timeout"), options.connect_timeout_seconds,
                 "Time limit when a worker starts or rejoins: servers reachable, variables initialized; "
                 "--mode allreduce: all workers connected")
      ->check(NumberAbove(0))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
  app.add_option(FlagNames("step_timeout"), options.step_timeout_seconds,
                 "Time limit for the servers' answer to one step")
      ->check(NumberAbove(0))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
}

void AddLogging(CLI::App& app, TrainOptions& options) {
  const std::string group = kLoggingGroup;
  AddLogLevelFlag(app, options.log_level);
  AddLogFormatFlag(app, options.log_format);
  app.add_option(FlagNames("display_every"), options.display_every,
                 "If stdout is not a terminal: log progress every N steps; 0: once per epoch")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("summary"), options.summary,
                 "After training, write a summary of the run to this file, as one JSON object")
      ->type_name("FILE")
      ->group(group);
}

void AddTensorBoard(CLI::App& app, TrainOptions& options) {
  const std::string group = "TensorBoard";
  app.add_option(FlagNames("histogram_freq"), options.histogram_freq,
                 "Write histograms of weights and gradients every N epochs; 0: never")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("update_freq"), options.update_freq,
                 "Write metrics every N steps in addition to every epoch; 0: every epoch only")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
}

void AddResources(CLI::App& app, TrainOptions& options) {
  const std::string group = "Resources";
  app.add_option(FlagNames("threads"), options.threads,
                 "Compute threads; 0: the host's cores divided by its tasks")
      ->check(WholeNumberBetween(0, kMaxThreads))
      ->type_name("N")
      ->group(group);
  app.add_flag(SwitchNames("deterministic"), options.deterministic,
               "Bitwise identical results for any --threads: work is always divided as for four threads")
      ->group(group);
}

void AddNetwork(CLI::App& app, TrainOptions& options) {
  app.add_option(FlagNames("transport"), options.transport,
                 "Transport of gradients and values: auto: shm on the same host, tcp between hosts; shm: "
                 "shared memory; unix: Unix sockets; tcp: TCP; grpc: only gRPC [auto]")
      ->check(OneOf(net::kTransportWords))
      ->group(kNetworkGroup);
  app.add_option(FlagNames("allreduce"), options.allreduce,
                 "--mode allreduce: auto: NCCL if every worker computes on its own GPU, otherwise the ring; "
                 "ring: always a ring through host memory")
      ->check(OneOf({"auto", "ring"}))
      ->capture_default_str()
      ->group(kNetworkGroup);
  AddWireFlags(app, options.wire, "Gradient compression");
}

}  // namespace

void AddTrainOptions(CLI::App& app, TrainOptions& options) {
  AddModel(app, options);
  AddData(app, options);
  AddTraining(app, options);
  AddSynchronization(app, options);
  AddOptimizer(app, options);
  AddCallbacks(app, options);
  AddCheckpoints(app, options);
  AddFaultTolerance(app, options);
  AddElastic(app, options);
  AddDeviceFlags(app, options);
  AddResources(app, options);
  AddNetwork(app, options);
  AddLogging(app, options);
  AddTensorBoard(app, options);
}

}  // namespace cairn::worker
