// Calls that write to the round log: markers and config changes.
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/job/server_calls.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

using ServerConfigTest = ServerTest;

TEST_F(ServerConfigTest, AMarkerWithALongNameIsRefused) {
  MakeReady();
  v1::PlaceMarkerRequest request;
  request.set_token(std::string(kMaxMarkerLength + 1, 'a'));
  EXPECT_EQ(Call(server_, &Server::PlaceMarker, request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerConfigTest, AChangedLearningRateIsReported) {
  MakeReady();
  ASSERT_TRUE(Join(0).ok());
  EXPECT_EQ(Describe().learning_rate(), 0.01f) << "SGD's default";
  EXPECT_TRUE(ChangeConfig(0.5f).ok());
  EXPECT_EQ(Describe().learning_rate(), 0.5f);
  for (float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(ChangeConfig(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(Describe().learning_rate(), 0.5f);
}

TEST_F(ServerConfigTest, ALearningRateCannotReplaceASchedule) {
  v1::CreateRequest request = TrainingJob();
  auto& schedule = *request.mutable_job()->mutable_optimizer()->mutable_learning_rate_schedule();
  schedule.set_name("PiecewiseConstantDecay");
  schedule.add_values(1);
  server_.OnInitialised(Create(request).value().layout());
  ASSERT_TRUE(Join(0).ok());
  const absl::Status status = ChangeConfig(0.5f);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("PiecewiseConstantDecay"));
}

TEST_F(ServerConfigTest, WithoutAJobAConfigChangeIsRefused) {
  EXPECT_EQ(ChangeConfig(0.5f).code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(Create(Variable("v", {1})).ok());
  EXPECT_EQ(ChangeConfig(0.5f).code(), absl::StatusCode::kFailedPrecondition) << "nothing is trained";
}

}  // namespace
}  // namespace cairn::ps
