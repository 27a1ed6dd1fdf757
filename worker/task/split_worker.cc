#include "worker/task/split_worker.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/clock.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/server/listening.h"
#include "worker/model/digest.h"
#include "worker/split/stage_worker.h"

namespace cairn::worker {
namespace {

std::string AddressOf(const SplitArgs& args, int worker) {
  return args.cluster.spec.tasks("worker").at(worker).ToString();
}

std::string NameOf(const SplitArgs& args, int worker) {
  return absl::StrCat("worker/", worker, " at ", AddressOf(args, worker));
}

int64_t MicroBatches(const SplitArgs& args) {
  return MicroBatchesOf(args.options, args.model,
                        static_cast<int64_t>(args.assignment.partition.task_of_location.size()));
}

void AppendLoss(std::string* out, const nn::OutputLoss& part) {
  const nn::LossSpec& loss = part.loss;
  absl::StrAppend(out, nn::ClassName(loss.kind), loss.from_logits ? " from_logits" : "",
                  loss.label_smoothing > 0 ? absl::StrCat(" label_smoothing=", loss.label_smoothing) : "",
                  loss.delta == 1 ? "" : absl::StrCat(" delta=", loss.delta),
                  part.weight == 1 ? "" : absl::StrCat(" weight=", part.weight));
}

v1::SplitPlan PlanOf(const SplitArgs& args) {
  v1::SplitPlan plan;
  plan.set_model_sha256(Sha256Hex(args.model.canonical_json()));
  plan.set_places(args.assignment.partition.Describe(args.model));
  plan.set_loss(absl::StrJoin(args.objective.losses(), ", ", AppendLoss));
  plan.set_micro_batches(MicroBatches(args));
  return plan;
}

std::vector<nn::DeviceThread*> ThreadsOf(const Compute& compute) {
  std::vector<nn::DeviceThread*> threads;
  for (const auto& thread : compute.threads) threads.push_back(thread.get());
  return threads;
}

void LogGroup(const SplitArgs& args) {
  std::string stage_workers;
  for (int task = 1; task < args.assignment.partition.tasks; ++task) {
    absl::StrAppend(&stage_workers, task == 1 ? "" : ", ", NameOf(args, args.assignment.leader + task));
  }
  LogInfo("the model is divided over group ", args.assignment.group, ": its stage leader ",
          NameOf(args, args.assignment.leader), ", and ", stage_workers, "; each batch in ",
          MicroBatches(args), " micro-batches");
}

}  // namespace

absl::StatusOr<std::unique_ptr<split::StageLeader>> MakeLeader(const SplitArgs& args) {
  LogGroup(args);
  split::StageLeader::Options options = {
      .links = {.worker = args.cluster.self.index,
                .cluster_hash = args.cluster.spec.TrainersHash(),
                .incarnation = net::DrawIncarnation(),
                .plan = PlanOf(args),
                .stage_workers = {},
                .lease = FromSeconds(args.options.lease_seconds),
                .say = [](const std::string& text) { LogWarning(text); },
                .stop = [&stop = args.stop] { return stop.received() != 0; }},
      .connect_timeout = FromSeconds(args.options.connect_timeout_seconds),
      .step_timeout = FromSeconds(args.options.step_timeout_seconds)};
  for (int task = 1; task < args.assignment.partition.tasks; ++task) {
    const int worker = args.assignment.leader + task;
    CAIRN_ASSIGN_OR_RETURN(auto peer, MakePeer(AddressOf(args, worker), args.access, args.options.transport));
    options.links.stage_workers.push_back(
        {.name = NameOf(args, worker), .worker = worker, .peer = std::move(peer)});
  }
  const std::vector<nn::DeviceThread*> threads = ThreadsOf(args.compute);
  return split::StageLeader::Create(std::move(options), {.model = args.model,
                                                         .objective = args.objective,
                                                         .threads = threads,
                                                         .locations = args.compute.locations,
                                                         .micro_batches = MicroBatches(args),
                                                         .trace = args.trace});
}

absl::Status ServeAsStageWorker(const SplitArgs& args, const ListenFlags& listen) {
  LogGroup(args);
  net::DataListeners data_listeners =
      ListenForData(args.cluster, args.access, listen, args.options.transport);
  const uint64_t incarnation = net::DrawIncarnation();
  const std::vector<nn::DeviceThread*> threads = ThreadsOf(args.compute);
  CAIRN_ASSIGN_OR_RETURN(
      const auto stage_worker,
      split::StageWorker::Create({.worker = args.cluster.self.index,
                                  .leader = args.assignment.leader,
                                  .leader_name = NameOf(args, args.assignment.leader),
                                  .cluster_hash = args.cluster.spec.TrainersHash(),
                                  .incarnation = incarnation,
                                  .data_endpoint = data_listeners.address(),
                                  .plan = PlanOf(args),
                                  .lease = FromSeconds(args.options.lease_seconds),
                                  .connect_timeout = FromSeconds(args.options.connect_timeout_seconds),
                                  .say = [](const std::string& text) { LogWarning(text); },
                                  .stop = [&stop = args.stop] { return stop.received() != 0; },
                                  .trace = args.trace,
                                  .faults = args.faults},
                                 {.model = args.model,
                                  .objective = args.objective,
                                  .threads = threads,
                                  .locations = args.compute.locations,
                                  .micro_batches = MicroBatches(args),
                                  .trace = args.trace}));
  CAIRN_ASSIGN_OR_RETURN(
      const auto listener,
      PeerListener::Start(*stage_worker, std::move(data_listeners),
                          {.cluster = args.cluster,
                           .access = args.access,
                           .listen = listen,
                           .incarnation = incarnation,
                           .stakes = "activations and gradients",
                           .task_of = [](int worker) { return absl::StrCat("worker/", worker); }}));
  return stage_worker->Serve();
}

}  // namespace cairn::worker
