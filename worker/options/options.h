// The flags of a training job: declared once here, parsed once in main, printed at start.
//
// `cairn train` and `cairn-worker` share this table. The launcher checks the flags before it starts any task,
// and then passes them unchanged to every worker.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "data/dataset.h"
#include "worker/options/device_flags.h"
#include "worker/options/wire_flags.h"

namespace CLI {
class App;
}

namespace cairn::worker {

struct OptimizerFlags {
  std::string name;                     // --optimizer: overrides the model file's
  std::optional<double> learning_rate;  // --learning_rate: overrides the model file's, and its schedule
  std::optional<double> momentum;       // --momentum
  // --clipvalue --clipnorm --global_clipnorm: at most one of them; replaces the model file's clipping; 0: no
  // clipping.
  std::optional<double> clipvalue, clipnorm, global_clipnorm;
  std::optional<double> weight_decay;  // --weight_decay
};

// Embedding layers whose tables the servers store by rows.
struct EmbeddingFlags {
  std::string tables;                   // --embedding_tables all|LAYER,...; empty: none
  std::optional<int64_t> tables_above;  // --embedding_tables_above ROWS: also every layer with more rows
  std::string dynamic_tables;           // --dynamic_tables all|LAYER,...: tables of any int64 id; empty: none
  std::string optimizer;                // --embedding_optimizer: of rows; empty: that of the other variables
  std::optional<double> learning_rate;  // --embedding_learning_rate
  int64_t staleness = 0;                // --embedding_staleness: updates that rows may lack

  // Whether the flags may make tables of layers.
  bool make_tables() const { return !tables.empty() || tables_above.has_value() || !dynamic_tables.empty(); }
};

// Keras' EarlyStopping, ReduceLROnPlateau and ModelCheckpoint(save_best_only=True), see worker/training/callbacks.h.
struct CallbackFlags {
  std::string monitor = "val_loss";   // --monitor: a metric that the progress line shows
  std::string monitor_mode = "auto";  // --monitor_mode auto|min|max
  // --min_delta; nullopt: 0 for --early_stopping, 0.0001 for --reduce_lr_on_plateau.
  std::optional<double> min_delta;
  std::optional<int64_t> early_stopping_patience;  // --early_stopping PATIENCE: epochs; nullopt: never stop
  std::optional<double> baseline;                  // --baseline: only better epochs reset the patience
  int64_t start_from_epoch = 0;                    // --start_from_epoch: earlier epochs, from 0, are ignored
  // --restore_best_weights: when training ends, the weights of the best epoch are restored.
  bool restore_best_weights = false;
  std::optional<double> plateau_factor;  // --reduce_lr_on_plateau FACTOR: in [0, 1); nullopt: never
  int64_t plateau_patience = 10;         // --plateau_patience: epochs
  int64_t plateau_cooldown = 0;          // --plateau_cooldown: epochs
  double min_learning_rate = 0;          // --min_learning_rate
  std::string save_best;                 // --save_best FILE.safetensors; empty: none
};

struct TrainOptions {
  // Grouped as in --help, with a few exceptions.

  // Model.
  std::string model;  // --model: Keras JSON or .keras file
  // --input_shape: the shapes of examples by the names of inputs, for sizes that the model file leaves open.
  std::map<std::string, std::vector<int64_t>> input_shapes;

  // Data. The flags are --data_dir, --input_scale, --limit_examples, --csv_separator, --label_column,
  // --label_threshold, --autoencoder, --feature_column, --missing_value, --max_bad_rows, --hash_ids, --class_weight and
  // --augment; the model determines the other fields of `data`.
  data::DataOptions data;
  std::string shard_tail = "exact";        // --shard_tail exact|pad|drop
  bool shuffle = true;                     // --shuffle / --noshuffle
  std::vector<int64_t> bucket_boundaries;  // --bucket_boundaries: rising lengths, from 1 up

  // Training.
  int64_t batch_size = 32;  // --batch_size: per worker
  int64_t epochs = 1;       // --epochs
  int64_t train_steps = 0;  // --train_steps: global steps; 0: determined by --epochs

