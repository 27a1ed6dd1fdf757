#include "client/job_setup.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/job_end.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/monitor/inspection.h"
#include "common/net/grpc/call_limit.h"
#include "common/net/security/seal.h"
#include "common/net/wire/wire_choice.h"

namespace cairn::client {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

int64_t BytesOf(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(float));
}

// Adds "mode: async here, sync" to `differences` if the two sides differ; the caller adds where the second
// value is.
void Compare(absl::string_view what, const std::string& here, const std::string& there,
             std::vector<std::string>* differences) {
  if (here != there) differences->push_back(absl::StrCat(what, ": ", here, " here, ", there));
}

void CompareTrainingSets(const v1::TrainingSet& here, const v1::TrainingSet& there,
                         std::vector<std::string>* differences) {
  const size_t before = differences->size();
  Compare("training examples", absl::StrCat(here.examples()), absl::StrCat(there.examples()), differences);
  Compare("shape of an example", absl::StrJoin(here.example_shape(), "x"),
          absl::StrJoin(there.example_shape(), "x"), differences);
  Compare("targets", here.targets(), there.targets(), differences);
  if (differences->size() > before) return;  // the digests differ too, but add no information
  Compare("contents of the training data (or --input_scale, --bucket_boundaries), by digest",
          here.sha256().substr(0, 12), there.sha256().substr(0, 12), differences);
}

// The settings of an optimizer's configuration, by name: "learning_rate", "schedule decay_steps".
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

void CompareSettings(const std::map<std::string, std::string>& here,
                     const std::map<std::string, std::string>& there, std::vector<std::string>* differences) {
  std::set<std::string> names;
  for (const auto& [name, value] : here) names.insert(name);
  for (const auto& [name, value] : there) names.insert(name);
  for (const std::string& name : names) {
    const auto value_in = [&](const std::map<std::string, std::string>& settings) {
      const auto found = settings.find(name);
      return found == settings.end() ? std::string("unset") : found->second;
    };
    Compare(name, value_in(here), value_in(there), differences);
  }
}

// "a,b c": two groups.
std::string DescribeGroups(const v1::Job& job) {
  std::vector<std::string> groups;
  for (const v1::VariableGroup& group : job.variable_groups()) {
    groups.push_back(absl::StrJoin(group.variables(), ","));
  }
  return absl::StrCat("(", absl::StrJoin(groups, " "), ")");
}

// "users/embeddings [1000,16] begins DISTRIBUTION_UNIFORM 0 0.05 seed 0 adagrad learning_rate=0.1"
std::string DescribeTables(const v1::Job& job) {
  std::vector<std::string> tables;
  for (const v1::Table& table : job.tables()) {
    const v1::EmbeddingTable& embedding = table.embedding();
    std::string& text = tables.emplace_back(absl::StrCat(
        table.name(), " [",
        embedding.vocabulary_size() == 0 ? std::string("any") : absl::StrCat(embedding.vocabulary_size()),
        ",", table.row_elements(), "] begins ",
        v1::EmbeddingTable::Distribution_Name(embedding.distribution()), " ", embedding.center(), " ",
        embedding.spread(), " seed ", embedding.seed()));
    if (!embedding.has_optimizer()) continue;
    absl::StrAppend(&text, " ", absl::AsciiStrToLower(embedding.optimizer().name()));
    for (const auto& [name, value] : SettingsOf(embedding.optimizer()))
      absl::StrAppend(&text, " ", name, "=", value);
  }
  return tables.empty() ? "none" : absl::StrJoin(tables, ", ");
}

}  // namespace

