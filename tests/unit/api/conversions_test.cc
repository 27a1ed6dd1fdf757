#include "api/conversions.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Job TwoVariables() {
  return {.variables = {{.name = "kernel", .shape = {2, 3}}, {.name = "bias"}}, .workers = 2};
}

SessionOptions Options() {
  SessionOptions options;
  options.connect.servers = {"ps0:2222", "ps1:2222"};
  return options;
}

std::string Fault(const Job& job, const SessionOptions& options = Options()) {
  if (const auto variables = VariablesOf(job); !variables.ok())
    return std::string(variables.status().message());
  return std::string(ToProto(job, options).status().message());
}

TEST(Conversions, StatusesKeepCodeAndMessage) {
  const Status status = FromAbsl(absl::NotFoundError("no variable 'c'"));
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.ToString(), "NOT_FOUND: no variable 'c'");
  EXPECT_EQ(ToAbsl(status), absl::NotFoundError("no variable 'c'"));
  EXPECT_TRUE(FromAbsl(absl::OkStatus()).ok());
  EXPECT_EQ(Status().ToString(), "OK");
}

TEST(Conversions, VariablesFollowOneAnother) {
  const auto variables = VariablesOf(TwoVariables()).value();
  ASSERT_EQ(variables.size(), 2u);
  EXPECT_EQ(variables[0].shape, Shape({2, 3}));
  EXPECT_EQ(variables[1].shape, Shape());
  EXPECT_EQ(variables[1].offset, 6);
}

TEST(Conversions, AWorkQueueHasTheSeedOfItsOrder) {
  Job job = TwoVariables();
  job.work_queue = WorkQueue{.examples = 10, .batch_size = 4, .epochs = 2, .seed = 7};
  const v1::Job proto = ToProto(job, Options()).value();
  EXPECT_TRUE(proto.dynamic_sharding());
  EXPECT_EQ(proto.num_examples(), 10);
  EXPECT_EQ(proto.seed(), 7u);
}

TEST(Conversions, AJobNamesItsTasks) {
  Job job = TwoVariables();
  job.optimizer = {.name = "Adam", .hyperparameters = {{"learning_rate", 0.5}}};
  job.updates = 10;
  const v1::Job proto = ToProto(job, Options()).value();
  EXPECT_EQ(proto.mode(), v1::MODE_SYNC);
  EXPECT_THAT(proto.workers(), ElementsAre("worker/0", "worker/1"));
  EXPECT_THAT(proto.servers(), ElementsAre("ps0:2222", "ps1:2222"));
  EXPECT_EQ(proto.replicas_to_aggregate(), 2);
  EXPECT_EQ(proto.optimizer().hyperparameters().at("learning_rate"), 0.5);
  EXPECT_EQ(proto.final_version(), 10);
  EXPECT_FALSE(proto.restorable());
}

TEST(Conversions, OtherShapesAreAnotherModel) {
  Job other = TwoVariables();
  other.variables[0].shape = {3, 2};
  EXPECT_NE(ToProto(TwoVariables(), Options())->model_sha256(), ToProto(other, Options())->model_sha256());
}

TEST(Conversions, FaultsNameTheField) {
  Job job = TwoVariables();
  job.variables[1].name = "kernel";
  EXPECT_THAT(Fault(job), HasSubstr("two are named 'kernel'"));
  job = TwoVariables();
  job.variables[0].shape = {-1};
  EXPECT_THAT(Fault(job), HasSubstr("variable 'kernel'"));
  job = TwoVariables();
  job.workers = 0;
  EXPECT_THAT(Fault(job), HasSubstr("Job::workers: 0"));
  job = TwoVariables();
  job.mode = Mode::kBoundedStaleness;
  EXPECT_THAT(Fault(job), HasSubstr("Job::max_staleness"));
  job = TwoVariables();
  job.work_queue = WorkQueue{.examples = 10, .items_ahead = 65};
  EXPECT_THAT(Fault(job), HasSubstr("items_ahead: 65, must be in [1, 64]"));
  SessionOptions options = Options();
  options.worker = 2;
  EXPECT_THAT(Fault(TwoVariables(), options), HasSubstr("SessionOptions::worker: 2, must be in [0, 2)"));
  EXPECT_THAT(Fault(Job()), HasSubstr("there are none"));
}

}  // namespace
}  // namespace cairn::api
