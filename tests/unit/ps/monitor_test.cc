#include "ps/monitor/monitor.h"

#include <chrono>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/monitor/monitor_pages.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class MonitorTest : public testing::Test {
 protected:
  // A server with a synchronous job of two workers and eight values.
  void MakeReady() {
    v1::CreateRequest request = TrainingJob({{"a", 2}, {"b", 6}});
    request.mutable_job()->set_final_version(100);
    uint64_t layout = 0;
    server_.Create(request,
                   [&](absl::StatusOr<v1::CreateResponse> response) { layout = response->layout(); });
    server_.OnInitialised(layout);
  }
  void Join(int worker) {
    v1::JoinRequest request;
    request.set_worker(worker);
    request.set_task(absl::StrCat("worker/", worker));
    server_.Join(request,
                 [](const absl::StatusOr<v1::JoinResponse>& response) { EXPECT_TRUE(response.ok()); });
  }
  void Heartbeat(int worker, int64_t step, const v1::WorkerReport& report) {
    v1::HeartbeatRequest request;
    request.set_worker(worker);
    request.set_incarnation(1);
    request.set_step(step);
    *request.mutable_report() = report;
    server_.Heartbeat(
        request, [](const absl::StatusOr<v1::HeartbeatResponse>& response) { EXPECT_TRUE(response.ok()); });
  }

  test::FakeClock clock_;
  Server server_{{.index = 0, .cluster_hash = 17, .incarnation = 5, .connect_to_leader = nullptr}, clock_};
  Monitor monitor_{server_, clock_, "host:1"};
};

TEST_F(MonitorTest, AnEmptyServerReportsItsStatus) {
  clock_.Advance(std::chrono::seconds(3));
  const v1::ServerStatus status = monitor_.Status();
  EXPECT_EQ(status.task(), "ps/0");
  EXPECT_EQ(status.state(), v1::STATE_EMPTY);
  EXPECT_EQ(status.incarnation(), 5u);
  EXPECT_EQ(status.uptime_seconds(), 3);
  EXPECT_FALSE(status.has_job());
  EXPECT_GT(status.resident_bytes(), 0);
  EXPECT_THAT(monitor_.Page("/statusz").body, HasSubstr("waits for a chief"));
}

TEST_F(MonitorTest, ReportsTheJobAndTheAwaitedWorkers) {
  MakeReady();
  Join(0);
  const v1::ServerStatus status = monitor_.Status();
  EXPECT_EQ(status.state(), v1::STATE_READY);
  EXPECT_EQ(status.variables(), 2);
  EXPECT_EQ(status.variable_bytes(), 32);
  EXPECT_GE(status.memory_bytes(), 32);
  EXPECT_TRUE(status.sequences());
  EXPECT_THAT(status.waiting_for(), ElementsAre("worker/0", "worker/1"));
  ASSERT_EQ(status.members_size(), 2);
  EXPECT_EQ(status.members(0).state(), v1::MEMBER_STATE_LIVE);
  EXPECT_EQ(status.members(1).state(), v1::MEMBER_STATE_EXPECTED);
}

TEST_F(MonitorTest, AWorkersReportIsPassedOn) {
  MakeReady();
  Join(1);
  v1::WorkerReport report;
  report.set_examples_per_second(1234);
  report.set_device("/gpu:0");
  Heartbeat(1, 7, report);
  clock_.Advance(std::chrono::seconds(2));
  const v1::Member member = monitor_.Status().members(1);
  EXPECT_EQ(member.step(), 7);
  EXPECT_EQ(member.heard_seconds(), 2);
  EXPECT_EQ(member.report().examples_per_second(), 1234);
  EXPECT_EQ(member.report().device(), "/gpu:0");
}

TEST_F(MonitorTest, RatesAreOverTheLastSeconds) {
  MakeReady();
  monitor_.Sample();
  EXPECT_EQ(monitor_.Status().rates().received_bytes_per_second(), 0);
  server_.metrics().received_bytes.Add(3000);
  clock_.Advance(std::chrono::seconds(1));
  monitor_.Sample();
  EXPECT_EQ(monitor_.Status().rates().received_bytes_per_second(), 3000);
  for (int second = 0; second < 20; ++second) {
    clock_.Advance(std::chrono::seconds(1));
    monitor_.Sample();
  }
  EXPECT_EQ(monitor_.Status().rates().received_bytes_per_second(), 0) << "that was long ago";
}

