// The means over the batches of all workers in one step (Step::MeanOverWorkers), made by ps/0. Keeps this worker's
// values until the next step begins: if a backup takes over the shard of ps/0, it gets them again.
//
// Owned by StepPushes. One call at a time, from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/parameter_server.pb.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"

namespace cairn::client {

class BatchMeans {
 public:
  struct Options {
    Duration step_timeout;                                                   // the limit of each call
    std::function<absl::Status()> failure;                                   // as in StepPushes::Options
    std::function<absl::Status(absl::FunctionRef<absl::Status()>)> persist;  // JoinedJob::Persist
  };
  struct Step {
    uint64_t layout = 0;  // of ps/0
    int worker = 0;
    uint64_t incarnation = 0;
    int64_t version = 0;  // of ps/0, when the step began
    int64_t examples = 0;
  };
  // `connection` must outlive this object.
  BatchMeans(Connection& connection, Options options);

  void Begin(const Step& step);
  // As Step::MeanOverWorkers().
  absl::Status Mean(absl::Span<double> values);
  // As Step::SkipMeans().
  absl::Status Skip();
  // Sends all values of this step to the server that serves the shard of ps/0 now, unless its round has ended. Does
  // nothing if there are none.
  absl::Status SendAgain();

 private:
  v1::BatchMeanRequest RequestFor(int64_t index, int64_t first, Duration wait) const;
  absl::StatusOr<v1::BatchMeanResponse> Call(const v1::BatchMeanRequest& request);

  Connection& connection_;
  const Options options_;
  Step step_;
  std::vector<std::vector<double>> parts_;  // of this step, in the order of the means
  bool skipped_ = false;
};

}  // namespace cairn::client
