#include "worker/options/options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/flags/flag_table.h"
#include "common/flags/flags.h"
#include "common/net/data_channel/transport.h"
#include "common/system/cores.h"
#include "data/csv/csv_schema.h"
#include "data/length_buckets.h"
#include "nn/input_sizes.h"

namespace cairn::worker {
namespace {

absl::StatusOr<std::vector<std::string>> ParseNames(absl::string_view text) {
  std::vector<std::string> names = absl::StrSplit(text, ',');
  if (std::find(names.begin(), names.end(), "") != names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' contains an empty column name"));
  }
  return names;
}

// Parses "16,32,64".
absl::StatusOr<std::vector<int64_t>> ParseBoundaries(absl::string_view text) {
  std::vector<int64_t> boundaries;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const int64_t last = boundaries.empty() ? 0 : boundaries.back();
    if (!absl::SimpleAtoi(part, &boundaries.emplace_back()) || boundaries.back() <= last) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is not a whole number above ", last, ", as in 16,32,64"));
    }
  }
  if (boundaries.size() >= data::kMaxBuckets) {
    return absl::InvalidArgumentError(
        absl::StrCat(boundaries.size(), " lengths; at most ", data::kMaxBuckets - 1, " are supported"));
  }
  return boundaries;
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

void AddModel(CLI::App& app, TrainOptions& options) {
  AddFlags(
      app, "Model",
      {{"--model FILE", &options.model, "Model file: Keras JSON, .keras, or a .h5 file with a whole model"},
       {"--init_from FILE|DIR|none", &options.init_from,
        "Initial values of the variables: a .keras, .h5, .safetensors or .npz file with Keras' names, "
        "the newest checkpoint of another run, or none for the model's initializers; a resumed "
        "checkpoint takes precedence [the weights in the model file, if any]"},
       {"--export_dir DIR", &options.export_dir,
        "After training, write model.onnx, model.safetensors and model.json to this directory"}});
}

void AddTraining(CLI::App& app, TrainOptions& options) {
  AddFlags(app, "Training",
           {{"--batch_size N", &options.batch_size, "Examples per step and worker", WholeNumberFrom(1)},
            {"--epochs N", &options.epochs, "Passes over the training set", WholeNumberFrom(1)},
            {"--train_steps N", &options.train_steps, "Global steps to train; 0: as many as --epochs needs",
             WholeNumberFrom(0)},
            {"--loss NAME", &options.loss, "Loss function, by Keras' name [from the model file]"},
            {"--metrics NAME,...", &options.metrics,
             "Metrics, by Keras' names, for example accuracy,mse [from the model file]"},
            {"--[no]validation", &options.validation, "Evaluate the validation set after every epoch [yes]"},
            {"--seed N", &options.seed, "Seed of initial values, shuffling, augmentation and dropout",
             WholeNumberFrom(0)}});
}

void AddSynchronization(CLI::App& app, TrainOptions& options) {
  AddFlags(
      app, "Synchronization",
      {{"--mode", &options.mode,
        "When gradients are applied: sync: in rounds; async: as they arrive; ssp: as they arrive, with "
        "bounded staleness (--max_staleness); allreduce: synchronous, without servers",
        OneOf({"sync", "async", "ssp", "allreduce"})},
       {"--[no]sync_replicas", SwitchReader([&options](bool yes) { options.mode = yes ? "sync" : "async"; }),
        "Same as --mode sync; --nosync_replicas: same as --mode async"},
       {"--replicas_to_aggregate N", &options.replicas_to_aggregate,
        "sync: gradients that close a round; 0: one from every worker", WholeNumberFrom(0), kDefaultInText},
       {"--max_staleness N", &options.max_staleness,
        "async: reject gradients that are more than N versions old; -1: no limit. ssp: a worker that is more "
        "than N pushes ahead of the slowest worker waits",
        WholeNumberFrom(-1), kDefaultInText},
       {"--[no]staleness_aware_learning_rate", &options.staleness_aware_learning_rate,
        "async, ssp: divide the learning rate of each update by the staleness of its gradient"}});
  AddRules(app, {{"--sync_replicas", kExcludes, "--mode"}});
}

void AddOptimizer(CLI::App& app, OptimizerFlags& flags) {
  AddFlags(
      app, "Optimizer",
      {{"--optimizer NAME", &flags.name, "Optimizer, by Keras' name [from the model file]"},
       {"--learning_rate X", &flags.learning_rate,
        "Constant learning rate, instead of the model file's value or schedule [from the model file]",
        NumberFrom(0)},
       {"--momentum X", &flags.momentum, "Momentum [from the model file]", NumberBetween(0, 1)},
       {"--clipvalue X", &flags.clipvalue,
        "Clip each element of a gradient to [-X, X]; 0: no clipping [from the model file]", NumberFrom(0)},
       {"--clipnorm X", &flags.clipnorm,
        "Clip each variable's gradient to this norm; 0: no clipping [from the model file]", NumberFrom(0)},
       {"--global_clipnorm X", &flags.global_clipnorm,
        "Clip all gradients together to this global norm; 0: no clipping [from the model file]",
        NumberFrom(0)},
       {"--weight_decay X", &flags.weight_decay,
        "Decoupled weight decay: each update subtracts X * learning rate * variable [from the model file]",
        NumberFrom(0)}});
  AddRules(app, {{"--clipnorm", kExcludes, "--clipvalue"},
                 {"--global_clipnorm", kExcludes, "--clipvalue"},
                 {"--global_clipnorm", kExcludes, "--clipnorm"}});
}

void AddElastic(CLI::App& app, TrainOptions& options) {
  AddFlags(
      app, "Elastic training",
      {{"--[no]elastic", &options.elastic,
        "Workers may join and leave a running job, including workers that the cluster does not list"},
       {"--min_workers N", &options.min_workers,
        "Training pauses while there are fewer workers, for at most --step_timeout", NumberBetween(1, 4096)},
       {"--max_workers N", &options.max_workers,
        "Additional workers wait until another one leaves; 0: no limit", NumberBetween(0, 4096)}});
  AddRules(app, {{"--min_workers", kNeeds, "--elastic"}, {"--max_workers", kNeeds, "--elastic"}});
}

void AddCallbacks(CLI::App& app, CallbackFlags& flags) {
  AddFlags(
      app, "Callbacks",
      {{"--monitor NAME", &flags.monitor, "Metric that the callbacks observe, named as in the progress line"},
       {"--monitor_mode", &flags.monitor_mode,
        "Whether the metric should decrease (min) or increase (max); auto: as the metric requires",
        OneOf({"auto", "min", "max"})},
       {"--min_delta X", &flags.min_delta,
        "Smallest change that counts as an improvement [0 for --early_stopping, 0.0001 for "
        "--reduce_lr_on_plateau]",
        NumberFrom(0)},
       {"--early_stopping PATIENCE", &flags.early_stopping_patience,
        "End the job for all workers after PATIENCE epochs without improvement", WholeNumberFrom(0)},
       {"--baseline X", &flags.baseline, "Value that the metric must also pass to count as improved",
        NumberBetween(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max())},
       {"--start_from_epoch N", &flags.start_from_epoch,
        "Number of initial epochs that early stopping ignores", WholeNumberFrom(0), kDefaultInText},
       {"--[no]restore_best_weights", &flags.restore_best_weights,
        "The result has the parameters of the best epoch, not of the last one"},
       {"--reduce_lr_on_plateau FACTOR", &flags.plateau_factor,
        "Multiply the learning rate by FACTOR when the metric stops improving", NumberBetween(0, 1)},
       {"--plateau_patience N", &flags.plateau_patience,
        "Epochs without improvement before the learning rate is reduced", WholeNumberFrom(0)},
       {"--plateau_cooldown N", &flags.plateau_cooldown,
        "Epochs after a reduction before epochs without improvement are counted again", WholeNumberFrom(0)},
       {"--min_learning_rate X", &flags.min_learning_rate, "Lower bound of the reduced learning rate",
        NumberFrom(0)},
       {"--save_best FILE.safetensors", &flags.save_best,
        "Write the parameters to this file whenever the metric improves, as float32 with Keras' names"}});
  AddRules(app, {{"--baseline", kNeeds, "--early_stopping"},
                 {"--start_from_epoch", kNeeds, "--early_stopping"},
                 {"--restore_best_weights", kNeeds, "--early_stopping"},
                 {"--plateau_patience", kNeeds, "--reduce_lr_on_plateau"},
                 {"--plateau_cooldown", kNeeds, "--reduce_lr_on_plateau"},
                 {"--min_learning_rate", kNeeds, "--reduce_lr_on_plateau"}});
}

void AddCheckpoints(CLI::App& app, TrainOptions& options) {
  AddFlags(
      app, "Checkpoints and resume",
      {{"--train_dir DIR", &options.train_dir,
        "Directory for checkpoints, TensorBoard event files and log.csv; also used to restore a server "
        "that failed"},
       {"--save_steps N", &options.save_steps, "Save a checkpoint every N steps; 0: only by time",
        WholeNumberFrom(0)},
       {"--save_secs SECONDS", &options.save_secs, "Save a checkpoint at this interval; 0: only by steps",
        NumberBetween(0, 1e9)},
       {"--max_to_keep N", &options.max_to_keep, "Number of newest checkpoints to keep; 0: all",
        WholeNumberFrom(0)},
       {"--resume auto|never|DIR", &options.resume,
        "auto: resume from the newest checkpoint in --train_dir, if any; never: start at step 0, and "
        "refuse a --train_dir that has checkpoints; DIR: resume from this checkpoint, or from the newest "
        "one of this other --train_dir"}});
}

void AddFaultTolerance(CLI::App& app, TrainOptions& options) {
  AddFlags(app, "Fault tolerance",
           {{"--ps_replication 0|1", &options.ps_replication,
             "1: every server's shard has a live backup on another server, which takes over when the server "
             "fails; 0: no backups",
             WholeNumberBetween(0, 1)},
            {"--lost_workers", &options.lost_workers,
             "sync: leave: rounds close without a failed worker; wait: rounds wait until it is back",
             OneOf({"leave", "wait"})},
            {"--lease SECONDS", &options.lease_seconds,
             "A worker counts as failed after this time without a heartbeat", NumberAbove(0)},
            {"--connect_timeout SECONDS", &options.connect_timeout_seconds,
             "Time limit when a worker starts or rejoins: servers reachable, variables initialized; --mode "
             "allreduce: all workers connected",
             NumberAbove(0)},
            {"--step_timeout SECONDS", &options.step_timeout_seconds,
             "Time limit for the servers' answer to one step", NumberAbove(0)}});
}

void AddLogging(CLI::App& app, TrainOptions& options) {
  AddLogFlags(app, options.log_level, options.log_format);
  AddFlags(app, kLoggingGroup,
           {{"--display_every N", &options.display_every,
             "If stdout is not a terminal: log progress every N steps; 0: once per epoch", WholeNumberFrom(0),
             kDefaultInText},
            {"--summary FILE", &options.summary,
             "After training, write a summary of the run to this file, as one JSON object"}});
}

void AddTensorBoard(CLI::App& app, TrainOptions& options) {
  AddFlags(
      app, "TensorBoard",
      {{"--histogram_freq N", &options.histogram_freq,
        "Write histograms of weights and gradients every N epochs; 0: never", WholeNumberFrom(0)},
       {"--update_freq N", &options.update_freq,
        "Write metrics every N steps in addition to every epoch; 0: every epoch only", WholeNumberFrom(0)}});
}

void AddResources(CLI::App& app, TrainOptions& options) {
  AddFlags(app, "Resources",
           {{"--threads N", &options.threads, "Compute threads; 0: the host's cores divided by its tasks",
             WholeNumberBetween(0, kMaxThreads), kDefaultInText},
            {"--[no]deterministic", &options.deterministic,
             "Bitwise identical results for any --threads: work is always divided as for four threads"}});
}

void AddNetwork(CLI::App& app, TrainOptions& options) {
  AddFlags(app, kNetworkGroup,
           {{"--transport", &options.transport,
             "Transport of gradients and values: auto: shm on the same host, tcp between hosts; shm: shared "
             "memory; unix: Unix sockets; tcp: TCP; grpc: only gRPC [auto]",
             OneOf(net::kTransportWords), kDefaultInText},
            {"--allreduce", &options.allreduce,
             "--mode allreduce: auto: NCCL if every worker computes on its own GPU, otherwise the ring; "
             "ring: always a ring through host memory",
             OneOf({"auto", "ring"})}});
  AddWireFlags(app, options.wire);
}

}  // namespace

