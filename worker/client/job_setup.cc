#include "worker/client/job_setup.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "worker/client/request.h"
#include "worker/client/server_session.h"

namespace cairn::client {
namespace {

constexpr Timeout kCallTimeout = std::chrono::seconds(10);

// "mode: async here, sync on the servers", or nothing when they agree.
void Compare(absl::string_view what, const std::string& here, const std::string& there,
             std::vector<std::string>* differences) {
  if (here != there)
    differences->push_back(absl::StrCat(what, ": ", here, " here, ", there, " on the servers"));
}

// What an optimizer's configuration says, by name: "learning_rate", "schedule decay_steps".
std::map<std::string, std::string> SettingsOf(const v1::OptimizerConfig& optimizer) {
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : optimizer.hyperparameters()) settings[name] = absl::StrCat(value);
  if (!optimizer.has_learning_rate_schedule()) return settings;
  const v1::LearningRateSchedule& schedule = optimizer.learning_rate_schedule();
  settings["schedule"] = schedule.name();
  settings["schedule boundaries"] = absl::StrJoin(schedule.boundaries(), " ");
  settings["schedule values"] = absl::StrJoin(schedule.values(), " ");
  for (const auto& [name, value] : schedule.numbers()) {
    settings[absl::StrCat("schedule ", name)] = absl::StrCat(value);
  }
  return settings;
}

// Servers take the norms of what they hold, so a variable whose norm an optimizer needs may not be split.
bool NeedsWholeVariables(const v1::OptimizerConfig& optimizer) {
  const auto is_on = [&](const char* name) {
    const auto found = optimizer.hyperparameters().find(name);
    return found != optimizer.hyperparameters().end() && found->second > 0;
  };
  return is_on("clipnorm") || is_on("global_clipnorm") || absl::EqualsIgnoreCase(optimizer.name(), "Lamb");
}

absl::Status CheckSameJob(const IntendedJob& intended, const v1::Job& theirs) {
  const v1::Job& ours = intended.job;
  std::vector<std::string> differences;
  Compare("mode", v1::Mode_Name(ours.mode()), v1::Mode_Name(theirs.mode()), &differences);
  Compare("model", ours.model_sha256().substr(0, 12), theirs.model_sha256().substr(0, 12), &differences);
  Compare("workers", absl::StrJoin(ours.workers(), " "), absl::StrJoin(theirs.workers(), " "), &differences);
  Compare("replicas to aggregate", absl::StrCat(ours.replicas_to_aggregate()),
          absl::StrCat(theirs.replicas_to_aggregate()), &differences);
  Compare("max staleness", absl::StrCat(ours.has_max_staleness() ? ours.max_staleness() : -1),
          absl::StrCat(theirs.has_max_staleness() ? theirs.max_staleness() : -1), &differences);
  Compare("last version", absl::StrCat(ours.final_version()), absl::StrCat(theirs.final_version()),
          &differences);
  Compare("batch size", absl::StrCat(ours.batch_size()), absl::StrCat(theirs.batch_size()), &differences);
  Compare("epochs", absl::StrCat(ours.epochs()), absl::StrCat(theirs.epochs()), &differences);
  Compare("seed", absl::StrCat(ours.seed()), absl::StrCat(theirs.seed()), &differences);
  Compare("optimizer", ours.optimizer().name(), theirs.optimizer().name(), &differences);
  const auto here = SettingsOf(ours.optimizer()), there = SettingsOf(theirs.optimizer());
  std::set<std::string> names;
  for (const auto& [name, value] : here) names.insert(name);
  for (const auto& [name, value] : there) names.insert(name);
  for (const std::string& name : names) {
    const auto value_in = [&](const std::map<std::string, std::string>& settings) {
      const auto found = settings.find(name);
      return found == settings.end() ? std::string("unset") : found->second;
    };
    Compare(name, value_in(here), value_in(there), &differences);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the servers train another job than ", intended.task,
                                                    ": ", absl::StrJoin(differences, "; ")));
}

absl::StatusOr<LearntJob> LearnJob(const Connection& connection, const IntendedJob& intended,
                                   const std::vector<v1::ConnectResponse>& described) {
  CAIRN_ASSIGN_OR_RETURN(auto slices, SlicesOf(described));
  CAIRN_ASSIGN_OR_RETURN(net::Layout layout, net::Layout::Create(intended.variables, slices));
  LearntJob learnt = {.job = described[0].job(), .layout = std::move(layout), .layout_ids = {}};
  for (int server = 0; server < connection.num_servers(); ++server) {
    if (!learnt.layout.covers(server)) {
      return absl::FailedPreconditionError(
          absl::StrCat(connection.NameOf(server), " holds variables that the model lacks"));
    }
    learnt.layout_ids.push_back(described[static_cast<size_t>(server)].layout());
  }
  return learnt;
}

