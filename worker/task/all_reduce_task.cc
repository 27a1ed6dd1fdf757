#include "worker/task/all_reduce_task.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/server/listening.h"
#include "worker/options/job.h"

namespace cairn::worker {
namespace {

// The maximum number of threads that share an update. More threads are not faster, since memory bandwidth is
// the limit.
constexpr int kMaxUpdating = 4;

}  // namespace

absl::StatusOr<std::unique_ptr<AllReduceTask>> AllReduceTask::Start(const Args& args) {
  const net::ClusterSpec& spec = args.cluster.spec;
  const std::vector<net::TaskId> trainers = spec.trainers();
  std::vector<std::string> names, addresses;
  for (const net::TaskId& task : trainers) {
    addresses.push_back(spec.tasks(task.job).at(task.index).ToString());
    names.push_back(absl::StrCat(task.ToString(), " at ", addresses.back()));
  }
  const uint64_t incarnation = net::DrawIncarnation();
  std::unique_ptr<allreduce::RingPeer> right;
  net::DataListeners data_listeners;
  if (trainers.size() > 1) {
    const std::string& address = addresses[(static_cast<size_t>(args.worker) + 1) % addresses.size()];
    CAIRN_ASSIGN_OR_RETURN(right, MakePeer(address, args.access, args.options.transport));
    data_listeners = ListenForData(args.cluster, args.access, args.listen, args.options.transport);
  }
  // NCCL's own connections are neither encrypted nor authenticated.
  kernels::PeerDevice* const device = args.access.tls.any() ? nullptr : args.device;
  if (device != args.device) {
    LogInfo("gradients are summed around the ring: ", args.device->library(),
            " does not encrypt them, and TLS is enabled");
  }
  std::unique_ptr<AllReduceTask> task(new AllReduceTask(std::clamp(args.threads, 1, kMaxUpdating)));
  CAIRN_ASSIGN_OR_RETURN(
      task->exchange_,
      allreduce::RingExchange::Create({.worker = args.worker,
                                       .task = args.cluster.self.ToString(),
                                       .names = names,
                                       .cluster_hash = spec.TrainersHash(),
                                       .incarnation = incarnation,
                                       .data_endpoint = data_listeners.address(),
                                       .job = args.job,
                                       .variables = VariablesOf(args.model),
                                       .connect_timeout = FromSeconds(args.options.connect_timeout_seconds),
                                       .step_timeout = FromSeconds(args.options.step_timeout_seconds),
                                       .say = [](const std::string& text) { LogWarning(text); },
                                       .thread_pool = &task->thread_pool_,
                                       .device = device,
                                       .links_notice = FromSeconds(args.job.lease_seconds() + 1)},
                                      std::move(right)));
  if (trainers.size() > 1) {
    CAIRN_ASSIGN_OR_RETURN(task->listener_,
                           PeerListener::Start(task->exchange_->host(), std::move(data_listeners),
                                               {.cluster = args.cluster,
                                                .access = args.access,
                                                .listen = args.listen,
                                                .incarnation = incarnation,
                                                .stakes = "the gradients",
                                                .task_of = [trainers](int worker) {
                                                  const auto at = static_cast<size_t>(worker);
                                                  return at < trainers.size()
                                                             ? trainers[at].ToString()
                                                             : absl::StrCat("no worker ", worker);
                                                }}));
  }
  return task;
}

}  // namespace cairn::worker
