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
#include "common/net/direct/transport.h"
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

// "0:1,1:2.5": the contents of Keras' class_weight dict.
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

// Adds a flag whose text is converted by `parse`.
template <typename T>
CLI::Option* AddParsed(CLI::App& app, const char* name, T& value,
                       absl::StatusOr<T> (*parse)(absl::string_view), const char* what) {
  return app
      .add_option_function<std::string>(
          FlagNames(name), [&value, parse](const std::string& text) { value = *parse(text); }, what)
      ->check(CLI::Validator(
          [parse](const std::string& text) { return std::string(parse(text).status().message()); }, ""));
}

void AddWhat(CLI::App& app, TrainOptions& options) {
  const std::string group = "What to train";
  app.add_option(FlagNames("model"), options.model,
                 "The model: Keras' JSON, a .keras file, or the .h5 of a whole model")
      ->type_name("FILE")
      ->group(group);
  app.add_option(
         FlagNames("data_dir"), options.data_dir,
         "Directory with IDX, .npy, CIFAR, CSV or TFRecord files or mnist.npz; or a .npz, .csv or .tfrecord")
      ->type_name("DIR")
      ->group(group);
  app.add_option(
         FlagNames("input_scale"), options.input_scale,
         "Inputs are multiplied by this [1/255 for bytes that the model does not scale itself, else 1]")
      ->check(NumberAbove(0))
      ->type_name("X")
      ->group(group);
  app.add_option(FlagNames("limit_examples"), options.limit_examples,
                 "Use only so many of each set; 0 is all")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
}

void AddData(CLI::App& app, TrainOptions& options) {
  const std::string group = "How the data is read";
  app.add_option(FlagNames("label_column"), options.label_column,
                 "CSV, TFRecord: the label's name, or index in CSV [label, target or class; TFRecord: also "
                 "y; CSV: else the last]")
      ->type_name("NAME")
      ->group(group);
  AddParsed(app, "feature_column", options.feature_columns, &ParseNames,
            "CSV, TFRecord: the inputs' names, in order [CSV: all but the label; TFRecord: image, x, ...]")
      ->type_name("NAME,...")
      ->group(group);
  app.add_option_function<float>(
         FlagNames("missing_value"), [&options](const float& value) { options.missing_value = value; },
         "CSV: what an empty field stands for [it is a fault]")
      ->check(NumberBetween(std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()))
      ->type_name("X")
      ->group(group);
  app.add_option(FlagNames("max_bad_rows"), options.max_bad_rows,
                 "CSV, TFRecord: leave out so many faulty rows of each set")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  AddParsed(app, "csv_separator", options.csv_separator, &data::ParseCsvSeparator,
            "CSV: comma, semicolon, tab, space or a character [as the first lines show]")
      ->type_name("NAME|C")
      ->group(group);
  AddParsed(app, "class_weight", options.class_weights, &ParseClassWeights,
            "How much each class counts in training, as 0:1,1:2.5 [1]")
      ->type_name("CLASS:WEIGHT,...")
      ->group(group);
  AddParsed(app, "augment", options.augmentation, &data::ParseAugmentation,
            "Vary training images: flip, crop:PIXELS (after padding), shift:PART")
      ->type_name("HOW,...")
      ->group(group);
}

void AddHowLong(CLI::App& app, TrainOptions& options) {
  const std::string group = "How long";
  const auto add = [&](const char* name, int64_t& value, int64_t minimum, const char* what) {
    app.add_option(FlagNames(name), value, what)
        ->check(WholeNumberFrom(minimum))
        ->capture_default_str()
        ->type_name("N")
        ->group(group);
  };
  add("batch_size", options.batch_size, 1, "Examples per step and worker");
  add("epochs", options.epochs, 1, "Passes over the training set");
  add("train_steps", options.train_steps, 0, "Global steps; 0: as many as the epochs take");
}

