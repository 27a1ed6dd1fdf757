#include "client/training/server_control.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/data_position.h"
#include "client/job_end.h"
#include "client/job_setup.h"
#include "common/core/status.h"

namespace cairn::client {
namespace {

constexpr auto kBetweenSnapshots = std::chrono::milliseconds(100);

}  // namespace

absl::StatusOr<float> ServerControl::LearningRate() {
  CAIRN_ASSIGN_OR_RETURN(const v1::ConnectResponse response, DescribeLeader());
  return response.learning_rate();
}

absl::StatusOr<v1::ConnectResponse> ServerControl::DescribeLeader() {
  if (!connection_.replicated()) return connection_.Describe(0);
  absl::StatusOr<v1::ConnectResponse> response = absl::UnavailableError("not queried");
  const absl::Status status = job_.Persist([&] {
    response = connection_.Describe(0);
    return response.status();
  });
  return status.ok() ? response : status;
}

absl::Status ServerControl::SetLearningRate(float rate) {
  v1::ConfigChange config_change;
  config_change.set_learning_rate(rate);
  return Annotate(ChangeConfig(config_change), "changing the learning rate");
}

absl::Status ServerControl::EndTraining() {
  v1::ConfigChange config_change;
  config_change.set_end(true);
  CAIRN_RETURN_IF_ERROR(Annotate(ChangeConfig(config_change), "ending the job"));
  return steps_.Pull();
}

absl::Status ServerControl::ChangeConfig(const v1::ConfigChange& config_change) {
  v1::ChangeConfigRequest request;
  request.set_incarnation(job_.incarnation());
  request.set_number(++config_changes_);
  *request.mutable_config_change() = config_change;
  return job_.Persist([&] {
    for (int server = 0; server < sequencers(); ++server) {
      v1::ChangeConfigResponse response;
      CAIRN_RETURN_IF_ERROR(connection_.stub(server).Call(request, &response, kCallTimeout));
    }
    return absl::OkStatus();
  });
}

absl::Status ServerControl::Write(absl::Span<const float> values, const TableOpener& tables) {
  CAIRN_CHECK(values.size() == steps_.parameters().size());
  CAIRN_RETURN_IF_ERROR(job_.Persist([&]() -> absl::Status {
    std::unique_ptr<TableSource> source;
    if (tables != nullptr) {
      CAIRN_ASSIGN_OR_RETURN(source, tables());
    }
    return WriteState(connection_, job_.learnt(), {values},
                      {.initialise = false, .tables = source.get(), .timeout = job_.step_timeout()});
  }));
  return steps_.Pull();
}

absl::StatusOr<SnapshotMarker> ServerControl::PlaceSnapshotMarker(const StopCheck& stopped) {
  return client::PlaceSnapshotMarker(connection_, job_.learnt(), absl::StrCat("snapshot ", job_.NextMarker()),
                                     stopped);
}

absl::StatusOr<TakenSnapshot> ServerControl::TakeSnapshot(const StopCheck& stopped) {
  CAIRN_ASSIGN_OR_RETURN(SnapshotMarker marked, PlaceSnapshotMarker(stopped));
  const int64_t version = marked.progress.version();
  return TakenSnapshot{.version = version,
                       .read = [this, marked = std::move(marked)](const ReadLimit& limit, TableSink* tables) {
                         return ReadSnapshot(connection_, marked, limit, tables);
                       }};
}

absl::Status ServerControl::CheckSnapshotMayBeRetried(const absl::Status& failure) {
  if (!absl::IsUnavailable(failure) || !connection_.replicated()) return failure;
  std::this_thread::sleep_for(kBetweenSnapshots);
  return connection_.DescribeAll().status();
}

absl::Status ServerControl::WaitForOthers(Duration timeout) {
  return connection_
      .WaitUntil({.condition = v1::CONDITION_ALL_OTHERS_LEFT, .worker = job_.worker(), .timeout = timeout},
                 [this] { return job_.failure(); })
      .status();
}

absl::Status ServerControl::Finish() {
  return EndServers(connection_);
}

absl::StatusOr<v1::Counters> ServerControl::ServerCounters() {
  CAIRN_ASSIGN_OR_RETURN(v1::ConnectResponse response, DescribeLeader());
  return response.counters();
}

absl::StatusOr<v1::DataPosition> ServerControl::UsedData() {
  std::vector<v1::DataPosition> servers;
  for (int server = 0; server < sequencers(); ++server) {
    CAIRN_ASSIGN_OR_RETURN(const v1::ConnectResponse response, connection_.Describe(server));
    servers.push_back(response.data());
  }
  return AtTheEnd(servers);
}

}  // namespace cairn::client
