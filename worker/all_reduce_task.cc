#include "worker/all_reduce_task.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/grpc_util.h"
#include "common/net/listening.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "worker/allreduce/grpc_link.h"
#include "worker/job.h"

namespace cairn::worker {
namespace {

// For the neighbour's stream to end.
constexpr auto kDrain = std::chrono::seconds(2);
// Threads that share an update: more find the memory busy.
constexpr int kMostUpdating = 4;

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
  net::LocalListener local;
  if (trainers.size() > 1) {
    const std::string& address = addresses[(static_cast<size_t>(args.worker) + 1) % addresses.size()];
    CAIRN_ASSIGN_OR_RETURN(const client::Transport transport, client::ParseTransport(args.options.transport));
    right = allreduce::MakeGrpcPeer(address, net::ChannelCredentialsOf(args.tls));
    if (transport != client::Transport::kTcp) {
      right = allreduce::MakeLocalPeer(std::move(right), transport, [address](const std::string& how) {
        LogInfo("gradients to ", address, ": by ", how);
      });
      local = net::ListenForThisHost(args.tls, "workers of this host");
    }
  }
  std::unique_ptr<AllReduceTask> task(new AllReduceTask(std::clamp(args.threads, 1, kMostUpdating)));
  CAIRN_ASSIGN_OR_RETURN(
      task->exchange_,
      allreduce::RingExchange::Create({.worker = args.worker,
                                       .task = args.cluster.self.ToString(),
                                       .names = names,
                                       .cluster_hash = spec.TrainersHash(),
                                       .incarnation = incarnation,
                                       .local_socket = local.name,
                                       .job = args.job,
                                       .variables = VariablesOf(args.model),
                                       .connect_timeout = FromSeconds(args.options.connect_timeout_seconds),
                                       .step_timeout = FromSeconds(args.options.step_timeout_seconds),
                                       .say = [](const std::string& text) { LogWarning(text); },
                                       .crew = &task->crew_},
                                      std::move(right)));
  if (trainers.size() > 1) CAIRN_RETURN_IF_ERROR(task->Listen(args));
  if (local.socket.valid()) {
    task->local_ = std::make_unique<allreduce::LocalRingService>(task->exchange_->host(), std::move(local), incarnation);
  }
  return task;
}

absl::Status AllReduceTask::Listen(const Args& args) {
  const net::TaskId& self = args.cluster.self;
  const net::HostPort& own = args.cluster.spec.tasks(self.job).at(self.index);
  const std::string address =
      args.listen.address.empty() ? absl::StrCat("0.0.0.0:", own.port) : args.listen.address;
  service_ = allreduce::MakeRingService(exchange_->host());
  grpc::ServerBuilder builder;
  net::ConfigureServer(builder, args.listen.reuse_port);
  int port = 0;
  builder.AddListeningPort(address, net::ServerCredentialsOf(args.tls), &port);
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": is another process using the port?"));
  }
  LogInfo("Started server with target: grpc://", own.host, ":", port);
  net::WarnOfTls(args.tls, address, own.host, "the gradients", "its neighbour");
  return absl::OkStatus();
}

AllReduceTask::~AllReduceTask() {
  local_.reset();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kDrain);
}

}  // namespace cairn::worker