void AddHow(CLI::App& app, TrainOptions& options) {
  const std::string group = "How updates are made";
  CLI::Option* mode =
      app.add_option(FlagNames("mode"), options.mode,
                     "When gradients are applied; allreduce: as sync, by the workers alone, without "
                     "servers")
          ->check(OneOf({"sync", "async", "ssp", "allreduce"}))
          ->capture_default_str()
          ->group(group);
  app.add_flag_function(
         SwitchNames("sync_replicas"), [&options](int64_t yes) { options.mode = yes > 0 ? "sync" : "async"; },
         "The same as --mode sync, or --mode async")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->excludes(mode)
      ->group(group);
  app.add_option(FlagNames("replicas_to_aggregate"), options.replicas_to_aggregate,
                 "sync: a round closes with so many gradients; 0 is all workers")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
  app.add_option(
         FlagNames("max_staleness"), options.max_staleness,
         "async: refuse gradients older than so many versions; -1 is no limit. ssp: how many pushes a "
         "worker may be ahead of the slowest")
      ->check(WholeNumberFrom(-1))
      ->type_name("N")
      ->group(group);
  app.add_flag(SwitchNames("staleness_aware_learning_rate"), options.staleness_aware_learning_rate,
               "async, ssp: each update at the learning rate divided by its staleness")
      ->group(group);
  app.add_option(FlagNames("optimizer"), options.optimizer, "Instead of the model file's")
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
             "Instead of the model file's, schedule or number");
  add_number("momentum", options.momentum, NumberBetween(0, 1), "Instead of the model file's");
  CLI::Option* clipvalue =
      add_number("clipvalue", options.clipvalue, NumberFrom(0),
                 "Largest element of a gradient, instead of the model file's clipping; 0 is none");
  CLI::Option* clipnorm = add_number("clipnorm", options.clipnorm, NumberFrom(0),
                                     "Largest norm of a variable's gradient, likewise")
                              ->excludes(clipvalue);
  add_number("global_clipnorm", options.global_clipnorm, NumberFrom(0),
             "Largest norm of all gradients together, likewise")
      ->excludes(clipvalue)
      ->excludes(clipnorm);
  add_number(
      "weight_decay", options.weight_decay, NumberFrom(0),
      "Times the learning rate, what a variable loses of itself per update; instead of the model file's");
  app.add_option(FlagNames("loss"), options.loss, "Instead of the model file's")
      ->type_name("NAME")
      ->group(group);
  app.add_option(FlagNames("metrics"), options.metrics, "Instead of the model file's: accuracy,mse")
      ->type_name("NAME,...")
      ->group(group);
  app.add_option(FlagNames("seed"), options.seed,
                 "Of initial values, the order of examples, augmentation and dropout")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("shard_tail"), options.shard_tail,
                 "What workers do with examples that do not divide")
      ->check(OneOf({"exact", "pad", "drop"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag(SwitchNames("shuffle"), options.shuffle, "A new order of the examples in each epoch [yes]")
      ->group(group);
}

void AddWho(CLI::App& app, TrainOptions& options) {
  const std::string group = "Who takes part";
  app.add_option(
         FlagNames("data_sharding"), options.data_sharding,
         "static: each worker has its part of every epoch; dynamic: batches are handed out to whoever is "
         "there, each example once [static; with --elastic dynamic]")
      ->check(OneOf({"static", "dynamic"}))
      ->group(group);
  CLI::Option* elastic =
      app.add_flag(
             SwitchNames("elastic"), options.elastic,
             "Workers may join while the job runs, also such that the cluster does not list, and leave it")
          ->group(group);
  const auto add = [&](const char* name, int64_t& value, int64_t least, const char* what) {
    app.add_option(FlagNames(name), value, what)
        ->check(NumberBetween(static_cast<double>(least), 4096))
        ->needs(elastic)
        ->capture_default_str()
        ->type_name("N")
        ->group(group);
  };
  add("min_workers", options.min_workers, 1, "With fewer the job stands still, at most for --step_timeout");
  add("max_workers", options.max_workers, 0, "More wait for a place; 0: no limit");
}

void AddEpochEnds(CLI::App& app, TrainOptions& options) {
  const std::string group = "At an epoch's end (as Keras' callbacks)";
  app.add_option(FlagNames("monitor"), options.monitor,
                 "The metric that decides, as the progress line has it")
      ->capture_default_str()
      ->type_name("NAME")
      ->group(group);
  app.add_option(FlagNames("monitor_mode"), options.monitor_mode,
                 "Whether it should fall or rise; auto: as the metric does")
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
             "What less than this is no improvement [0 to stop, 0.0001 to reduce]");
  CLI::Option* stop =
      app.add_option_function<int64_t>(
             FlagNames("early_stopping"),
             [&options](const int64_t& patience) { options.early_stopping_patience = patience; },
             "End the job for all after so many epochs without improvement")
          ->check(WholeNumberFrom(0))
          ->type_name("PATIENCE")
          ->group(group);
  add_number("baseline", options.baseline,
             NumberBetween(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()),
             "Epochs count as improved only beyond this too")
      ->needs(stop);
  app.add_option(FlagNames("start_from_epoch"), options.start_from_epoch, "Epochs that are not looked at")
      ->check(WholeNumberFrom(0))
      ->needs(stop)
      ->type_name("N")
      ->group(group);
  app.add_flag(SwitchNames("restore_best_weights"), options.restore_best_weights,
               "The best epoch's parameters are the result, not the last's")
      ->needs(stop)
      ->group(group);
  CLI::Option* reduce = add_number("reduce_lr_on_plateau", options.plateau_factor, NumberBetween(0, 1),
                                   "Multiply the learning rate by this when nothing improves")
                            ->type_name("FACTOR");
  const auto add_epochs = [&](const char* name, int64_t& epochs, const char* what) {
    app.add_option(FlagNames(name), epochs, what)
        ->check(WholeNumberFrom(0))
        ->needs(reduce)
        ->capture_default_str()
        ->type_name("N")
        ->group(group);
  };
  add_epochs("plateau_patience", options.plateau_patience, "After so many epochs without improvement");
  add_epochs("plateau_cooldown", options.plateau_cooldown, "Then wait so many epochs before counting again");
  app.add_option(FlagNames("min_learning_rate"), options.min_learning_rate, "It is not reduced below")
      ->check(NumberFrom(0))
      ->needs(reduce)
      ->capture_default_str()
      ->type_name("X")
      ->group(group);
  app.add_option(FlagNames("save_best"), options.save_best,
                 "Write the parameters whenever the metric improves, as float32 under Keras' names")
      ->type_name("FILE.safetensors")
      ->group(group);
}

void AddWhatItTells(CLI::App& app, TrainOptions& options) {
  const std::string group = "What it tells";
  app.add_flag(SwitchNames("validation"), options.validation,
               "Evaluate the validation set after each epoch [yes]")
      ->group(group);
  app.add_option(FlagNames("display_every"), options.display_every,
                 "On no terminal, a line every so many steps; 0: one line per epoch")
      ->check(WholeNumberFrom(0))
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("summary"), options.summary, "Write one JSON object about the run at its end")
      ->type_name("FILE")
      ->group(group);
  app.add_option(FlagNames("export_dir"), options.export_dir,
                 "Write the trained model there at the end: model.onnx, model.safetensors, model.json")
      ->type_name("DIR")
      ->group(group);
  app.add_option(FlagNames("histogram_freq"), options.histogram_freq,
                 "TensorBoard: histograms of weights and gradients every so many epochs; 0: none")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("update_freq"), options.update_freq,
                 "TensorBoard: metrics every so many steps, not only at an epoch's end; 0: not")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  AddLogLevelFlag(app, options.log_level)->group(group);
  AddLogFormatFlag(app, options.log_format)->group(group);
}

