// The checks of a server before it accepts a job.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/job/server_calls.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

using JobCheckTest = ServerTest;

TEST_F(JobCheckTest, AnUnknownScheduleIsNamed) {
  v1::CreateRequest request = TrainingJob();
  request.mutable_job()->mutable_optimizer()->mutable_learning_rate_schedule()->set_name("StepDecay");
  EXPECT_THAT(MessageOf(Create(request).status()), HasSubstr("optimizer SGD: unknown schedule 'StepDecay'"));
}

TEST_F(JobCheckTest, AnOptimizerWithNormsRefusesADividedBand) {
  for (const auto& [name, clip] :
       {std::pair("Lamb", ""), std::pair("SGD", "clipnorm"), std::pair("SGD", "global_clipnorm")}) {
    v1::CreateRequest request = TrainingJob();
    request.mutable_job()->mutable_optimizer()->set_name(name);
    if (*clip != 0) (*request.mutable_job()->mutable_optimizer()->mutable_hyperparameters())[clip] = 1;
    request.mutable_slices(0)->set_shape(0, 1000);  // bands of 4 rows
    request.mutable_slices(0)->set_row_end(402);
    const absl::Status status = Create(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(status),
                HasSubstr("takes norms, and 'a' is split at rows 0 and 402, not at multiples of 4"));
    request.mutable_slices(0)->set_row_end(400);
    EXPECT_EQ(Create(request).status(), absl::OkStatus());
  }
}

TEST_F(JobCheckTest, InvalidJobsAreRefusedWithoutEffect) {
  using Change = void (*)(v1::CreateRequest&);
  const Change changes[] = {
      [](v1::CreateRequest& request) { request.mutable_job()->set_mode(v1::MODE_UNSPECIFIED); },
      [](v1::CreateRequest& request) { request.mutable_job()->clear_workers(); },
      [](v1::CreateRequest& request) { request.mutable_job()->clear_servers(); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_lease_seconds(0); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_lease_seconds(1e300); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_replicas_to_aggregate(-1); },
      [](v1::CreateRequest& request) { request.mutable_job()->mutable_optimizer()->set_name("Magic"); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_work_items_ahead(-1); },
      [](v1::CreateRequest& request) { request.mutable_job()->set_work_items_ahead(65); },
      [](v1::CreateRequest& request) {
        for (int group = 0; group < 2; ++group)
          request.mutable_job()->add_variable_groups()->add_variables("a");
      },
      [](v1::CreateRequest& request) {
        request.mutable_job()->mutable_resumed()->add_groups()->set_learning_rate(-1);
        request.mutable_job()->add_variable_groups();
      },
      [](v1::CreateRequest& request) { request.mutable_job()->mutable_resumed()->add_groups(); },
      [](v1::CreateRequest& request) {
        auto& settings = *request.mutable_job()->mutable_resumed()->add_groups();
        (*settings.mutable_hyperparameters())["beta1"] = 0.5;
        request.mutable_job()->add_variable_groups();
      },
      [](v1::CreateRequest& request) {
        request.mutable_job()->mutable_resumed()->mutable_skipped_updates()->set_empty(-1);
      },
      [](v1::CreateRequest& request) { *request.add_slices() = request.slices(0); },
      [](v1::CreateRequest& request) { request.mutable_slices(0)->set_row_end(3); },
      [](v1::CreateRequest& request) { request.mutable_slices(0)->set_shape(0, -2); },
      [](v1::CreateRequest& request) { request.mutable_slices(0)->clear_name(); },
  };
  int row = 0;
  for (const Change change : changes) {
    v1::CreateRequest request = TrainingJob();
    change(request);
    EXPECT_EQ(Create(request).status().code(), absl::StatusCode::kInvalidArgument) << "row " << row++;
    EXPECT_EQ(Describe().state(), v1::STATE_EMPTY);
  }
}

TEST_F(JobCheckTest, AJobThatResumesAtAnImpossiblePositionIsRefused) {
  using Change = void (*)(v1::Progress&);
  const std::pair<const char*, Change> impossible[] = {
      {"version -1", [](v1::Progress& resumed) { resumed.set_version(-1); }},
      {"version 9223372036854775807", [](v1::Progress& resumed) { resumed.set_version(INT64_MAX); }},
      {"worker 1 at position -4",
       [](v1::Progress& resumed) {
         resumed.add_positions(3);
         resumed.add_positions(-4);
       }},
      {"example -5", [](v1::Progress& resumed) { resumed.mutable_data()->set_next(-5); }},
      {"7 unfinished examples",
       [](v1::Progress& resumed) {
         resumed.mutable_data()->set_next(6);
         resumed.mutable_data()->add_open()->set_count(7);
       }},
      {"learning rate of -0.5", [](v1::Progress& resumed) { resumed.set_learning_rate(-0.5f); }},
      {"learning rate of nan", [](v1::Progress& resumed) { resumed.set_learning_rate(std::nanf("")); }},
  };
  for (const auto& [what, change] : impossible) {
    v1::CreateRequest request = TrainingJob();
    change(*request.mutable_job()->mutable_resumed());
    const absl::Status status = Create(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(MessageOf(status), HasSubstr(what));
  }
}

TEST_F(JobCheckTest, NamesAndShapesBeyondTheirLimitAreRefused) {
  v1::CreateRequest request = TrainingJob();
  const std::string name(size_t{1} << 20, 'n');
  for (int i = 0; i < 64; ++i) {
    *request.add_slices() = Vectors({{absl::StrCat(i, name), 1}})[0].ToProto();
  }
  EXPECT_THAT(MessageOf(Create(request).status()), HasSubstr("the names and shapes of 65 variables take"));
}

// [two elements]: 8 bytes; without slots, of two workers: 2 + 3 + 1 times that.
TEST_F(JobCheckTest, AJobIsRefusedIfItExceedsTheMemoryByOneByte) {
  Server enough({.index = 0, .connect_to_leader = nullptr, .memory_limit = 48}, clock_);
  EXPECT_TRUE(Call(enough, &Server::Create, TrainingJob()).ok());
  Server short_of_it({.index = 0, .connect_to_leader = nullptr, .memory_limit = 47}, clock_);
  EXPECT_EQ(Call(short_of_it, &Server::Create, TrainingJob()).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(short_of_it.ended(), std::nullopt);
}

TEST_F(JobCheckTest, ARefusalForMemoryListsTheNeeds) {
  Server server({.index = 3, .connect_to_leader = nullptr, .memory_limit = int64_t{4} << 30}, clock_);
  v1::CreateRequest request = TrainingJob();
  request.mutable_job()->mutable_optimizer()->set_name("Adam");
  *request.mutable_slices(0) = Vectors({{"a", int64_t{1} << 28}})[0].ToProto();  // 1 GiB
  EXPECT_EQ(
      Call(server, &Server::Create, request).status(),
      absl::ResourceExhaustedError(
          "ps/3: the job needs 10 GiB and may take 4 GiB (--memory_limit): two versions of the values 2 GiB, "
          "2 slots of Adam 2 GiB, a gradient of each of 2 workers and one that arrives 3 GiB, "
          "a snapshot 3 GiB"));
}

}  // namespace
}  // namespace cairn::ps