  // Synchronization.
  // --mode sync|async|ssp|allreduce; --sync_replicas and --nosync_replicas select the first two.
  std::string mode = "async";
  bool all_reduce() const { return mode == "allreduce"; }  // a job without servers
  int64_t replicas_to_aggregate = 0;                       // --replicas_to_aggregate; 0: all workers
  // --max_staleness. async: gradients with a greater staleness are refused; -1: no limit. ssp: the number of
  // clocks that a worker may be ahead of the slowest worker.
  int64_t max_staleness = -1;
  // --staleness_aware_learning_rate: divides the learning rate by the staleness.
  bool staleness_aware_learning_rate = false;

  OptimizerFlags optimizer;
  EmbeddingFlags embedding;

  // Loss, metrics and random numbers.
  std::string loss;     // --loss: overrides the model file's
  std::string metrics;  // --metrics: names, comma-separated; overrides the model file's
  uint64_t seed = 0;    // --seed

  WireFlags wire;

  // Elastic training.
  std::string data_sharding;  // --data_sharding static|dynamic; empty: static, or dynamic with --elastic
  bool elastic = false;       // --elastic: workers may join and leave a running job
  int64_t min_workers = 1;    // --min_workers: an elastic job pauses while it has fewer
  int64_t max_workers = 0;    // --max_workers: more workers wait to join an elastic job; 0: no limit
  bool dynamic_sharding() const { return elastic || data_sharding == "dynamic"; }

  CallbackFlags callbacks;

  // Checkpoints and resume.
  std::string train_dir;        // --train_dir: directory of the checkpoints; empty: none are written
  int64_t save_steps = 0;       // --save_steps: steps between checkpoints; 0: by time only
  double save_secs = 60;        // --save_secs: seconds between checkpoints; 0: by steps only
  int64_t max_to_keep = 5;      // --max_to_keep: newest checkpoints to keep; 0: all
  std::string resume = "auto";  // --resume auto|never|DIR
  // --init_from FILE|DIR|none: the variables' initial values; empty: the model file's, if it has any.
  std::string init_from;

  // Fault tolerance.
  // --lost_workers leave|wait: whether a round continues without lost workers or waits for them.
  std::string lost_workers = "leave";
  int ps_replication = 0;     // --ps_replication: live backups of each server's shard, 0 or 1
  double lease_seconds = 10;  // --lease: a worker without a heartbeat for this long is lost

  // Validation, progress and results.
  bool validation = true;  // --validation / --novalidation: evaluate the validation set after each epoch
  // --display_every: if stdout is not a terminal, a line every N steps; 0: one line per epoch.
  int64_t display_every = 0;
  // --export_dir: model.onnx, model.safetensors and model.json at the end; empty: none.
  std::string export_dir;
  std::string summary;  // --summary FILE: one JSON object at the end

  // TensorBoard: files in --train_dir, as Keras' callback writes them.
  int64_t histogram_freq = 0;  // --histogram_freq: epochs between histograms; 0: never
  int64_t update_freq = 0;     // --update_freq: steps between scalars; 0: per epoch only

  // Logging.
  std::string log_format = "text";  // --log_format text|json: of log and progress
  std::string log_level = "info";   // --log_level debug|info|warning|error

  DeviceFlags devices;

  // Resources, network, and time limits.
  int threads = 0;             // --threads; 0: divide the cores among the tasks on this host
  bool deterministic = false;  // --deterministic: the same results for any --threads, bit by bit
  // --connect_timeout: limit for the time until the servers are reached and the variables are ready, at the start
  // and when a worker rejoins.
  double connect_timeout_seconds = 300;
  std::string transport = "auto";     // --transport auto|shm|unix|tcp|grpc
  std::string allreduce = "auto";     // --allreduce auto|ring: how --mode allreduce sums gradients
  double step_timeout_seconds = 600;  // --step_timeout: limit for the servers' answer to one step
};

// Adds the flags above to `app`. Every flag is accepted with `_` and with `-`.
void AddTrainOptions(CLI::App& app, TrainOptions& options);
// The groups of these flags that `cairn plan` shares.
void AddDataFlags(CLI::App& app, TrainOptions& options);
void AddEmbeddingFlags(CLI::App& app, EmbeddingFlags& flags);

// Checks combinations of flags. INVALID_ARGUMENT naming the flags that exclude or require each other.
absl::Status Validate(const TrainOptions& options);
// As Validate(), if the model and the data may be missing.
absl::Status CheckCombinations(const TrainOptions& options);

// As Validate(), for a job whose model has tables without a flag: only the flags that do not go with tables.
absl::Status CheckFlagsWithTables(const TrainOptions& options);

}  // namespace cairn::worker
