// How a job ends for a worker, and how the worker learns that training is over.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cairn/v1/parameter_server.pb.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"

namespace cairn::client {

// The status of calls after the chief has ended the job: OUT_OF_RANGE. For a worker this is not a failure.
absl::Status TrainingIsOver();
bool IsOver(const absl::Status& status);
// Returns TrainingIsOver() if the server has been notified of the end, otherwise OK.
absl::Status CheckGoesOn(const v1::ConnectResponse& described);

// How long no server may answer before a worker that awaits the end concludes that training is over: 10 s, or
// 60 s if the job waits for the return of lost workers. If such a job is rolled back after the worker has
// ended, it waits for a worker that does not come.
Duration SilenceLimit(const v1::Job& job);

// Measures how long no server has answered a worker that awaits the end. Time during which this process was
// suspended and could not receive answers counts for at most 5 s. The caller passes in the time.
class Silence {
 public:
  Silence(Duration limit, TimePoint now) : limit_(limit), looked_at_(now) {}
  // To be called after all servers have been queried; `answered`: at least one of them answered. Returns true
  // if no server is left: none has answered for the limit.
  bool IsTheEnd(bool answered, TimePoint now);

 private:
  Duration limit_;
  TimePoint looked_at_;
  Duration silence_{};
};

struct EndLimits {
  Duration silence;    // SilenceLimit()
  Duration unchanged;  // between two updates
};

// Waits until training is over, for a worker that has left with all its work done. Also returns OK if no
// server is left, or if no version has changed on any server for `limits.unchanged`. ABORTED if a server has
// lost its variables: the job is rolled back, and there may be work for this worker again. If the job fails:
// its failure. `watch` is called every two seconds while servers answer; its error ends the wait.
absl::Status AwaitEnd(Connection& connection, int worker, const EndLimits& limits,
                      absl::FunctionRef<absl::Status()> watch);

// For the chief: notifies every server that training is over. An unreachable server has 10 s to return. After
// that its failure is only reported, because nothing that it stores is needed any more.
absl::Status EndServers(Connection& connection);

}  // namespace cairn::client