std::string DifferencesFrom(const IntendedJob& intended, const v1::Job& theirs, absl::string_view where) {
  const v1::Job& ours = intended.job;
  std::vector<std::string> differences;
  Compare("mode", monitor::NameOf(ours.mode()), monitor::NameOf(theirs.mode()), &differences);
  Compare("model", ours.model_sha256().substr(0, 12), theirs.model_sha256().substr(0, 12), &differences);
  CompareTrainingSets(ours.training_set(), theirs.training_set(), &differences);
  Compare("workers may come and go", ours.elastic() ? "yes" : "no", theirs.elastic() ? "yes" : "no",
          &differences);
  if (!theirs.elastic()) {
    Compare("workers", absl::StrJoin(ours.workers(), " "), absl::StrJoin(theirs.workers(), " "),
            &differences);
  } else if (!ours.workers().empty() && ours.workers(0) == intended.task) {
    Compare("the chief", ours.workers(0), theirs.workers(0), &differences);
  }
  Compare("data sharding", ours.dynamic_sharding() ? "dynamic" : "static",
          theirs.dynamic_sharding() ? "dynamic" : "static", &differences);
  Compare("groups of variables", DescribeGroups(ours), DescribeGroups(theirs), &differences);
  Compare("skips empty updates", ours.skip_empty_updates() ? "yes" : "no",
          theirs.skip_empty_updates() ? "yes" : "no", &differences);
  Compare("embedding tables", DescribeTables(ours), DescribeTables(theirs), &differences);
  const auto items_ahead = [](const v1::Job& job) {
    return absl::StrCat(std::max(1, job.work_items_ahead()));
  };
  Compare("work items ahead", items_ahead(ours), items_ahead(theirs), &differences);
  Compare("numbers on the wire", net::DescribeWire(ours), net::DescribeWire(theirs), &differences);
  if (ours.training_set().examples() == theirs.training_set().examples()) {
    Compare("training examples", absl::StrCat(ours.num_examples()), absl::StrCat(theirs.num_examples()),
            &differences);
  }
  Compare("minimum number of workers", absl::StrCat(ours.min_workers()), absl::StrCat(theirs.min_workers()),
          &differences);
  Compare("maximum number of workers", absl::StrCat(ours.max_workers()), absl::StrCat(theirs.max_workers()),
          &differences);
  Compare("replicas to aggregate", absl::StrCat(ours.replicas_to_aggregate()),
          absl::StrCat(theirs.replicas_to_aggregate()), &differences);
  Compare("max staleness", absl::StrCat(ours.has_max_staleness() ? ours.max_staleness() : -1),
          absl::StrCat(theirs.has_max_staleness() ? theirs.max_staleness() : -1), &differences);
  Compare("staleness-aware learning rate", ours.staleness_aware_learning_rate() ? "yes" : "no",
          theirs.staleness_aware_learning_rate() ? "yes" : "no", &differences);
  Compare("last version", absl::StrCat(ours.final_version()), absl::StrCat(theirs.final_version()),
          &differences);
  Compare("batch size", absl::StrCat(ours.batch_size()), absl::StrCat(theirs.batch_size()), &differences);
  Compare("epochs", absl::StrCat(ours.epochs()), absl::StrCat(theirs.epochs()), &differences);
  Compare("waits for a lost worker's return", ours.wait_for_return() ? "yes" : "no",
          theirs.wait_for_return() ? "yes" : "no", &differences);
  Compare("backups of each shard", absl::StrCat(ours.ps_replication()), absl::StrCat(theirs.ps_replication()),
          &differences);
  Compare("seed", absl::StrCat(ours.seed()), absl::StrCat(theirs.seed()), &differences);
  if (!absl::EqualsIgnoreCase(ours.optimizer().name(), theirs.optimizer().name())) {
    Compare("optimizer", ours.optimizer().name(), theirs.optimizer().name(), &differences);
  }
  CompareSettings(SettingsOf(ours.optimizer()), SettingsOf(theirs.optimizer()), &differences);
  for (std::string& difference : differences) absl::StrAppend(&difference, " ", where);
  return absl::StrJoin(differences, "; ");
}

namespace {

// "; variable 'bias' ..." for the first variable that is another one on the servers; empty: none is known.
std::string DifferentVariable(const IntendedJob& intended,
                              const std::vector<v1::ConnectResponse>& described) {
  const auto slices = SlicesOf(described);
  if (!slices.ok() || intended.job.model_sha256() == described[0].job().model_sha256()) return "";
  const auto layout = net::Layout::Create(intended.variables, *slices);
  if (!layout.ok()) return absl::StrCat("; ", layout.status().message());
  const auto text = [](const auto& variable) {
    if (variable.moving_average_momentum.has_value())
      return absl::StrCat("a moving average of momentum ", *variable.moving_average_momentum);
    if (!variable.constraint.has_value()) return std::string("trained");
    return absl::StrCat("trained with constraint ", variable.constraint->ToString());
  };
  for (const net::VariableInfo& variable : intended.variables) {
    for (const std::vector<net::Slice>& of_server : *slices) {
      for (const net::Slice& slice : of_server) {
        if (slice.name != variable.name) continue;
        if (slice.moving_average_momentum == variable.moving_average_momentum &&
            slice.constraint == variable.constraint)
          continue;
        return absl::StrCat("; variable '", variable.name, "' is ", text(variable), " here, and ",
                            text(slice), " on the servers");
      }
    }
  }
  return "";
}

// `described`: the answers of all servers, which show the variable in which the models differ.
absl::Status CheckSameJob(const IntendedJob& intended, const v1::Job& theirs,
                          const std::vector<v1::ConnectResponse>& described) {
  const std::string differences = DifferencesFrom(intended, theirs, "on the servers");
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the servers train another job than ", intended.task,
                                                    ": ", differences,
                                                    DifferentVariable(intended, described)));
}