void AddCheckpoints(CLI::App& app, TrainOptions& options) {
  const std::string group = "What is kept, and gone on from";
  app.add_option(FlagNames("train_dir"), options.train_dir,
                 "Directory for checkpoints, TensorBoard's files and log.csv; a server that is lost is given "
                 "back the "
                 "newest checkpoint")
      ->type_name("DIR")
      ->group(group);
  app.add_option(FlagNames("save_steps"), options.save_steps,
                 "A checkpoint every so many steps; 0: by time alone")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("save_secs"), options.save_secs,
                 "Likewise every so many seconds; 0: by steps alone")
      ->check(NumberBetween(0, 1e9))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
  app.add_option(FlagNames("max_to_keep"), options.max_to_keep, "So many of the newest are kept; 0: all")
      ->check(WholeNumberFrom(0))
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  app.add_option(FlagNames("resume"), options.resume,
                 "auto: go on from the newest in --train_dir; never; or another DIR, of a run or a step")
      ->capture_default_str()
      ->type_name("auto|never|DIR")
      ->group(group);
  app.add_option(
         FlagNames("init_from"), options.init_from,
         "Initial values of the variables: Keras' .keras or .h5, .safetensors or .npz under Keras' names, "
         "another run's newest checkpoint, or none: the model's initializers; a resumed checkpoint comes "
         "first [those in the model file, if it holds any]")
      ->type_name("FILE|DIR|none")
      ->group(group);
  app.add_option(FlagNames("lost_workers"), options.lost_workers,
                 "What a synchronous round does without a worker that is lost")
      ->check(OneOf({"leave", "wait"}))
      ->capture_default_str()
      ->type_name("leave|wait")
      ->group(group);
  app.add_option(FlagNames("ps_replication"), options.ps_replication,
                 "1: each server's part has a live copy on another, which takes its place when it is lost")
      ->check(CLI::Range(0, 1))
      ->capture_default_str()
      ->type_name("0|1")
      ->group(group);
  app.add_option(FlagNames("lease"), options.lease_seconds,
                 "A worker that is not heard of for so long is lost")
      ->check(NumberAbove(0))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
}

