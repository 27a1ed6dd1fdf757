// Goodput of a ring all-reduce on one host: our ring, over TCP and by shared memory, against Gloo's
// over TCP, in turn, in one process of N workers. Also the goodput of a synchronous step of as many bytes
// through one server in a separate process, by shared memory and by a Unix socket: gradients up, SGD, values
// down.
//
//   allreduce_bench --workers 2 --mib 64
//
// Every worker has its own gradient and receives the result in its own memory. Needs Gloo
// (Debian: libgloo-dev); without it the build omits the program, with a message.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/security/tls.h"
#include "common/net/server/listening.h"
#include "grpcpp/server_builder.h"
#include "tests/bench/ring/worker_threads.h"
#include "tests/bench/wire/cairn_ends.h"
#include "tests/bench/wire/contest.h"
#include "worker/allreduce/member.h"
#include "worker/peer/data_link.h"
#include "worker/peer/grpc_link.h"

namespace cairn::bench {
namespace {

using allreduce::Member;

// One worker of our ring, with the server by which its neighbour reaches it.
struct Worker {
  std::unique_ptr<Member> member;
  std::unique_ptr<grpc::Service> service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<allreduce::DataRingService> data_service;
  std::shared_ptr<allreduce::Ring> ring;
};

class CairnRing {
 public:
  CairnRing(int workers, int64_t size, int first_port, net::Transport transport)
      : gradients_(static_cast<size_t>(workers)) {
    v1::Job job;
    std::vector<std::string> names;
    for (int worker = 0; worker < workers; ++worker) names.push_back(absl::StrCat("worker/", worker));
    for (int worker = 0; worker < workers; ++worker) {
      gradients_[static_cast<size_t>(worker)].assign(static_cast<size_t>(size),
                                                     static_cast<float>(worker + 1));
      const auto address = [&](int of) { return absl::StrCat("127.0.0.1:", first_port + of); };
      Worker one;
      auto right = allreduce::MakeGrpcPeer(address((worker + 1) % workers), net::ChannelCredentialsOf({}));
      right = allreduce::MakeDataPeer(std::move(right), address((worker + 1) % workers), transport, nullptr);
      net::DataListeners data_listeners = net::ListenForData({}, transport, address(worker), 0, "workers");
      const uint64_t incarnation = static_cast<uint64_t>(worker) + 1;
      one.member =
          std::make_unique<Member>(Member::Options{.worker = worker,
                                                   .names = names,
                                                   .task = names[static_cast<size_t>(worker)],
                                                   .incarnation = incarnation,
                                                   .data_endpoint = data_listeners.address(),
                                                   .job = job,
                                                   .variables = {{.name = "all", .shape = Shape({size})}},
                                                   .size = size,
                                                   .state_size = size},
                                   std::move(right));
      if (data_listeners.any()) {
        one.data_service =
            std::make_unique<allreduce::DataRingService>(*one.member, std::move(data_listeners), incarnation);
      }
      one.service = allreduce::MakeRingService(*one.member);
      grpc::ServerBuilder builder;
      net::ConfigureServer(builder, /*reuse_port=*/false);
      builder.AddListeningPort(address(worker), net::ServerCredentialsOf({}));
      builder.RegisterService(one.service.get());
      one.server = builder.BuildAndStart();
      CAIRN_CHECK(one.server != nullptr);
      workers_.push_back(std::move(one));
    }
    WorkerThreads form(workers, [this](int worker) -> absl::Status {
      v1::RingState state;
      state.set_worker(worker);
      state.set_run_id("bench");
      state.set_trained(true);
      state.set_has_values(true);
      CAIRN_ASSIGN_OR_RETURN(
          const allreduce::Agreement agreed,
          workers_[static_cast<size_t>(worker)].member->Form(
              [&state] { return state; }, std::chrono::steady_clock::now() + std::chrono::seconds(30)));
      workers_[static_cast<size_t>(worker)].ring = agreed.ring;
      return absl::OkStatus();
    });
    const absl::Status formed = form.Round();
    if (!formed.ok()) std::fprintf(stderr, "%s\n", std::string(formed.message()).c_str());
    CAIRN_CHECK(formed.ok());
  }
  ~CairnRing() {
    for (Worker& worker : workers_) worker.member->Complete();
    for (Worker& worker : workers_) {
      worker.data_service.reset();
      worker.server->Shutdown(std::chrono::system_clock::now());
    }
  }

  absl::Status Reduce(int worker) {
    Worker& one = workers_[static_cast<size_t>(worker)];
    one.ring->Begin(1, gradients_[static_cast<size_t>(worker)]);
    one.ring->Announce(0);
    CAIRN_ASSIGN_OR_RETURN(const auto step,
                           one.ring->Await(std::chrono::steady_clock::now() + std::chrono::seconds(60)));
    const float wanted = static_cast<float>(workers_.size() + 1) / 2;
    return step.mean[0] == wanted ? absl::OkStatus() : absl::InternalError("our mean is wrong");
  }

 private:
  std::vector<std::vector<float>> gradients_;
  std::vector<Worker> workers_;
};

class GlooRing {
 public:
  GlooRing(int workers, int64_t size)
      : contexts_(static_cast<size_t>(workers)),
        inputs_(static_cast<size_t>(workers)),
        outputs_(static_cast<size_t>(workers), std::vector<float>(static_cast<size_t>(size))) {
    WorkerThreads connect(workers, [this, workers, size](int worker) {
      inputs_[static_cast<size_t>(worker)].assign(static_cast<size_t>(size), static_cast<float>(worker + 1));
      gloo::transport::tcp::attr attr;
      attr.hostname = "127.0.0.1";
      auto device = gloo::transport::tcp::CreateDevice(attr);
      auto context = std::make_shared<gloo::rendezvous::Context>(worker, workers);
      context->connectFullMesh(store_, device);
      contexts_[static_cast<size_t>(worker)] = context;
      return absl::OkStatus();
    });
    CAIRN_CHECK(connect.Round().ok());
  }

