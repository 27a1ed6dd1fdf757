// A worker's own copy of the job's state: values, optimizer slots, version, learning rate and counters. It
// knows no ring: others provide the mean of a step, or the state of another worker.
//
// Owned by RingExchange; used by the thread that makes the steps.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/all_reduce.pb.h"
#include "cairn/v1/job.pb.h"
#include "client/job_setup.h"
#include "client/training/job_control.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/cluster/placement.h"
#include "common/system/thread_pool.h"
#include "optim/store/variable_store.h"

namespace cairn::allreduce {

class ModelState {
 public:
  struct Options {
    v1::Job job;  // its run_id is not used
    std::vector<net::VariableInfo> variables;
    ThreadPool* thread_pool = nullptr;  // may be null; helps with updates; must outlive this object
  };
  // INVALID_ARGUMENT for an unknown optimizer.
  static absl::StatusOr<std::unique_ptr<ModelState>> Create(Options options);

  int64_t size() const { return store_.size(); }                      // elements of the values
  int64_t state_size() { return store_.state_pool().buffer_size(); }  // of the values and all slots
  absl::Span<const float> values() const { return values_.data->span(); }
  // The two buffers that values() alternates between.
  const std::array<absl::Span<const float>, 2>& buffers() const { return buffers_; }
  int64_t version() const { return values_.version; }
  int64_t final_version() const { return job_.final_version() + progress_.version_offset(); }
  int64_t version_offset() const { return progress_.version_offset(); }
  const v1::Counters& counters() const { return progress_.counters(); }
  float learning_rate() const { return store_.learning_rate(); }
  void SetLearningRate(float rate) { store_.SetLearningRate(rate); }
  // Whether this worker has taken over a state that a ring agreed on.
  bool trained() const { return trained_; }

  // Loads the first values, or those of a checkpoint.
  absl::Status Initialise(const std::string& run_id, client::StateSource& source);
  // Describes this state to the other workers.
  void Describe(v1::RingState& mine) const;
  // The values, then all elements of each slot: what TakeOver() of another worker needs.
  std::shared_ptr<const AlignedBuffer> Pack();
  // Uses the state that all workers agreed on. `state`: its values and slots; null if this worker has them.
  void TakeOver(const v1::RingState& source, const AlignedBuffer* state);

  // Applies the optimizer to the mean of the gradients of `examples` examples on `workers` workers; null: no
  // examples. INVALID_ARGUMENT, naming the variable whose mean is not finite.
  absl::Status Apply(const float* mean, int64_t examples, int64_t workers);
  // Ends training before the last version.
  void EndHere();
  void Write(absl::Span<const float> values);
  absl::StatusOr<client::TakenSnapshot> TakeSnapshot();

 private:
  ModelState(Options options, std::unique_ptr<optim::Optimizer> optimizer, std::vector<net::Slice> slices);
  // `values`: at least size() elements.
  void WriteFrom(const AlignedBuffer& values);

  const v1::Job job_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  const std::vector<std::string> slot_names_;
  optim::VariableStore store_;
  std::array<absl::Span<const float>, 2> buffers_;
  optim::Values values_;  // the store's current values
  std::string run_id_;
  bool has_values_ = false;
  bool trained_ = false;
  // The version and the learning rate in it are those of the state that this worker took over last, in
  // Initialise() or TakeOver(). The counters in it are current.
  v1::Progress progress_;
};

}  // namespace cairn::allreduce
