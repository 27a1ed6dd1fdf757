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
class SlowCreator final : public ControlStub {
 public:
  explicit SlowCreator(Timeout& limit) : limit_(limit) {}
  absl::Status Call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message&,
                    google::protobuf::Message* response, Timeout timeout, const StopCheck&) override {
    if (method.name() == "Connect") {
      auto& connected = dynamic_cast<v1::ConnectResponse&>(*response);
      connected.set_state(v1::STATE_EMPTY);
      connected.set_incarnation(7);
      return absl::OkStatus();
    }
    if (method.name() != "Create") return absl::UnimplementedError("not asked here");
    limit_ = timeout;
    return absl::DeadlineExceededError("Deadline Exceeded");
  }

 private:
  Timeout& limit_;
};

class NoStreams final : public StreamFactory {
  std::unique_ptr<FrameStream> Open(FrameHandler&, const StopCheck&) override { return nullptr; }
};

// Returns how long the chief waits for a server to create a variable of this many elements, and its message.
std::pair<Timeout, absl::Status> CreateOf(int64_t elements) {
  Timeout limit{};
  std::vector<std::unique_ptr<ServerStub>> stubs;
  stubs.push_back(
      std::make_unique<ServerStub>(ServerStub::Parts{.address = "host:1",
                                                     .control = std::make_unique<SlowCreator>(limit),
                                                     .streams = std::make_unique<NoStreams>()}));
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
