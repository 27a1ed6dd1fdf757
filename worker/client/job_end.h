// How a worker's part of a job ends, and how it learns that training is over.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cairn/v1/parameter_server.pb.h"
#include "common/core/clock.h"
#include "worker/client/connection.h"

namespace cairn::client {

// What calls end with when the chief has ended the job in the meantime: OUT_OF_RANGE. To a worker that is no
// failure.
absl::Status TrainingIsOver();
bool IsOver(const absl::Status& status);
// OK unless the server has been told that training is over.
absl::Status CheckGoesOn(const v1::ConnectResponse& described);

// For how long no server has answered a worker that awaits the end. Time in which the process stood still,
// and heard of nobody, counts for at most 5 s. Time is passed in.
class Silence {
 public:
  explicit Silence(TimePoint now) : looked_at_(now) {}
  // All servers have been asked since the last call; `answered`: at least one did. Returns true if no server
  // is left to ask: none has answered for 10 s.
  bool IsTheEnd(bool answered, TimePoint now);

 private:
  TimePoint looked_at_;
  Duration silence_{};
};

// For a worker that has left with all its work done: returns OK when training is over, or no server is left
// to ask. ABORTED when a server has lost its variables first: the job is set back, and there may be work for
// it again. `watch` runs every two seconds while servers answer; its error ends the wait. OK, too, when no
// version has changed on any server for `patience`, and the failure of a job that fails.
absl::Status AwaitEnd(Connection& connection, int worker, Duration patience,
                      absl::FunctionRef<absl::Status()> watch);

// The chief's: tells every server that training is over. One that cannot be reached has 10 s to come back and
// be told; it takes nothing with it any more, so its loss is said and is no failure.
absl::Status EndServers(Connection& connection);

}  // namespace cairn::client
