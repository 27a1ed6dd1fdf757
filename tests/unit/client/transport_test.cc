#include "client/transport/transport.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::client {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Answers every call with `status`, and records the names of the calls.
class NamedCalls final : public ControlStub {
 public:
  NamedCalls(std::vector<std::string>& names, absl::Status status)
      : names_(names), status_(std::move(status)) {}
  absl::Status Call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message&,
                    google::protobuf::Message*, Timeout, const StopCheck&) override {
    names_.push_back(std::string(method.full_name()));
    return status_;
  }

 private:
  std::vector<std::string>& names_;
  const absl::Status status_;
};

// Records the incarnations in the answers that it learns from.
class LearningStreams final : public StreamFactory {
 public:
  explicit LearningStreams(std::vector<uint64_t>& learnt) : learnt_(learnt) {}
  std::unique_ptr<FrameStream> Open(FrameHandler&, const StopCheck&) override { return nullptr; }
  void Learn(const v1::ConnectResponse& response) override { learnt_.push_back(response.incarnation()); }

 private:
  std::vector<uint64_t>& learnt_;
};

class ServerStubTest : public testing::Test {
 protected:
  ServerStub Stub(absl::Status status) {
    return ServerStub({.address = "host:1",
                       .control = std::make_unique<NamedCalls>(names_, std::move(status)),
                       .streams = std::make_unique<LearningStreams>(learnt_)});
  }

  std::vector<std::string> names_;
  std::vector<uint64_t> learnt_;
};

TEST_F(ServerStubTest, TheRequestSelectsTheCall) {
  ServerStub stub = Stub(absl::OkStatus());
  v1::JoinResponse joined;
  v1::FinishResponse finished;
  EXPECT_EQ(stub.Call(v1::JoinRequest(), &joined, Timeout(1)), absl::OkStatus());
  EXPECT_EQ(stub.Call(v1::FinishRequest(), &finished, Timeout(1)), absl::OkStatus());
  EXPECT_THAT(names_, ElementsAre("cairn.v1.ParameterServer.Join", "cairn.v1.ParameterServer.Finish"));
  EXPECT_THAT(learnt_, IsEmpty()) << "only the answer to Connect announces a data channel";
}

TEST_F(ServerStubTest, StreamsLearnFromTheAnswerToConnect) {
  ServerStub stub = Stub(absl::OkStatus());
  v1::ConnectResponse connected;
  connected.set_incarnation(7);
  EXPECT_EQ(stub.Call(v1::ConnectRequest(), &connected, Timeout(1)), absl::OkStatus());
  EXPECT_THAT(learnt_, ElementsAre(7u));
}

TEST_F(ServerStubTest, StreamsLearnNothingFromAFailedConnect) {
  ServerStub stub = Stub(absl::UnavailableError("refused"));
  v1::ConnectResponse connected;
  EXPECT_EQ(stub.Call(v1::ConnectRequest(), &connected, Timeout(1)), absl::UnavailableError("refused"));
  EXPECT_THAT(learnt_, IsEmpty());
}

using ServerStubDeathTest = ServerStubTest;
TEST_F(ServerStubDeathTest, ARequestWithTheResponseOfAnotherCallEndsTheProcess) {
  ServerStub stub = Stub(absl::OkStatus());
  v1::FinishResponse finished;
  EXPECT_DEATH((void)stub.Call(v1::JoinRequest(), &finished, Timeout(1)), "no call");
}

}  // namespace
}  // namespace cairn::client
