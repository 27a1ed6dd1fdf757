// The state of a run in a checkpoint: everything except the tensors.
#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace cairn::worker {

// Progress through the epochs of a job with dynamic sharding: see v1::DataPosition.
struct DataState {
  int64_t num_examples = 0;
  int64_t next = 0;
  std::vector<int64_t> open;  // begin and count of each run, alternating
  int64_t missed = 0, repeated = 0;

  friend bool operator==(const DataState&, const DataState&) = default;
};

// Settings of a group of variables, as v1::GroupSettings, and what v1::SkippedUpdates counts.
struct GroupState {
  std::optional<float> learning_rate;
  bool untouched = false;
  std::optional<std::map<std::string, double>> hyperparameters;  // absent if there are none
  std::optional<int64_t> untouched_updates;                      // absent if there were none

  friend bool operator==(const GroupState&, const GroupState&) = default;
};

// A table of rows beside the variables: what it is, and what its rows begin with.
struct TableRun {
  std::string name;
  int64_t vocabulary_size = 0;  // ids are in [0, vocabulary_size); 0: any int64
  int64_t dim = 0;
  uint64_t seed = 0;         // of the first values of rows
  std::string distribution;  // of the first values: "constant", "uniform", "normal", "truncated_normal"
  double center = 0, spread = 0;
  std::string optimizer;
  std::map<std::string, double> hyperparameters;
  std::vector<std::string> slots;    // of a row, in the order in which they follow its values
  std::vector<int64_t> slot_floats;  // [slot]
  double learning_rate = 0;          // of the last update

  // The number of values and slots of a row.
  int64_t row_floats() const { return std::accumulate(slot_floats.begin(), slot_floats.end(), dim); }
  friend bool operator==(const TableRun&, const TableRun&) = default;
};

struct RunState {
  int64_t global_step = 0;  // the version of every variable; not negative
  std::string mode;         // the value of --mode: "sync", "async", ...
  std::string run_id;
  std::string model_sha256;
  std::string optimizer;  // the class name
  std::map<std::string, double> hyperparameters;
  std::vector<std::string> slots;                 // the optimizer's slots, in the order of ServerState::state
  std::optional<float> learning_rate;             // set if the rate was changed after the start
  std::optional<std::vector<GroupState>> groups;  // set if the chief has set them; absent in older files
  std::optional<int64_t> empty_updates;           // v1::SkippedUpdates::empty; absent if there were none
  uint64_t seed = 0;
  int64_t batch_size = 0;  // per worker
  int64_t num_workers = 0;
  int64_t final_version = 0;  // the version at which the job ends
  int64_t epochs = 0;
  std::optional<int64_t> num_examples;          // per epoch; absent in older files
  std::optional<int64_t> version_offset;        // v1::Progress::version_offset; absent in older files
  std::vector<int64_t> positions;               // [worker]: batches done; asynchronous jobs
  std::optional<DataState> data;                // with dynamic sharding
  std::optional<std::vector<TableRun>> tables;  // set if the job has tables; absent in older files
  // Totals of the run so far, as in v1::Counters: the number of examples, then statistics of the gradients.
  int64_t examples = 0, accepted = 0, stale = 0, duplicate = 0, rejected = 0, staleness_max = 0;
  std::vector<int64_t> staleness_histogram;
  double saved_at = 0;  // Unix seconds

  friend bool operator==(const RunState&, const RunState&) = default;
};

}  // namespace cairn::worker