void AddLimits(CLI::App& app, TrainOptions& options) {
  const std::string group = "Limits and resources";
  app.add_option(FlagNames("threads"), options.threads, "Threads that compute; 0 divides the host's cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->type_name("N")
      ->group(group);
  app.add_flag(
         SwitchNames("deterministic"), options.deterministic,
         "The same bits whatever --threads says: work is split as for four threads, on as many cores as "
         "--threads")
      ->group(group);
  app.add_option(FlagNames("connect_timeout"), options.connect_timeout_seconds,
                 "Until servers are reached, variables ready and workers joined")
      ->check(NumberAbove(0))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
  AddWireFlags(app, options.wire, group);
  app.add_option(FlagNames("transport"), options.transport,
                 "How gradients and values travel: on this host shm (as auto) or unix; tcp; or only by grpc")
      ->check(OneOf(net::kTransportWords));
  app.add_option(
         FlagNames("allreduce"), options.allreduce,
         "How --mode allreduce adds up gradients: by NCCL where every worker computes on a GPU of its own "
         "(auto), or around the ring, through the host's memory")
      ->check(OneOf({"auto", "ring"}))
      ->capture_default_str()
      ->group(group);
  app.add_option(FlagNames("step_timeout"), options.step_timeout_seconds,
                 "For the servers' answer to one step")
      ->check(NumberAbove(0))
      ->capture_default_str()
      ->type_name("SECONDS")
      ->group(group);
}

}  // namespace

void AddTrainOptions(CLI::App& app, TrainOptions& options) {
  AddWhat(app, options);
  AddData(app, options);
  AddHowLong(app, options);
  AddHow(app, options);
  AddWho(app, options);
  AddEpochEnds(app, options);
  AddCheckpoints(app, options);
  AddWhatItTells(app, options);
  AddDeviceFlags(app, options);
  AddLimits(app, options);
}

}  // namespace cairn::worker
