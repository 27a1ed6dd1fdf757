// Describes a job: its variables, optimizer and mode. Every worker of a job describes it with the same Job. A
// difference that would change the training is an error, which names the setting and both values, or the first variable
// that differs. Of `lease` and the number of workers of an elastic job, the chief's values hold.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

enum class Mode {
  // Rounds: an update is the mean of one gradient of every worker, weighted by their numbers of examples.
  kSync,
  // Every gradient is applied when it arrives.
  kAsync,
  // As kAsync, but a worker that is more than Job::max_staleness steps ahead of the slowest one waits.
  kBoundedStaleness,
};

// The encoding of gradients and values between workers and servers. Servers store and compute float32.
enum class Encoding { kFloat32, kBfloat16, kFloat16 };

// A variable of float32.
struct Variable {
  std::string name{};            // unique in the job, not empty
  std::vector<int64_t> shape{};  // row-major; empty: a scalar
  // If set, the variable is a moving average in place of a trained one, as the statistics of a normalization
  // are: workers push a statistic as its "gradient", and value = momentum * value + (1 - momentum) * mean of
  // the pushed statistics. In [0, 1]; 1: the value never changes.
  std::optional<float> moving_average_momentum{};
  // The number of the variable's group, from 0 to 65535: Session::SetGroups().
  int group = 0;

  // The product of the dimensions; 1 for a scalar.
  int64_t num_elements() const {
    int64_t elements = 1;
    for (const int64_t dim : shape) elements *= dim;
    return elements;
  }
};

// A learning-rate schedule of Keras: its class name and the contents of its configuration under Keras' names.
struct LearningRateSchedule {
  std::string name{};                       // "CosineDecay"
  std::map<std::string, double> numbers{};  // a boolean is 0 or 1
  std::vector<double> boundaries{};         // for PiecewiseConstantDecay: in updates, ascending
  std::vector<double> values{};             // for PiecewiseConstantDecay: one more than boundaries
};

// An optimizer of Keras, which runs on the servers: its class name, in any case, and its hyperparameters under Keras'
// names ("learning_rate", "momentum", "clipnorm", "weight_decay", ...). Or one of PyTorch: "torch." and its class name,
// and torch's names ("lr", "momentum", "beta1", ...). A missing hyperparameter has Keras' or torch's default.
// docs/reference/optimizers.md lists them.
struct Optimizer {
  std::string name = "SGD";
  std::map<std::string, double> hyperparameters{};  // a boolean is 0 or 1
  std::optional<LearningRateSchedule> schedule{};   // in place of the hyperparameter "learning_rate" or "lr"
};

// An embedding table: rows of float32 by id, which the servers store beside the variables, update by rows and do not
// split. A row begins to exist with the first update that has a gradient for it. Until then it has its first values,
// which depend on `seed`, the table's name, the id and the column alone, and takes no memory.
struct Table {
  // The distribution of a row's first values.
  enum class FirstValues {
    kConstant,         // `center`
    kUniform,          // [center - spread, center + spread)
    kNormal,           // mean `center`, standard deviation `spread`
    kTruncatedNormal,  // the same, restricted to two standard deviations
  };

  std::string name{};  // unique among the tables of the job, not empty
  int64_t width = 1;   // elements of a row, above 0
  int64_t rows = 0;    // ids are in [0, rows); 0: any int64 is an id
  FirstValues first_values = FirstValues::kConstant;
  double center = 0;
  double spread = 0;
  uint64_t seed = 0;
  // The optimizer of the rows: SGD, Adam, Adagrad, RowWiseAdagrad, RMSprop or Ftrl, with Keras' hyperparameters. It
  // updates a row only when the row has a gradient. SetLearningRate() multiplies its rate by the factor by which the
  // job's rate changes. None: the job's optimizer, which must be one of these.
  std::optional<Optimizer> optimizer{};
};

// The examples that the servers divide among the workers as they go: each example of an epoch is in exactly
// one update, even if workers join, leave or die. See Session::work_items(). In synchronous training no round has
// examples of two epochs.
struct WorkQueue {
  int64_t examples = 0;    // in one epoch; above 0
  int64_t batch_size = 1;  // examples in a work item, at most
  int64_t epochs = 1;      // 0: no end
  int items_ahead = 1;     // in [1, 64]: work items that a worker knows beyond its current one
  // The program derives the order of the examples in an epoch from it. A worker with another seed is refused, and so
  // is a checkpoint.
  uint64_t seed = 0;
};

struct Job {
  // The values of all variables together are one array of floats: the variables one after another, in this
  // order.
  std::vector<Variable> variables{};
  std::vector<Table> tables{};
  Optimizer optimizer{};
  Mode mode = Mode::kSync;
  int workers = 1;  // worker 0 is the chief
  // The job's length in updates: rounds with kSync, gradients of all workers together in the other modes.
  // 0: until the work queue is empty or the chief ends training. With a work queue, training ends at what comes first.
  int64_t updates = 0;
  // With kBoundedStaleness: required, see there. With kAsync: gradients that are staler than this many updates
  // are refused; -1: no limit.
  int64_t max_staleness = -1;
  // With kSync: a round closes with this many gradients, and later ones are refused. 0: one of every worker.
  int gradients_per_round = 0;
  // The number of copies of each server's variables on other servers, 0 or 1. With a copy, a lost server
  // costs no progress.
  int backups = 0;
  Encoding encoding = Encoding::kFloat32;
  // A worker that has joined and sends no sign of life for this long is lost, and the others continue without it. A
  // worker that has not joined yet is waited for: SessionOptions::step_timeout.
  std::chrono::milliseconds lease = std::chrono::seconds(10);
  // Whether a round waits for a lost worker to return.
  bool wait_for_lost_workers = false;
  std::optional<WorkQueue> work_queue{};  // none: the program divides the examples itself
  // An update without examples, because every worker's step had 0 examples, advances the version and leaves values,
  // optimizer state and counts as they are. Otherwise it is an update with a gradient of 0: momentum continues.
  bool skip_empty_updates = false;
  // With a work queue: further workers may join under any task name, and workers may leave at any time.
  bool elastic = false;
  int min_workers = 0;  // with elastic: training pauses while there are fewer; 0: 1
  int max_workers = 0;  // with elastic: further workers are refused; 0: no limit
};

}  // namespace cairn
