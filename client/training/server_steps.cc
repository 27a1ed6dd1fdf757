#include "client/training/server_steps.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"

namespace cairn::client {
namespace {

int64_t TotalElements(const std::vector<net::VariableInfo>& variables) {
  int64_t total = 0;
  for (const net::VariableInfo& variable : variables) total += variable.shape.num_elements();
  return total;
}

}  // namespace

ServerSteps::ServerSteps(Connection& connection, JoinedJob& job,
                         const std::vector<net::VariableInfo>& variables, const Options& options)
    : connection_(connection),
      job_(job),
      variables_(variables),
      trace_(options.trace),
      values_(connection_,
              {.size = TotalElements(variables_), .timeout = job_.step_timeout(), .trace = options.trace}),
      make_partitioner_(options.make_partitioner),
      row_reads_(connection_, job_.step_timeout(), options.wire),
      pushes_(connection_,
              {.task = job_.task(),
               .step_timeout = job_.step_timeout(),
               .trace = options.trace,
               .wire = options.wire,
               .failure = [this] { return job_.failure(); },
               .waiting_for = [this] { return job_.waiting_for(); },
               .persist = [this](absl::FunctionRef<absl::Status()> attempt) { return job_.Persist(attempt); },
               .settle = [this](absl::Span<const v1::Done> answers) { return Settle(answers); }}) {}

absl::Status ServerSteps::OnLearnt() {
  CAIRN_ASSIGN_OR_RETURN(tables_,
                         RowTables::Create(job_.learnt().job, connection_.num_servers(), make_partitioner_));
  return pushes_.Learn(job_.learnt(), variables_, tables_);
}

absl::Status ServerSteps::OnJoined(v1::Work work) {
  work_ = std::move(work);
  return Pull(job_.learnt().job.wire());
}

StepPushes& ServerSteps::BeginStep(absl::Span<const float> gradients, int64_t examples, int64_t position) {
  CAIRN_CHECK(gradients.size() == values_.current().size());
  job_.set_step(++step_);
  pushes_.Begin({.worker = job_.worker(),
                 .incarnation = job_.incarnation(),
                 .number = step_,
                 .gradients = gradients,
                 .examples = examples,
                 .position = position,
                 .groups = unsent_groups_,
                 .base_versions = values_.versions(),
                 .values = values_.incoming()});
  return pushes_;
}

Step& ServerSteps::BeginStepOnDevice(absl::Span<float>, absl::Span<float>, int64_t) {
  CAIRN_CHECK(false && "servers take gradients from the host only");
  return pushes_;
}

absl::StatusOr<StepResult> ServerSteps::Settle(absl::Span<const v1::Done> answers) {
  StepResult result;
  std::vector<int64_t> versions;
  bool pull_again = !pushes_.values_intact();
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const v1::Done& done = answers[static_cast<size_t>(server)];
    result.duplicate |= done.duplicate();
    pull_again |= !done.has_values();
    result.staleness = std::max(result.staleness, done.staleness());
    if (server == 0 || done.outcome() == v1::OUTCOME_STALE) result.outcome = done.outcome();
    versions.push_back(done.version());
    pull_again |= job_.learnt().one_log && versions.back() != versions[0];
  }
  result.as_awaited = !pull_again;
  if (std::all_of(answers.begin(), answers.end(),
                  [](const v1::Done& done) { return done.outcome() == v1::OUTCOME_ACCEPTED; })) {
    unsent_groups_.clear();
  }
  work_ = answers[0].work();
  const bool finished = answers[0].finished() || answers[0].outcome() == v1::OUTCOME_FINISHED;
  // The answer to a repeated push has no values if the first answer was lost: pull values of one version.
  if (pull_again) {
    CAIRN_RETURN_IF_ERROR(Pull(job_.learnt().job.wire()));
  } else {
    values_.Adopt(std::move(versions));
    finished_ = false;
  }
  // The rows of an answer belong to its version, which may not be that of the values that have been pulled.
  if (pull_again || !pushes_.rows_arrived()) CAIRN_RETURN_IF_ERROR(ReadRows(pushes_.wanted_rows()));
  finished_ |= finished;
  return result;
}

absl::Status ServerSteps::AwaitWork() {
  CAIRN_ASSIGN_OR_RETURN(
      const v1::WaitResponse answer,
      connection_.WaitUntil(
          {.condition = v1::CONDITION_WORK, .worker = job_.worker(), .timeout = job_.step_timeout()},
          [this] { return job_.failure(); }));
  work_ = answer.work();
  CAIRN_RETURN_IF_ERROR(Pull(job_.learnt().job.wire()));
  finished_ |= work_.over();
  return absl::OkStatus();
}

absl::Status ServerSteps::Pull() {
  return Pull(v1::ENCODING_FLOAT32);
}

absl::Status ServerSteps::ReadRows(absl::Span<const RowValues> rows) {
  if (rows.empty()) return absl::OkStatus();
  const TraceSpan span(trace_, TraceLane::kStep, "read rows");
  return job_.Persist([&] { return row_reads_.Read(job_.learnt(), tables_, rows); });
}

absl::Status ServerSteps::FinishRead() {
  const std::vector<RowValues> rows = row_reads_.oldest();
  {
    const TraceSpan span(trace_, TraceLane::kStep, "await rows");
    const absl::Status read = row_reads_.Finish();
    if (read.ok()) return read;
    LogInfo(read.message(), "; the rows are read again");
  }
  return ReadRows(rows);  // a read changes nothing
}

absl::Status ServerSteps::Pull(v1::Encoding encoding) {
  return job_.Persist([&] { return PullOnce(encoding); });
}

absl::Status ServerSteps::PullOnce(v1::Encoding encoding) {
  std::string marker;
  if (job_.learnt().one_log) {
    marker = job_.NextMarker();
    v1::PlaceMarkerRequest request;
    request.set_token(marker);
    v1::PlaceMarkerResponse response;
    CAIRN_RETURN_IF_ERROR(Annotate(
        connection_.stub(0).Call(request, &response, kCallTimeout, connection_.options().stop), "pull"));
  }
  CAIRN_ASSIGN_OR_RETURN(finished_, values_.Read(job_.learnt(), marker, encoding));
  return absl::OkStatus();
}

}  // namespace cairn::client