  absl::Status Reduce(int worker) {
    const auto i = static_cast<size_t>(worker);
    gloo::AllreduceOptions options(contexts_[i]);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setInput(inputs_[i].data(), inputs_[i].size());
    options.setOutput(outputs_[i].data(), outputs_[i].size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
    const auto workers = static_cast<float>(contexts_.size());
    return outputs_[i][0] == workers * (workers + 1) / 2 ? absl::OkStatus()
                                                         : absl::InternalError("Gloo's sum is wrong");
  }

 private:
  gloo::rendezvous::HashStore store_;
  std::vector<std::shared_ptr<gloo::rendezvous::Context>> contexts_;
  std::vector<std::vector<float>> inputs_, outputs_;
};

// A server of its own, and the workers of one synchronous job.
struct ServedJob {
  std::unique_ptr<PsProcesses> server;
  std::vector<std::unique_ptr<WireWorker>> workers;
};

absl::Status Join(ServedJob& served, int workers, int64_t size, const char* transport) {
  const BenchJob job = EqualVariables(*served.server, workers, 1, size);
  for (int worker = 0; worker < workers; ++worker) {
    CAIRN_ASSIGN_OR_RETURN(auto connection,
                           Connect(*served.server, absl::StrCat("worker/", worker), transport));
    if (worker == 0) CAIRN_RETURN_IF_ERROR(Initialise(*connection, job));
    CAIRN_ASSIGN_OR_RETURN(auto joined, WireWorker::Join(std::move(connection), job, worker));
    served.workers.push_back(std::move(joined));
  }
  return absl::OkStatus();
}

struct Options {
  int workers = 2, mib = 64, port = 23450;
  std::string program;  // cairn-ps
  ContestOptions contest{.rounds = 7, .seconds_each = 0.5};
};

absl::Status Run(const Options& options) {
  const int workers = options.workers;
  const int64_t size = (int64_t{options.mib} << 20) / static_cast<int64_t>(sizeof(float));
  ServedJob served_by_memory, served_by_unix;  // forked before this process has a second thread
  CAIRN_ASSIGN_OR_RETURN(served_by_memory.server, PsProcesses::Start(options.program, 1));
  CAIRN_ASSIGN_OR_RETURN(served_by_unix.server, PsProcesses::Start(options.program, 1));
  CAIRN_RETURN_IF_ERROR(Join(served_by_memory, workers, size, "shm"));
  CAIRN_RETURN_IF_ERROR(Join(served_by_unix, workers, size, "unix"));
  CairnRing by_tcp(workers, size, options.port, net::Transport::kTcp);
  CairnRing by_memory(workers, size, options.port + workers, net::Transport::kShm);
  GlooRing gloo(workers, size);

  std::vector<Contender> contenders;
  std::vector<std::unique_ptr<WorkerThreads>> groups;
  const auto compete = [&](const char* name, std::vector<pid_t> others,
                           std::function<absl::Status(int)> body) {
    groups.push_back(std::make_unique<WorkerThreads>(workers, std::move(body)));
    contenders.push_back({.name = name,
                          .bytes = static_cast<double>(size) * sizeof(float),
                          .other_processes = std::move(others),
                          .once = [group = groups.back().get()] { return group->Round(); }});
  };
  compete("Cairn's ring, TCP", {}, [&](int worker) { return by_tcp.Reduce(worker); });
  compete("Cairn's ring, shared memory", {}, [&](int worker) { return by_memory.Reduce(worker); });
  compete("Gloo's ring, TCP", {}, [&](int worker) { return gloo.Reduce(worker); });
  compete("Cairn's server, shm", served_by_memory.server->pids(),
          [&](int worker) { return served_by_memory.workers[static_cast<size_t>(worker)]->PushPull(); });
  compete("Cairn's server, Unix", served_by_unix.server->pids(),
          [&](int worker) { return served_by_unix.workers[static_cast<size_t>(worker)]->PushPull(); });

  std::vector<Measured> measured;
  CAIRN_RETURN_IF_ERROR(RunContest(contenders, options.contest, &measured));
  std::printf("%d workers, %d MiB; goodput of each worker's gradient\n", workers, options.mib);
  PrintTable(contenders, measured);
  const Measured& of_gloo = measured[2];
  std::printf("as a ratio of Gloo's: TCP %.2f, shared memory %.2f\n", Ratio(measured[0], of_gloo),
              Ratio(measured[1], of_gloo));
  std::printf(
      "a step through a server, its time as a ratio of Gloo's: shared memory %.2f, Unix socket %.2f\n",
      Ratio(of_gloo, measured[3]), Ratio(of_gloo, measured[4]));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  options.program = PsProgramBeside(argv[0]);
  CLI::App app("Our ring all-reduce, and a step through our server, against Gloo's ring", "allreduce_bench");
  app.add_option("--workers", options.workers)->check(CLI::Range(2, 16))->capture_default_str();
  app.add_option("--mib", options.mib, "Of the gradient")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--rounds", options.contest.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--port", options.port, "The first of our workers' ports")->capture_default_str();
  app.add_option("--cairn_ps", options.program, "the program");
  CLI11_PARSE(app, argc, argv);
  net::TuneMalloc();
  net::QuietGrpc();
  const absl::Status status = Run(options);
  if (!status.ok()) std::fprintf(stderr, "allreduce_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  return cairn::bench::Main(argc, argv);
}
