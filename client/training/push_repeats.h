// Waits for the answers to a step's pushes, and repeats pushes that were lost: the policy, which knows no
// streams. Every repeat follows a pause, and none begins after the deadline.
//
// Created for one step; used by the thread that makes it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/connection.h"
#include "common/core/clock.h"
#include "common/net/grpc/backoff.h"

namespace cairn::client {

// The pushes of a step that have not been answered.
struct Unanswered {
  std::vector<int> waiting{};  // servers that have not answered
  std::vector<int> failed{};   // servers whose answer is a failure, or whose stream broke
  // The first failure that is not UNAVAILABLE or, if there is none, the first failure; names the server.
  absl::Status failure{};
};

class PushRepeats {
 public:
  struct Options {
    std::string task;                       // "worker/0"
    std::string step;                       // "step 7", for reports
    TimePoint deadline;                     // of the answers
    Duration limit;                         // the time that the answers have in all
    std::function<absl::Status()> failure;  // StepPushes::Options
  };
  // Waits until every server has answered, one has failed, or the time is over that Run() may take; may report
  // at `next_report`, and then advances it by kLogEvery.
  using Wait = absl::FunctionRef<absl::StatusOr<Unanswered>(TimePoint* next_report)>;
  // Sends the push to this server again.
  using Repeat = absl::FunctionRef<absl::Status(int server)>;
  static constexpr auto kLogEvery = std::chrono::seconds(10);

  PushRepeats(Connection& connection, Options options);

  // True when every server has answered; false at about `until`, and another call goes on. Otherwise the error
  // of `wait`, of `repeat` unless it is transient, or of Options::failure. After the deadline UNAVAILABLE with
  // the server, or the failure of its push.
  absl::StatusOr<bool> Run(TimePoint until, Wait wait, Repeat repeat);

 private:
  // OK if the push may succeed when it is sent again.
  absl::Status CheckWorthRepeating(const Unanswered& unanswered);
  // Sets `down_` if a server cannot be reached.
  absl::Status RepeatAll(const std::vector<int>& servers, Repeat repeat);
  void Report(const absl::Status& failure);

  Connection& connection_;
  const Options options_;
  net::Backoff backoff_;
  absl::Status down_;  // the error of a server that could not be reached to repeat its push
  TimePoint next_report_;
  TimePoint next_complaint_{};
};

}  // namespace cairn::client
