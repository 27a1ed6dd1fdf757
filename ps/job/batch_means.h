// The means over the batches of all workers that synchronized batch normalization needs within a step of a synchronous
// job (ParameterServer.BatchMean). Each worker of the open round brings its values; when all have, their mean answers
// the calls that wait for it. The means of the current version are kept: a worker that was restarted, and makes its
// step again, gets the same ones.
//
// Not replicated: after a promotion, the workers send their values again.
//
// Not thread-safe: guarded by the lock of its owner, HostedJob. Sends no answers: it returns those that are due, and
// the caller sends them outside that lock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "ps/job/active_job.h"
#include "ps/log/sequencer.h"

namespace cairn::ps {

class BatchMeans {
 public:
  using Reply = absl::AnyInvocable<void(absl::StatusOr<v1::BatchMeanResponse>)>;
  using Calls = std::vector<absl::AnyInvocable<void()>>;

  static constexpr int kMaxValues = 32768;         // of one mean
  static constexpr int64_t kMaxMeans = 16384;      // of one step
  static constexpr int64_t kMaxNumbers = 1 << 25;  // of all workers and means of one step

  // Takes the values of `request`, and adds the call. Moves the answers that are due to `calls`. `job` serves the
  // layout that the request names.
  void Add(const v1::BatchMeanRequest& request, ActiveJob& job, TimePoint now, Reply reply, Calls& calls);
  // Moves the answers that are due at `now` to `calls`: a round may have ended, or wait for fewer workers. `job`: the
  // current job; may be null.
  void Collect(ActiveJob* job, TimePoint now, Calls& calls);
  // Moves all answers to `calls`, with `failure`.
  void Fail(const absl::Status& failure, Calls& calls);

 private:
  struct Mean {
    std::map<int, std::vector<double>> parts;  // [worker]
    std::vector<double> mean;                  // empty: not all parts have arrived
  };
  struct Waiter {
    int worker;
    int64_t version, index;
    TimePoint deadline;
    Reply reply;
  };

  // Forgets the means of another job or version.
  void Follow(const ActiveJob& job, const OpenRound& round);
  absl::Status Check(const v1::BatchMeanRequest& request, ActiveJob& job, const OpenRound& round) const;
  absl::Status Take(const v1::BatchMeanRequest& request, ActiveJob& job);
  // Makes the means whose parts are complete.
  void Complete(const OpenRound& round);
  bool HasValuesFor(int worker, int64_t index) const;
  // Fills in the answer; whether the mean exists.
  bool Holds(const Waiter& waiter, ActiveJob& job, const OpenRound& round,
             v1::BatchMeanResponse& response) const;

  uint64_t layout_ = 0;
  int64_t version_ = -1;
  std::map<int, int64_t> examples_;  // [worker] of the step; 0: the worker takes part in no mean
  std::vector<Mean> means_;          // [index]
  int64_t numbers_ = 0;              // in parts
  std::vector<Waiter> waiters_;
};

}  // namespace cairn::ps
