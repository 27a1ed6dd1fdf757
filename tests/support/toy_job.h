// Jobs small enough to follow by hand, and the workers of one against an in-process cluster.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "client/training/training_client.h"
#include "tests/support/in_process_cluster.h"

namespace cairn::test {

struct ToyVariable {
  std::string name;
  Shape shape;
  std::vector<float> initial;  // [shape.num_elements()]
};

// A job and the variables that it trains. The fields may be changed before workers start on it.
struct ToyJob {
  // Synchronous with SGD at rate 1, a lease of 30 s and `workers` workers.
  ToyJob(int workers, std::vector<ToyVariable> toy_variables);

  v1::Job job;
  std::vector<net::VariableInfo> variables;
  std::vector<float> initial;  // of all variables
  // net::PlacementOptions: variables beyond it are split.
  int64_t split_bytes = 0;
  Duration step_timeout = std::chrono::seconds(20);
  client::MakePartitioner make_partitioner{};  // client::TrainingOptions
};

std::string TaskName(int worker);  // "worker/1"

// A worker that pushes gradients.
class ToyWorker {
 public:
  // Connects to the servers and does nothing else.
  ToyWorker(InProcessCluster& cluster, const ToyJob& toy, int worker);

  client::TrainingClient& client() { return client_; }
  // The values that the client has: all variables, one after another.
  std::vector<float> Values() {
    return {client_.steps().parameters().begin(), client_.steps().parameters().end()};
  }
  // One step: `gradient` [all variables] from the values that the client has; the last variable is announced
  // first. New values are read as they arrive, and must be those at the end of the step.
  absl::StatusOr<client::StepResult> Push(absl::Span<const float> gradient, int64_t examples = 1);

  // The number of steps whose values had all arrived before the answer was requested, and were valid.
  int steps_as_awaited() const { return steps_as_awaited_; }

 private:
  const int num_variables_;
  int steps_as_awaited_ = 0;
  client::TrainingClient client_;
};
using ToyWorkers = std::vector<std::unique_ptr<ToyWorker>>;

// The job as the chief declares it to this cluster.
v1::Job JobFor(const InProcessCluster& cluster, const ToyJob& toy);

// All workers of the job, joined at the initial values.
ToyWorkers StartAll(InProcessCluster& cluster, const ToyJob& toy);

// A step of all workers at once, as a synchronous round needs. [worker]
std::vector<absl::StatusOr<client::StepResult>> PushAll(ToyWorkers& workers,
                                                        const std::vector<std::vector<float>>& gradients,
                                                        const std::vector<int64_t>& examples = {});

// Runs body(0) ... body(count - 1), each in a thread of its own.
void InParallel(int count, absl::FunctionRef<void(int)> body);

}  // namespace cairn::test
