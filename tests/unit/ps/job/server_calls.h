// A server without replication, and the calls of its clients.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/grpc/grpc_util.h"
#include "gtest/gtest.h"
#include "ps/job/server.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {

// The answer to a call; every call except Wait answers at once.
template <typename Request, typename Response>
absl::StatusOr<Response> Call(Server& server, void (Server::*method)(const Request&, Reply<Response>),
                              const Request& request) {
  absl::StatusOr<Response> answer = absl::UnknownError("no answer yet");
  (server.*method)(request, [&answer](absl::StatusOr<Response> response) { answer = std::move(response); });
  return answer;
}

inline std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

class ServerTest : public testing::Test {
 protected:
  ServerTest()
      : server_({.index = 0, .cluster_hash = 17, .incarnation = 5, .connect_to_leader = nullptr}, clock_) {}

  static v1::ConnectRequest ConnectFromHere() {
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_cluster_hash(17);
    request.set_client("worker/1");
    return request;
  }
  v1::ConnectResponse Describe() { return Call(server_, &Server::Connect, ConnectFromHere()).value(); }

  absl::StatusOr<v1::CreateResponse> Create(const v1::CreateRequest& request) {
    return Call(server_, &Server::Create, request);
  }
  void MakeReady() { server_.OnInitialised(Create(TrainingJob()).value().layout()); }

  absl::StatusOr<v1::JoinResponse> Join(int worker) {
    v1::JoinRequest request;
    request.set_worker(worker);
    request.set_task("worker/" + std::to_string(worker));
    return Call(server_, &Server::Join, request);
  }
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(int worker, uint64_t incarnation = 1) {
    v1::HeartbeatRequest request;
    request.set_worker(worker);
    request.set_incarnation(incarnation);
    return Call(server_, &Server::Heartbeat, request);
  }
  void Leave(int worker, v1::LeaveReason reason, const std::string& message = "") {
    v1::LeaveRequest request;
    request.set_worker(worker);
    request.set_incarnation(1);
    request.set_reason(reason);
    request.set_message(message);
    EXPECT_TRUE(Call(server_, &Server::Leave, request).ok());
  }
  // Changes the learning rate, as the first incarnation of the chief.
  absl::Status ChangeConfig(float learning_rate) {
    v1::ChangeConfigRequest request;
    request.set_incarnation(1);
    request.set_number(++config_changes_);
    request.mutable_config_change()->set_learning_rate(learning_rate);
    return Call(server_, &Server::ChangeConfig, request).status();
  }
  using WaitAnswer = std::optional<absl::StatusOr<v1::WaitResponse>>;
  void Wait(v1::Condition condition, double seconds, WaitAnswer& answer) {
    v1::WaitRequest request;
    request.set_condition(condition);
    request.set_wait_seconds(seconds);
    server_.Wait(request,
                 [&answer](absl::StatusOr<v1::WaitResponse> response) { answer = std::move(response); });
  }
  absl::Status Finish() { return Call(server_, &Server::Finish, v1::FinishRequest()).status(); }

  static v1::CreateRequest Variable(const std::string& name, const std::vector<float>& values) {
    v1::CreateRequest request;
    request.mutable_job()->set_mode(v1::MODE_VARIABLES);
    *request.add_slices() = Vectors({{name, static_cast<int64_t>(values.size())}})[0].ToProto();
    request.mutable_values()->Add(values.begin(), values.end());
    return request;
  }
  std::vector<float> AllValues() {
    return ToVector(server_.JobForLayout(Describe().layout()).value()->shard().store().current());
  }

  test::FakeClock clock_;
  Server server_;
  int64_t config_changes_ = 0;
};

}  // namespace cairn::ps
