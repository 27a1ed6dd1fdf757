#include "client/job_setup.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using testing::HasSubstr;

// An empty server that never answers Create, and records the timeout of the call.
class SlowCreator final : public ServerStub {
 public:
  explicit SlowCreator(Timeout& limit) : limit_(limit) {}
  absl::Status Connect(const v1::ConnectRequest&, v1::ConnectResponse* response, Timeout) override {
    response->set_state(v1::STATE_EMPTY);
    response->set_incarnation(7);
    return absl::OkStatus();
  }
  absl::Status Create(const v1::CreateRequest&, v1::CreateResponse*, Timeout timeout) override {
    limit_ = timeout;
    return absl::DeadlineExceededError("Deadline Exceeded");
  }
  absl::Status Wait(const v1::WaitRequest&, v1::WaitResponse*, Timeout) override { return kNotAsked; }
  absl::Status Join(const v1::JoinRequest&, v1::JoinResponse*, Timeout) override { return kNotAsked; }
  absl::Status Heartbeat(const v1::HeartbeatRequest&, v1::HeartbeatResponse*, Timeout) override {
    return kNotAsked;
  }
  absl::Status Leave(const v1::LeaveRequest&, v1::LeaveResponse*, Timeout) override { return kNotAsked; }
  absl::Status PlaceMarker(const v1::PlaceMarkerRequest&, v1::PlaceMarkerResponse*, Timeout) override {
    return kNotAsked;
  }
  absl::Status ChangeConfig(const v1::ChangeConfigRequest&, v1::ChangeConfigResponse*, Timeout) override {
    return kNotAsked;
  }
  absl::Status Finish(const v1::FinishRequest&, v1::FinishResponse*, Timeout) override { return kNotAsked; }
  absl::Status Promote(const v1::PromoteRequest&, v1::PromoteResponse*, Timeout) override {
    return kNotAsked;
  }
  std::unique_ptr<FrameStream> OpenStream(FrameHandler&) override { return nullptr; }
  std::string address() const override { return "host:1"; }

 private:
  inline static const absl::Status kNotAsked = absl::UnimplementedError("not asked here");
  Timeout& limit_;
};

// Returns how long the chief waits for a server to create a variable of this many elements, and its message.
std::pair<Timeout, absl::Status> CreateOf(int64_t elements) {
  Timeout limit{};
  std::vector<std::unique_ptr<ServerStub>> stubs;
  stubs.push_back(std::make_unique<SlowCreator>(limit));
  const auto connection = Connection::Open(std::move(stubs), {.task = "worker/0"}).value();
  const std::vector<net::VariableInfo> variables = {{"table", Shape({elements}), 0}};
  v1::Job job;
  FirstValues values({});
  int64_t begun = -1;
  const absl::Status status =
      InitialiseServers(*connection, {.task = "worker/0", .job = job, .variables = variables},
                        /*split_bytes=*/0, values, &begun);
  return {limit, status};
}

TEST(InitialiseServers, CreatingALargeVariableMayTakeMinutes) {
  EXPECT_EQ(CreateOf(4).first, std::chrono::seconds(10));
  const auto [limit, status] = CreateOf(int64_t{1} << 29);
  EXPECT_GE(limit, std::chrono::minutes(4));
  EXPECT_LE(limit, std::chrono::minutes(5)) << "every wait has a limit";
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("creating 2048 MiB of variables on ps/0 at host:1: no answer within 266 s"));
}

}  // namespace
}  // namespace cairn::client
