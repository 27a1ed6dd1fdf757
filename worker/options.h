// What a user may ask of a training job: declared once here, read once in main, printed at start.
//
// `cairn train` and `cairn-worker` share this table; the launcher checks the flags before it starts anything
// and then hands the same flags to every worker.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda_backend.h"
#include "worker/data/augment.h"
#include "worker/wire_flags.h"

namespace CLI {
class App;
}

namespace cairn::worker {

struct TrainOptions {
  // What to train, on what.
  std::string model;     // --model: Keras JSON or .keras file
  std::string data_dir;  // --data_dir
  float input_scale =
      std::numeric_limits<float>::quiet_NaN();  // --input_scale; NaN: the default of data::DataOptions
  int64_t limit_examples = 0;                   // --limit_examples: use only so many of each set; 0 is all

  // How the data is read.
  char csv_separator = 0;    // --csv_separator: 0: comma, semicolon or tab, as the first file shows
  std::string label_column;  // --label_column: of CSV and TFRecord; empty: label, y, target, ...
  std::vector<std::string>
      feature_columns;                     // --feature_column A,B: of the same; empty: all, or image, x, ...
  std::optional<float> missing_value;      // --missing_value: for empty fields of CSV; none: they are faults
  int64_t max_bad_rows = 0;                // --max_bad_rows: left out of each set of CSV or TFRecord files
  std::map<int64_t, float> class_weights;  // --class_weight CLASS:WEIGHT,...: others weigh 1
  data::Augmentation augmentation;         // --augment flip,crop:PIXELS,shift:PART: of training images

  // How long.
  int64_t batch_size = 32;  // --batch_size: per worker
  int64_t epochs = 1;       // --epochs
  int64_t train_steps = 0;  // --train_steps: global steps; 0: as many as the epochs take

  // How updates are made.
  // --mode sync|async|ssp|allreduce; --sync_replicas / --nosync_replicas say the first two
  std::string mode = "async";
  bool all_reduce() const { return mode == "allreduce"; }  // without servers
  int64_t replicas_to_aggregate = 0;                       // --replicas_to_aggregate: 0 is all workers
  int64_t max_staleness = -1;  // --max_staleness: async: refuse older gradients; -1 is no limit
  // ssp: clocks that a worker may be ahead of the slowest
  bool staleness_aware_learning_rate = false;  // --staleness_aware_learning_rate: divided by the staleness
  std::string optimizer;                       // --optimizer: overrides the model file's
  std::optional<double> learning_rate;  // --learning_rate: overrides the model file's, and its schedule
  std::optional<double> momentum;       // --momentum
  // --clipvalue --clipnorm --global_clipnorm: at most one; replaces whichever the model file has; 0 is none
  std::optional<double> clipvalue, clipnorm, global_clipnorm;
  std::optional<double> weight_decay;  // --weight_decay
  std::string loss;                    // --loss: overrides the model file's
  std::string metrics;                 // --metrics: names between commas; overrides the model file's
  uint64_t seed = 0;                   // --seed
  std::string shard_tail = "exact";    // --shard_tail exact|pad|drop
  bool shuffle = true;                 // --shuffle / --noshuffle

  // Who takes part.
  WireFlags wire;             // --wire_dtype --wire_values --topk_fraction
  std::string data_sharding;  // --data_sharding static|dynamic; empty: static, with --elastic dynamic
  bool elastic = false;       // --elastic: workers may join a running job, and leave it
  int64_t min_workers = 1;    // --min_workers: with fewer an elastic job stands still
  int64_t max_workers = 0;    // --max_workers: more wait for a place in an elastic job; 0: no limit
  bool dynamic_sharding() const { return elastic || data_sharding == "dynamic"; }

  // What is decided at each epoch's end: Keras' EarlyStopping, ReduceLROnPlateau and
  // ModelCheckpoint(save_best_only=True), by worker/callbacks.h.
  std::string monitor = "val_loss";                // --monitor: a metric that the progress line shows
  std::string monitor_mode = "auto";               // --monitor_mode auto|min|max
  std::optional<double> min_delta;                 // --min_delta: none: 0 to stop, 0.0001 to reduce
  std::optional<int64_t> early_stopping_patience;  // --early_stopping PATIENCE: epochs; none: never stop
  std::optional<double> baseline;                  // --baseline: patience begins anew only beyond it
  int64_t start_from_epoch = 0;                    // --start_from_epoch: nothing stops before; from 0
  bool restore_best_weights = false;               // --restore_best_weights: the best epoch's at the end
  std::optional<double> plateau_factor;            // --reduce_lr_on_plateau FACTOR: in [0, 1); none: never
  int64_t plateau_patience = 10;                   // --plateau_patience: epochs
  int64_t plateau_cooldown = 0;                    // --plateau_cooldown: epochs
  double min_learning_rate = 0;                    // --min_learning_rate
  std::string save_best;                           // --save_best FILE.safetensors; empty: none

