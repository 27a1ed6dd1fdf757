#include "ps/rpc/permissions.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/job/server.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

// The server of a job with worker/0, which is the chief, and worker/1.
class PermissionsTest : public testing::Test {
 protected:
  PermissionsTest() : server_({.index = 0, .incarnation = 5, .connect_to_leader = nullptr}, clock_) {
    server_.Create(TrainingJob(),
                   [](const absl::StatusOr<v1::CreateResponse>& created) { ASSERT_TRUE(created.ok()); });
  }

  static Permissions Of(const std::string& name) {
    const net::CertificateNames names = {.uris = {"cairn:" + name}};
    return Permissions(net::Caller::Of(names), "worker/0");
  }
  template <typename Request>
  absl::Status Check(const std::string& name, const Request& request) {
    return Of(name).Check(request, server_);
  }

  test::FakeClock clock_;
  Server server_;
};

template <typename Request>
Request ForWorker(int worker) {
  Request request;
  request.set_worker(worker);
  return request;
}

v1::CreateRequest Create(v1::Mode mode) {
  v1::CreateRequest request;
  request.mutable_job()->set_mode(mode);
  return request;
}

v1::PlaceMarkerRequest PlaceMarker(bool snapshot) {
  v1::PlaceMarkerRequest request;
  request.set_snapshot(snapshot);
  return request;
}

TEST_F(PermissionsTest, EachCallIsAllowedAsInTheTable) {
  using Allowed = std::function<bool(const Permissions&)>;
  const auto of = [this](const auto& request) -> Allowed {
    return
        [this, request](const Permissions& permissions) { return permissions.Check(request, server_).ok(); };
  };
  // A y for each caller that may make the call.
  const std::vector<std::string> callers = {"worker/0", "worker/1", "worker",    "chief", "operator", "ps/0",
                                            "ps/1",     "ps",       "evaluator", "*",     "none"};
  const struct {
    const char* call;
    Allowed allowed;
    const char* answers;
  } rows[] = {
      //                                                             w0 w1 w  ch op p0 p1 ps ev *  none
      {"create a job", of(Create(v1::MODE_SYNC)), /*             */ "y- - y- - - - - y-"},
      {"create variables", of(Create(v1::MODE_VARIABLES)), /*    */ "y- - yy - - - - y-"},
      {"change the config", of(v1::ChangeConfigRequest()), /*    */ "y- - y- - - - - y-"},
      {"finish", of(v1::FinishRequest()), /*                     */ "y- - yy - - - - y-"},
      {"snapshot", of(PlaceMarker(true)), /*                     */ "y- - y- - - - - y-"},
      {"place a marker", of(PlaceMarker(false)), /*              */ "yy y yy - - - y y-"},
      {"join 0", of(ForWorker<v1::JoinRequest>(0)), /*           */ "y- y y- - - - - y-"},
      {"join 1", of(ForWorker<v1::JoinRequest>(1)), /*           */ "-y y -- - - - - y-"},
      {"heartbeat 1", of(ForWorker<v1::HeartbeatRequest>(1)), /* */ "-y y -- - - - - y-"},
      {"batch mean 1", of(ForWorker<v1::BatchMeanRequest>(1)), /**/ "-y y -- - - - - y-"},
      {"leave 1", of(ForWorker<v1::LeaveRequest>(1)), /*         */ "-y y -- - - - - y-"},
      {"push 1", [this](const Permissions& p) { return p.CheckPush(1, server_).ok(); }, "-y y -- - - - - y-"},
      {"write", [](const Permissions& p) { return p.CheckWrite().ok(); }, /* */ "y- - yy - - - - y-"},
      {"follow as ps/1", [](const Permissions& p) { return p.CheckFollow(1).ok(); }, "-- - -- - y y - y-"},
      {"replicate", [](const Permissions& p) { return p.CheckReplicate().ok(); }, /* */ "-- - -- y y y - y-"},
  };
  for (const auto& row : rows) {
    std::string answers;
    for (const char letter : std::string(row.answers)) {
      if (letter != ' ') answers += letter;
    }
    ASSERT_EQ(answers.size(), callers.size()) << row.call;
    for (size_t i = 0; i < callers.size(); ++i) {
      EXPECT_EQ(row.allowed(Of(callers[i])), answers[i] == 'y') << callers[i] << ": " << row.call;
    }
    EXPECT_TRUE(row.allowed(Permissions())) << row.call;
  }
}

TEST_F(PermissionsTest, ARefusalNamesTheCallerTheCallAndTheAllowedTasks) {
  const absl::Status refused = Check("worker/1", v1::FinishRequest());
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.message(),
            "the certificate of worker/1 may not end the job: only that of the chief (worker/0) or an "
            "operator may");
}

TEST_F(PermissionsTest, TheChiefInARequestIsIgnored) {
  v1::CreateRequest request = Create(v1::MODE_SYNC);
  request.mutable_job()->add_workers("worker/1");
  EXPECT_EQ(Check("worker/1", request).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(PermissionsTest, NoNamedCallerMayJoinWithAnUnknownNumber) {
  EXPECT_THAT(std::string(Check("worker/1", ForWorker<v1::JoinRequest>(7)).message()),
              HasSubstr("may not join as worker 7"));
}

}  // namespace
}  // namespace cairn::ps