absl::Status WriteInitial(Connection& connection, const LearntJob& learnt, absl::Span<const float> initial) {
  std::vector<PendingDone> done(static_cast<size_t>(connection.num_servers()));
  std::vector<std::unique_ptr<ServerSession>> sessions;
  for (int server = 0; server < connection.num_servers(); ++server) {
    sessions.push_back(std::make_unique<ServerSession>(connection.stub(server)));
    v1::ClientHeader header;
    header.mutable_write()->set_layout(learnt.layout_ids[static_cast<size_t>(server)]);
    header.mutable_write()->set_initialise(true);
    CAIRN_ASSIGN_OR_RETURN(
        const uint64_t id,
        sessions.back()->Begin(std::move(header), nullptr, done[static_cast<size_t>(server)].Callback()));
    SendExtents(*sessions.back(), id, learnt.layout.extents_on(server), initial);
    sessions.back()->SendEnd(id);
  }
  for (int server = 0; server < connection.num_servers(); ++server) {
    const auto timeout = std::chrono::duration_cast<Timeout>(connection.options().connect_timeout);
    CAIRN_RETURN_IF_ERROR(Annotate(done[static_cast<size_t>(server)].Wait(timeout).status(),
                                   absl::StrCat("writing initial values to ", connection.NameOf(server))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InitialiseServers(Connection& connection, const IntendedJob& intended, int64_t split_bytes,
                               absl::Span<const float> initial) {
  CAIRN_ASSIGN_OR_RETURN(auto described, connection.DescribeAll());
  int ready = 0;
  int64_t version = 0;
  for (const v1::ConnectResponse& response : described) {
    if (response.state() == v1::STATE_FAILED) return absl::InternalError(response.failure());
    if (response.state() == v1::STATE_FINISHED) return absl::FailedPreconditionError("training is over");
    if (response.state() == v1::STATE_READY) {
      ++ready;
      CAIRN_RETURN_IF_ERROR(CheckSameJob(intended, response.job()));
    }
    version = std::max(version, response.version());
  }
  if (ready == connection.num_servers()) return absl::OkStatus();
  if (version > 0) {
    return absl::AbortedError(absl::StrCat(connection.num_servers() - ready, " of ", connection.num_servers(),
                                           " servers have lost their variables, others stand at version ",
                                           version));
  }
  // Servers that a former chief made ready, when others were not, have made no update: workers wait for all
  // of them. But they refuse another job.
  v1::Job run = intended.job;
  for (const v1::ConnectResponse& response : described) {
    if (response.state() == v1::STATE_READY) run.set_run_id(response.job().run_id());
  }
  const bool whole = NeedsWholeVariables(intended.job.optimizer());
  const auto slices = net::PlaceVariables(
      intended.variables,
      {.servers = connection.num_servers(), .split_bytes = whole ? net::kNeverSplit : split_bytes});
  for (int server = 0; server < connection.num_servers(); ++server) {
    if (described[static_cast<size_t>(server)].state() == v1::STATE_READY) continue;
    v1::CreateRequest request;
    *request.mutable_job() = run;
    for (const net::Slice& slice : slices[static_cast<size_t>(server)])
      *request.add_slices() = slice.ToProto();
    v1::CreateResponse response;
    CAIRN_RETURN_IF_ERROR(connection.stub(server).Create(request, &response, kCallTimeout));
  }
  CAIRN_ASSIGN_OR_RETURN(described, connection.DescribeAll());
  CAIRN_ASSIGN_OR_RETURN(const LearntJob learnt, LearnJob(connection, intended, described));
  return WriteInitial(connection, learnt, initial);
}

absl::StatusOr<LearntJob> AwaitJob(Connection& connection, const IntendedJob& intended) {
  for (int server = 0; server < connection.num_servers(); ++server) {
    CAIRN_RETURN_IF_ERROR(connection.WaitUntil(server, v1::CONDITION_READY, /*worker=*/0,
                                               connection.options().connect_timeout, &absl::OkStatus));
  }
  CAIRN_ASSIGN_OR_RETURN(auto described, connection.DescribeAll());
  for (const v1::ConnectResponse& response : described) {
    if (response.state() == v1::STATE_FINISHED) return absl::FailedPreconditionError("training is over");
    CAIRN_RETURN_IF_ERROR(CheckSameJob(intended, response.job()));
    if (response.job().run_id() != described[0].job().run_id()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the servers disagree about the run: ", response.job().run_id(), " and ",
                       described[0].job().run_id()));
    }
  }
  return LearnJob(connection, intended, described);
}

}  // namespace cairn::client