  // What is kept, and gone on from.
  std::string train_dir;        // --train_dir: checkpoints; empty: none are kept
  int64_t save_steps = 0;       // --save_steps: a checkpoint every so many steps; 0: by time alone
  double save_secs = 60;        // --save_secs: a checkpoint every so many seconds; 0: by steps alone
  int64_t max_to_keep = 5;      // --max_to_keep: the newest checkpoints; 0: all
  std::string resume = "auto";  // --resume auto|never|DIR
  // --init_from FILE|DIR|none: the variables' initial values; empty: of the model file, if it holds any.
  std::string init_from;
  std::string lost_workers = "leave";  // --lost_workers leave|wait: what a round does without them
  int ps_replication = 0;              // --ps_replication: live copies of each server's part, 0 or 1
  double lease_seconds = 10;           // --lease: a worker that is not heard of for so long is lost

  // What it tells.
  bool validation = true;  // --validation / --novalidation: evaluate the validation set at each epoch's end
  int64_t display_every =
      0;  // --display_every: on no terminal, a line every so many steps; 0: one line per epoch
  std::string
      export_dir;       // --export_dir: model.onnx, model.safetensors and model.json at the end; empty: none
  std::string summary;  // --summary FILE: one JSON object at the end
  // TensorBoard's files in --train_dir, as Keras' callback has them.
  int64_t histogram_freq = 0;       // --histogram_freq: weights and gradients every so many epochs; 0: never
  int64_t update_freq = 0;          // --update_freq: scalars every so many steps too; 0: of epochs alone
  std::string log_format = "text";  // --log_format text|json: of log and progress
  std::string log_level = "info";   // --log_level debug|info|warning|error

  // Where it computes.
  std::string device = "auto";       // --device auto|NAME: TensorFlow's name of a device
  std::vector<std::string> devices;  // --devices A,B: a replica on each of these; empty: on --device alone
  bool mirrored = false;             // --mirrored: the same on all GPUs, or on all CPU devices
  std::vector<std::string> place;    // --place 'LAYERS=DEVICE',...: of those that fit a layer the last counts
  int64_t micro_batches = 0;  // --micro_batches: of a model on several devices; 0: four for each device
  int cpu_devices = 1;        // --cpu_devices: logical devices that the CPU is divided into
  bool allow_soft_placement = false;  // --allow_soft_placement: the CPU where a device does not exist
  std::string visible_devices;        // --visible_devices 0,2: CUDA_VISIBLE_DEVICES; empty: as it is
  kernels::Precision precision = kernels::Precision::kTensorFloat32;  // --precision fp32|tf32|bf16|fp16
  bool allow_growth = false;                   // --allow_growth: GPU memory in doubling pieces
  double per_process_gpu_memory_fraction = 1;  // --per_process_gpu_memory_fraction: in (0, 1]
  bool log_device_placement = false;           // --log_device_placement: each layer's device

  // Limits and resources.
  int threads = 0;             // --threads: 0 divides the cores among the tasks on this host
  bool deterministic = false;  // --deterministic: the same bits whatever --threads says
  double connect_timeout_seconds =
      300;                            // --connect_timeout: servers reached, variables ready, workers joined
  std::string transport = "auto";     // --transport auto|shm|unix|tcp|grpc
  std::string allreduce = "auto";     // --allreduce auto|ring: of --mode allreduce, who adds up gradients
  double step_timeout_seconds = 600;  // --step_timeout: one step's answer from the servers
};

// Declares the flags above on `app`; every flag takes `_` or `-`.
void AddTrainOptions(CLI::App& app, TrainOptions& options);

// What no single flag can tell: INVALID_ARGUMENT naming the flags that do not go together.
absl::Status Validate(const TrainOptions& options);

}  // namespace cairn::worker