void AddDataFlags(CLI::App& app, TrainOptions& options) {
  AddFlags(
      app, "Data",
      {{"--data_dir DIR", &options.data.path,
        "Directory with IDX, .npy, CIFAR, CSV, TFRecord, Criteo, libsvm or image files or with mnist.npz; or "
        "one "
        "file"},
       {"--input_shape [INPUT:]SIZE,...", Parsed(&options.input_shapes, &nn::ParseInputSizes),
        "Shape of an example, for sizes that the model file leaves open, such as 224,224,3 or, for several "
        "inputs, "
        "image:224,224,3,mask:224,224,1 [that of the data]"},
       {"--input_scale X", &options.data.input_scale,
        "Factor of float inputs [1/255 for bytes, unless the model rescales them itself; "
        "otherwise 1]",
        NumberAbove(0), kDefaultInText},
       {"--limit_examples N", &options.data.limit, "Use only the first N examples of each set; 0: all",
        WholeNumberFrom(0), kDefaultInText},
       {"--label_column NAME", &options.data.label_column,
        "CSV, TFRecord: name of the label column, in CSV files also its index [label, target or class; in "
        "TFRecord files also y; in CSV files otherwise the last column]"},
       {"--label_threshold X", &options.data.label_threshold,
        "Labels of at least X become class 1, smaller ones class 0 [labels as in the files]",
        NumberBetween(std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max())},
       {"--[no]autoencoder", &options.data.autoencoder,
        "The target of an example is its input, of float numbers, and labels are not used [no]"},
       {"--feature_column NAME,...", Parsed(&options.data.feature_columns, &ParseNames),
        "CSV, TFRecord: names of the input columns, in order [CSV: all except the label; TFRecord: image, "
        "x, ...]"},
       {"--missing_value X", &options.data.missing_value,
        "CSV: value of an empty field [an empty field is an error]",
        NumberBetween(std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max())},
       {"--max_bad_rows N", &options.data.max_bad_rows,
        "CSV, TFRecord, Criteo, libsvm: skip up to N invalid rows of each set", WholeNumberFrom(0)},
       {"--csv_separator NAME|C", Parsed(&options.data.csv_separator, &data::ParseCsvSeparator),
        "CSV: comma, semicolon, tab, space, or any single character [detected from the first lines]"},
       {"--[no]hash_ids", &options.data.hash_ids,
        "Criteo, CSV, libsvm: hash ids, with a salt for each field, to the rows of the Embedding that looks "
        "them up "
        "[no]"},
       {"--class_weight CLASS:WEIGHT,...", Parsed(&options.data.class_weights, &ParseClassWeights),
        "Weight of each class in the training loss, for example 0:1,1:2.5 [1 for every class]"},
       {"--augment HOW,...", Parsed(&options.data.augmentation, &data::ParseAugmentation),
        "Augment training images: flip, crop:PIXELS (random crop after padding), shift:FRACTION"},
       {"--bucket_boundaries LENGTH,...", Parsed(&options.bucket_boundaries, &ParseBoundaries),
        "Sequences of ids: make batches of examples of like lengths, and pad them to the next of these "
        "lengths instead of the longest, as in 16,32,64"},
       {"--[no]shuffle", &options.shuffle, "Shuffle the training examples in every epoch [yes]"},
       {"--shard_tail", &options.shard_tail,
        "Examples that do not divide evenly among the workers: exact: smaller last batches; pad: repeat "
        "examples; drop: leave them out",
        OneOf({"exact", "pad", "drop"})},
       {"--data_sharding", &options.data_sharding,
        "static: each worker has a fixed share of every epoch; dynamic: batches are assigned to workers on "
        "demand [static; dynamic with --elastic]",
        OneOf({"static", "dynamic"})}});
  AddRules(app, {{"--autoencoder", kExcludes, "--class_weight"},
                 {"--autoencoder", kExcludes, "--label_threshold"}});
}