TEST_F(MonitorTest, PagesHaveTheirTypesAndOthersAreNotFound) {
  MakeReady();
  EXPECT_EQ(monitor_.Page("/metrics").content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(monitor_.Page("/statusz").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(monitor_.Page("/healthz").body, "ok\n");
  EXPECT_EQ(monitor_.Page("/secrets").status, 404);
}

TEST_F(MonitorTest, AFailedJobIsUnhealthy) {
  MakeReady();
  Join(0);
  v1::LeaveRequest leave;
  leave.set_incarnation(1);
  leave.set_reason(v1::LEAVE_REASON_FAILED);
  leave.set_message("the loss is nan");
  server_.Leave(leave, [](const absl::StatusOr<v1::LeaveResponse>&) {});
  const monitor::HttpReply health = monitor_.Page("/healthz");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr("worker/0 failed: the loss is nan"));
}

TEST(MetricsOf, EveryFamilyIsDeclaredOnceBeforeItsSamples) {
  v1::ServerStatus status;
  status.set_task("ps/0");
  status.mutable_counters()->set_accepted(3);
  for (int i = 0; i < 4; ++i) status.mutable_counters()->add_staleness_histogram(i);
  status.add_members()->set_task("worker/0");
  status.add_waiting_for("worker/0");
  const std::string text = MetricsOf(status, Metrics());
  std::string family;
  std::set<std::string> families;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n', absl::SkipEmpty()))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[1] == "HELP") {
      family = words[2];
      EXPECT_TRUE(families.insert(family).second) << family << " is declared twice";
      EXPECT_TRUE(family.rfind("cairn_", 0) == 0 || family.rfind("process_", 0) == 0) << family;
    } else if (words[1] == "TYPE") {
      EXPECT_EQ(words[2], family);
      EXPECT_EQ(words[3] == "counter", family.size() > 6 && family.substr(family.size() - 6) == "_total")
          << line;
    } else {
      EXPECT_EQ(line.rfind(family, 0), 0u) << line;
    }
  }
  EXPECT_THAT(text, HasSubstr("cairn_ps_pushes_total{outcome=\"accepted\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("cairn_ps_staleness_versions_bucket{le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_ps_staleness_versions_bucket{le=\"+Inf\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("cairn_ps_waiting_for{task=\"worker/0\"} 1\n"));
}

v1::ServerStatus WithTable() {
  v1::ServerStatus status;
  status.set_state(v1::STATE_READY);
  v1::TableStatus& table = *status.add_tables();
  table.set_name("users");
  table.set_rows(12345);
  table.set_lookups(100);
  table.set_hits(97);
  table.set_gradients(8);
  table.set_updates(6);
  table.add_hottest()->set_id(-7);
  table.mutable_hottest(0)->set_share(0.25);
  return status;
}

TEST(MetricsOf, TablesHaveSamplesByName) {
  const std::string text = MetricsOf(WithTable(), Metrics());
  EXPECT_THAT(text, HasSubstr("cairn_ps_table_rows{table=\"users\"} 12345\n"));
  EXPECT_THAT(text, HasSubstr("cairn_ps_table_hits_total{table=\"users\"} 97\n"));
  EXPECT_THAT(text, HasSubstr("cairn_ps_table_hottest_ratio{table=\"users\"} 0.25\n"));
  EXPECT_THAT(MetricsOf(v1::ServerStatus(), Metrics()), Not(HasSubstr("cairn_ps_table")));
}

TEST(PageOf, ShowsTables) {
  const std::string page = monitor::RenderHtml(PageOf(WithTable(), Metrics(), {}, "host:1"));
  for (const char* part : {"Embedding tables", "users", "12,345", "97 %", "75 %", "-7 (25.0 %)"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
}

}  // namespace
}  // namespace cairn::ps
