// Greets another worker until it answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/all_reduce.pb.h"
#include "common/core/clock.h"
#include "worker/peer/link.h"

namespace cairn::allreduce {

// All of it is borrowed for the call.
struct Greeting {
  RingPeer& peer;
  const std::string& name;  // "worker/1 at host:2222", for messages
  const v1::GreetRequest& request;
  TimePoint deadline;
  // Called about every 10 s with the reason for the wait. May be null.
  const std::function<void(const std::string&)>& say;
  // Called before each attempt. An error ends the attempts.
  absl::FunctionRef<absl::Status()> check;
  // Whether an answer can be used: empty, or the reason for another attempt. An error ends the attempts.
  absl::FunctionRef<absl::StatusOr<std::string>(const v1::GreetResponse&)> judge;
  // Waits until this time at the latest.
  absl::FunctionRef<void(TimePoint)> wait;
};

// Returns the first answer that can be used. Tries again while the other worker is unreachable. UNAVAILABLE at
// the deadline, with the last reason; otherwise the error of the handshake, `check` or `judge`.
absl::StatusOr<v1::GreetResponse> GreetUntilAnswered(const Greeting& greeting);

}  // namespace cairn::allreduce