absl::StatusOr<LearntJob> LearnJob(const Connection& connection, const IntendedJob& intended,
                                   const std::vector<v1::ConnectResponse>& described) {
  CAIRN_ASSIGN_OR_RETURN(auto slices, SlicesOf(described));
  CAIRN_ASSIGN_OR_RETURN(net::Layout layout, net::Layout::Create(intended.variables, slices));
  LearntJob learnt = {
      .job = described[0].job(),
      .layout = std::move(layout),
      .slices = std::move(slices),
      .slots = {described[0].slots().begin(), described[0].slots().end()},
      .layout_ids = {},
      .one_log = described[0].job().mode() != v1::MODE_ASYNC || !described.back().sequences()};
  for (int server = 0; server < connection.num_servers(); ++server) {
    if (!learnt.layout.covers(server)) {
      return absl::FailedPreconditionError(
          absl::StrCat(connection.NameOf(server), " holds variables that the model lacks"));
    }
    learnt.layout_ids.push_back(described[static_cast<size_t>(server)].layout());
  }
  return learnt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableSource>> StateSource::OpenTables(const v1::Job& job) {
  if (!job.has_resumed()) return nullptr;
  return absl::UnimplementedError("the tables of a job cannot be resumed from here");
}

absl::StatusOr<std::optional<v1::Progress>> FirstValues::Find(bool lost) {
  if (lost) return absl::AbortedError("all progress is lost: there are no checkpoints");
  return std::nullopt;
}

absl::Status FirstValues::Load(absl::Span<const std::string> /*slots*/,
                               absl::Span<const absl::Span<float>> into) {
  CAIRN_CHECK(into[0].size() == values_.size());
  std::copy(values_.begin(), values_.end(), into[0].begin());
  return absl::OkStatus();
}

absl::Status WriteState(Connection& connection, const LearntJob& learnt,
                        absl::Span<const absl::Span<const float>> parts, const WriteOptions& options) {
  std::vector<PendingDone> done(static_cast<size_t>(connection.num_servers()));
  std::vector<TableTransfer::Peer> sessions;
  for (int server = 0; server < connection.num_servers(); ++server) {
    sessions.push_back({.session = std::make_unique<ServerSession>(connection.stub(server).streams()),
                        .layout = learnt.layout_ids[static_cast<size_t>(server)],
                        .name = absl::StrCat("writing tables to ", connection.NameOf(server))});
  }
  TableTransfer transfer(std::move(sessions));
  if (options.tables != nullptr) {
    CAIRN_RETURN_IF_ERROR(transfer.Write(*options.tables, options.timeout, options.max_table_piece));
  }
  int64_t bytes = 0;
  for (int server = 0; server < connection.num_servers(); ++server) {
    const auto at = static_cast<size_t>(server);
    ServerSession& session = transfer.session(at);
    bytes += BytesOf(learnt.layout.arena_size(server)) * static_cast<int64_t>(parts.size());
    v1::ClientHeader header;
    header.mutable_write()->set_layout(learnt.layout_ids[at]);
    header.mutable_write()->set_initialise(options.initialise);
    if (options.tables != nullptr) {
      for (const int64_t size : options.tables->sizes()[at]) {
        header.mutable_write()->add_table_states(size);
        bytes += BytesOf(size);  // the server makes rows of them before it answers
      }
    }
    CAIRN_ASSIGN_OR_RETURN(const uint64_t id, session.Begin(std::move(header), nullptr, done[at].Callback()));
    const auto extents = learnt.layout.extents_on(server);
    std::vector<net::Extent> shifted(extents.begin(), extents.end());
    for (const absl::Span<const float> part : parts) {
      SendExtents(session, id, shifted, part);
      for (net::Extent& extent : shifted) extent.server_offset += learnt.layout.arena_size(server);
    }
    session.SendEnd(id);
  }
  for (int server = 0; server < connection.num_servers(); ++server) {
    const auto at = static_cast<size_t>(server);
    const auto timeout = std::chrono::duration_cast<Timeout>(options.timeout) + net::TimeForBytes(bytes);
    CAIRN_RETURN_IF_ERROR(Annotate(done[at].Wait(transfer.session(at), timeout).status(),
                                   absl::StrCat("writing values to ", connection.NameOf(server))));
  }
  return absl::OkStatus();
}

namespace {

// The state of the job on the servers before the chief creates anything.
struct Survey {
  int num_ready = 0;
  std::string run_id;        // the run of the servers that are ready; empty: no server is ready
  int64_t generation = 0;    // the highest generation of a ready server
  int64_t begun = -1;        // the highest generation created on a server that is not ready; -1: none
  int64_t version = 0;       // the highest version of a ready server
  bool rolled_back = false;  // the job has been rolled back
  bool complete = false;     // all servers are ready, in one generation

  bool trained() const { return version > 0 || rolled_back; }
};

absl::StatusOr<Survey> TakeSurvey(Connection& connection, const IntendedJob& intended) {
  CAIRN_ASSIGN_OR_RETURN(const auto described, connection.DescribeAll());
  Survey survey;
  int same_generation = 0;
  for (const v1::ConnectResponse& response : described) {
    if (response.state() == v1::STATE_FAILED) {
      return absl::Status(static_cast<absl::StatusCode>(response.failure_code()), response.failure());
    }
    if (response.state() == v1::STATE_FINISHED) return absl::UnavailableError("training is over");
    // A backup that has not been promoted may be of a later generation than any server that is ready.
    if (response.state() == v1::STATE_INITIALISING || response.state() == v1::STATE_BACKUP) {
      survey.begun = std::max(survey.begun, response.job().generation());
    }
    if (response.state() != v1::STATE_READY) continue;
    CAIRN_RETURN_IF_ERROR(CheckSameJob(intended, response.job(), described));
    ++survey.num_ready;
    survey.run_id = response.job().run_id();
    survey.generation = std::max(survey.generation, response.job().generation());
    survey.version = std::max(survey.version, response.version());
    survey.rolled_back |= response.job().generation() > 0 && response.job().has_resumed();
    same_generation += response.job().generation() == described[0].job().generation() ? 1 : 0;
  }
  survey.complete = same_generation == connection.num_servers();
  return survey;
}

// The server allocates the values and the optimizer's slots before it answers.
absl::Status CreateOn(Connection& connection, int server, const v1::Job& job,
                      const std::vector<net::Slice>& slices, const std::string& seal_key) {
  v1::CreateRequest request;
  *request.mutable_job() = job;
  request.set_seal_key(seal_key);
  int64_t bytes = 0;
  for (const net::Slice& slice : slices) {
    *request.add_slices() = slice.ToProto();
    bytes += BytesOf(slice.elements());
  }
  const Timeout limit = kCallTimeout + net::TimeForBytes(bytes);
  v1::CreateResponse response;
  const absl::Status status = connection.stub(server).Call(request, &response, limit);
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat("creating ", bytes >> 20, " MiB of variables on ",
                                                  connection.NameOf(server), ": no answer within ",
                                                  limit.count() / 1000, " s"));
}

// ABORTED if a server has lost what was created on it, or another chief has created the job since.
absl::Status CheckCreated(const Connection& connection, const std::vector<v1::ConnectResponse>& described,
                          const v1::Job& job) {
  for (int server = 0; server < connection.num_servers(); ++server) {
    const v1::Job& there = described[static_cast<size_t>(server)].job();
    if (there.run_id() == job.run_id() && there.generation() == job.generation()) continue;
    return absl::AbortedError(absl::StrCat(connection.NameOf(server), " no longer has generation ",
                                           job.generation(), " of the job, which was created there"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status InitialiseServers(Connection& connection, const IntendedJob& intended, int64_t split_bytes,
                               StateSource& source, int64_t* begun) {
  CAIRN_ASSIGN_OR_RETURN(const Survey survey, TakeSurvey(connection, intended));
  if (survey.complete) return absl::OkStatus();
  v1::Job run = intended.job;
  if (!survey.run_id.empty()) run.set_run_id(survey.run_id);
  const bool lost = survey.trained() || run.generation() > 0;
  // Ready servers refuse a different job, and have state of this generation that the other servers lack. So
  // all servers begin a later generation.
  if (survey.num_ready > 0) run.set_generation(std::max(run.generation(), survey.generation + 1));
  // The remains of an earlier attempt, on servers and workers, must not be mistaken for a part of this one.
  run.set_generation(std::max({run.generation(), survey.begun + 1, *begun + 1}));
  const auto progress = source.Find(lost);
  if (!progress.ok()) {
    if (!lost) return progress.status();
    return Annotate(
        progress.status(),
        absl::StrCat(
            connection.num_servers() - survey.num_ready, " of ", connection.num_servers(),
            " servers have lost their variables",
            survey.num_ready == 0 ? "" : absl::StrCat(", the others are at version ", survey.version)));
  }
  if (progress->has_value()) *run.mutable_resumed() = **progress;

  const auto slices = net::PlaceVariables(intended.variables,
                                          {.servers = connection.num_servers(), .split_bytes = split_bytes});
  *begun = run.generation();
  const std::string seal_key = net::DrawSecret(32);
  for (int server = 0; server < connection.num_servers(); ++server) {
    CAIRN_RETURN_IF_ERROR(CreateOn(connection, server, run, slices[static_cast<size_t>(server)], seal_key));
  }
  CAIRN_ASSIGN_OR_RETURN(const auto described, connection.DescribeAll());
  CAIRN_RETURN_IF_ERROR(CheckCreated(connection, described, run));
  CAIRN_ASSIGN_OR_RETURN(const LearntJob learnt, LearnJob(connection, intended, described));

  const size_t num_parts = run.has_resumed() ? 1 + learnt.slots.size() : 1;
  int64_t size = 0;
  for (const net::VariableInfo& variable : intended.variables) size += variable.shape.num_elements();
  std::vector<AlignedBuffer> parts;
  for (size_t part = 0; part < num_parts; ++part) parts.emplace_back(size);
  std::vector<absl::Span<float>> into;
  for (AlignedBuffer& part : parts) into.push_back(part.span());
  CAIRN_RETURN_IF_ERROR(source.Load(absl::MakeSpan(learnt.slots).subspan(0, num_parts - 1), into));
  const std::vector<absl::Span<const float>> written(into.begin(), into.end());
  std::unique_ptr<TableSource> tables;
  if (run.tables_size() > 0) {
    CAIRN_ASSIGN_OR_RETURN(tables, source.OpenTables(run));
  }
  return WriteState(
      connection, learnt, written,
      {.initialise = true, .tables = tables.get(), .timeout = connection.options().connect_timeout});
}

absl::StatusOr<LearntJob> AwaitJob(Connection& connection, const IntendedJob& intended) {
  const TimePoint deadline = std::chrono::steady_clock::now() + connection.options().connect_timeout;
  for (;;) {
    for (int server = 0; server < connection.num_servers(); ++server) {
      const auto restarted = [&] {
        const absl::Status status = connection.Describe(server).status();
        return absl::IsAborted(status) ? status : absl::OkStatus();
      };
      const Duration timeout = connection.options().connect_timeout;
      CAIRN_RETURN_IF_ERROR(
          connection
              .WaitUntil({.server = server, .condition = v1::CONDITION_READY, .timeout = timeout}, restarted)
              .status());
    }
    CAIRN_ASSIGN_OR_RETURN(auto described, connection.DescribeAll());
    const v1::ConnectResponse* different = nullptr;
    for (const v1::ConnectResponse& response : described) {
      CAIRN_RETURN_IF_ERROR(CheckGoesOn(response));
      CAIRN_RETURN_IF_ERROR(CheckSameJob(intended, response.job(), described));
      if (response.state() != v1::STATE_READY || response.job().run_id() != described[0].job().run_id() ||
          response.job().generation() != described[0].job().generation()) {
        different = &response;
      }
    }
    if (different == nullptr) return LearnJob(connection, intended, described);
    // The chief may be rolling them back at the moment, one after another.
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::FailedPreconditionError(
          absl::StrCat("the servers disagree about the run: ", described[0].job().run_id(), ", generation ",
                       described[0].job().generation(), ", and ", different->job().run_id(), ", generation ",
                       different->job().generation()));
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace cairn::client
