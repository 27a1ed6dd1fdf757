#include "common/net/server/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_util.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/slice.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

// A server with only the services that every server of Cairn has.
class HealthTest : public testing::Test {
 protected:
  HealthTest() {
    static const bool offered = [] {
      OfferHealthAndReflection();
      return true;
    }();
    EXPECT_TRUE(offered);
    grpc::ServerBuilder builder;
    ConfigureServer(builder, /*reuse_port=*/false);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~HealthTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  absl::Status Check(const std::string& service) const {
    return CheckHealth(address_, service, std::chrono::seconds(30), {});
  }

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(HealthTest, AServerIsLiveBeforeItIsReady) {
  EXPECT_EQ(Check(""), absl::OkStatus());
  EXPECT_EQ(Check(kReadyService).code(), absl::StatusCode::kNotFound);
  SetReady(*server_, false);
  EXPECT_THAT(Check(kReadyService).message(), HasSubstr("NOT_SERVING"));
  SetReady(*server_, true);
  EXPECT_EQ(Check(kReadyService), absl::OkStatus());
}

TEST_F(HealthTest, AStoppingServerServesNothing) {
  SetReady(*server_, true);
  StopServing(*server_);
  SetReady(*server_, true);  // has no effect any more
  EXPECT_EQ(Check("").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Check(kReadyService).code(), absl::StatusCode::kUnavailable);
}

TEST_F(HealthTest, ReflectionListsTheServices) {
  grpc::GenericStub stub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  SetDeadline(context, std::chrono::seconds(30));
  const auto stream =
      stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  stream->StartCall(nullptr);
  ASSERT_TRUE(await());
  const grpc::Slice request(std::string("\x3a\x00", 2));  // ServerReflectionRequest{list_services: ""}
  stream->Write(grpc::ByteBuffer(&request, 1), nullptr);
  ASSERT_TRUE(await());
  grpc::ByteBuffer response;
  stream->Read(&response, nullptr);
  ASSERT_TRUE(await());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(response.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices)
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  EXPECT_THAT(text, HasSubstr("grpc.health.v1.Health"));
  EXPECT_THAT(text, HasSubstr("grpc.reflection.v1alpha.ServerReflection"));
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  EXPECT_TRUE(await());
}

}  // namespace
}  // namespace cairn::net
