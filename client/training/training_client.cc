#include "client/training/training_client.h"

#include <utility>

#include "client/job_end.h"
#include "common/core/status.h"

namespace cairn::client {

TrainingClient::TrainingClient(std::unique_ptr<Connection> connection,
                               std::vector<net::VariableInfo> variables, const TrainingOptions& options)
    : connection_(std::move(connection)),
      variables_(std::move(variables)),
      split_bytes_(options.split_bytes),
      exchanges_rows_(options.make_partitioner != nullptr),
      job_(*connection_, {.worker = options.worker,
                          .task = options.task,
                          .step_timeout = options.step_timeout,
                          .report = options.report,
                          .changed = [this] { steps_.Wake(); }}),
      steps_(*connection_, job_, variables_,
             {.make_partitioner = options.make_partitioner, .trace = options.trace, .wire = options.wire}),
      control_(*connection_, job_, steps_) {}

TrainingClient::~TrainingClient() {
  job_.StopHeartbeats();  // before the steps that they wake are destroyed
}

absl::Status TrainingClient::Initialise(const v1::Job& job, StateSource& source) {
  v1::Job next = job;
  if (job_.was_member()) next.set_generation(job_.learnt().job.generation() + 1);
  return InitialiseServers(*connection_, {.task = job_.task(), .job = next, .variables = variables_},
                           split_bytes_, source, &begun_generation_);
}

absl::Status TrainingClient::WaitReady(const v1::Job& job) {
  CAIRN_ASSIGN_OR_RETURN(LearntJob learnt,
                         AwaitJob(*connection_, {.task = job_.task(), .job = job, .variables = variables_}));
  job_.Learn(std::move(learnt));
  return steps_.OnLearnt();
}

absl::Status TrainingClient::Join() {
  CAIRN_ASSIGN_OR_RETURN(JoinedJob::Admission admission, job_.Join());
  start_ = admission.start;
  return steps_.OnJoined(std::move(admission.work));
}

absl::Status TrainingClient::Reconnect() {
  job_.StopHeartbeats();
  steps_.Drop();
  CAIRN_RETURN_IF_ERROR(job_.interruption());
  return connection_->Reach();
}

bool TrainingClient::CanReconnectAfter(const absl::Status& failure) const {
  if (!absl::IsAborted(failure)) return false;
  if (!job_.was_member() || job_.learnt().job.restorable()) return true;
  for (int server = 0; server < connection_->num_servers(); ++server) {
    if (!connection_->Describe(server).ok()) return false;
  }
  return true;
}

absl::Status TrainingClient::AwaitEnd() {
  if (!job_.learnt().job.restorable()) return absl::OkStatus();
  const EndLimits limits = {.silence = SilenceLimit(job_.learnt().job), .unchanged = job_.step_timeout()};
  return client::AwaitEnd(*connection_, job_.worker(), limits, [this] {
    if (connection_->stopped()) return absl::CancelledError("stopped");
    return job_.interruption();
  });
}

}  // namespace cairn::client