void AddEmbeddingFlags(CLI::App& app, EmbeddingFlags& flags) {
  AddFlags(app, "Embedding tables",
           {{"--embedding_tables all|LAYER,...", &flags.tables,
             "Store the tables of these Embedding layers by rows on the servers: only rows that a batch "
             "looks up are read, sent and updated"},
            {"--embedding_tables_above ROWS", &flags.tables_above,
             "Also store the tables of all Embedding layers with more than ROWS rows", WholeNumberFrom(0)},
            {"--dynamic_tables all|LAYER,...", &flags.dynamic_tables,
             "Also store these tables, and accept any 64-bit integer as an id of theirs: training makes a "
             "row when it first updates it"},
            {"--embedding_optimizer NAME", &flags.optimizer,
             "Optimizer of the tables' rows: SGD, Adam, Adagrad, RowWiseAdagrad, RMSprop or Ftrl, with its "
             "default settings and the job's learning rate, if one is set [as of the other variables]"},
            {"--embedding_learning_rate X", &flags.learning_rate,
             "Constant learning rate of the tables' rows [as of the other variables]", NumberFrom(0)},
            {"--embedding_staleness S", &flags.staleness,
             "In a synchronous job: read the rows of the next S batches while a batch is trained, so that "
             "they lack up to S updates; 0: rows have every update",
             NumberBetween(0, 16)}});
}

void AddTrainOptions(CLI::App& app, TrainOptions& options) {
  AddModel(app, options);
  AddDataFlags(app, options);
  AddTraining(app, options);
  AddSynchronization(app, options);
  AddOptimizer(app, options.optimizer);
  AddCallbacks(app, options.callbacks);
  AddCheckpoints(app, options);
  AddFaultTolerance(app, options);
  AddEmbeddingFlags(app, options.embedding);
  AddElastic(app, options);
  AddDeviceFlags(app, options.devices);
  AddResources(app, options);
  AddNetwork(app, options);
  AddLogging(app, options);
  AddTensorBoard(app, options);
}

}  // namespace cairn::worker
