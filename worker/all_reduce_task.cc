#include "worker/all_reduce_task.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/net/grpc_util.h"
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

// Differs between processes: the time of the start, in microseconds, above the process id.
uint64_t DrawIncarnation() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return (static_cast<uint64_t>(micros) << 12) | (static_cast<uint64_t>(getpid()) & 0xFFF);
}

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// For the neighbour where it is of this host. None with TLS: what is encrypted stays so.
net::LocalListener ListenLocally(const net::TlsFiles& tls) {
  if (tls.any()) return {};
  auto listener = net::ListenLocally();
  if (listener.ok()) return *std::move(listener);
  LogInfo("workers of this host come by TCP: ", listener.status().message());
  return {};
}

}  // namespace

absl::StatusOr<std::unique_ptr<AllReduceTask>> AllReduceTask::Start(const Args& args) {
  const net::ClusterSpec& spec = args.cluster.spec;
  const std::vector<net::TaskId> trainers = spec.trainers();
  std::vector<std::string> names, addresses;
  for (const net::TaskId& task : trainers) {
    addresses.push_back(spec.tasks(task.job).at(task.index).ToString());
    names.push_back(absl::StrCat(task.ToString(), " at ", addresses.back()));
  }
  const uint64_t incarnation = DrawIncarnation();
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
      local = ListenLocally(args.tls);
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
                                       .connect_timeout = Seconds(args.options.connect_timeout_seconds),
                                       .step_timeout = Seconds(args.options.step_timeout_seconds),
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
  if (!args.tls.any() && net::ReachableFromOutside(address)) {
    LogWarning("NOT ENCRYPTED: whoever reaches ", address,
               " can read and change the gradients; --tls_cert, --tls_key and --tls_ca prevent it");
  }
  if (const absl::Status status = net::CheckTlsNames(args.tls, own.host); !status.ok()) {
    LogWarning(status.message(), ": its neighbour will refuse this worker");
  }
  return absl::OkStatus();
}

AllReduceTask::~AllReduceTask() {
  local_.reset();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kDrain);
}

}  // namespace cairn::worker
