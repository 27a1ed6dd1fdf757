// Goodput of a ring all-reduce on one host: our ring, over TCP and by shared memory, against Gloo's
// over TCP, in turn, in one process of N workers.
//
//   allreduce_bench --workers 2 --mib 64
//
// Every worker has its own gradient and gets the result in memory of its own. Needs Gloo
// (Debian: libgloo-dev); without it the build leaves the program out, and says so.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/grpc_util.h"
#include "common/net/listening.h"
#include "common/net/tls.h"
#include "grpcpp/server_builder.h"
#include "tests/bench/ring/crew_of_workers.h"
#include "tests/bench/wire/contest.h"
#include "worker/allreduce/direct_link.h"
#include "worker/allreduce/grpc_link.h"
#include "worker/allreduce/member.h"

namespace cairn::bench {
namespace {

using allreduce::Member;

// One worker of our ring, with the server by which its neighbour reaches it.
struct Worker {
  std::unique_ptr<Member> member;
  std::unique_ptr<grpc::Service> service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<allreduce::DirectRingService> direct;
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
      right =
          allreduce::MakeDirectPeer(std::move(right), address((worker + 1) % workers), transport, nullptr);
      net::DirectListeners direct = net::ListenDirectly({}, transport, address(worker), 0, "workers");
      const uint64_t incarnation = static_cast<uint64_t>(worker) + 1;
      one.member =
          std::make_unique<Member>(Member::Options{.worker = worker,
                                                   .names = names,
                                                   .task = names[static_cast<size_t>(worker)],
                                                   .incarnation = incarnation,
                                                   .direct = direct.address(),
                                                   .job = job,
                                                   .variables = {{.name = "all", .shape = Shape({size})}},
                                                   .size = size,
                                                   .state_size = size},
                                   std::move(right));
      if (direct.any()) {
        one.direct =
            std::make_unique<allreduce::DirectRingService>(*one.member, std::move(direct), incarnation);
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
    CrewOfWorkers form(workers, [this](int worker) -> absl::Status {
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
      worker.direct.reset();
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
    CrewOfWorkers connect(workers, [this, workers, size](int worker) {
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

int Main(int argc, char** argv) {
  int workers = 2, mib = 64, rounds = 7, port = 23450;
  CLI::App app("Our ring all-reduce against Gloo's", "allreduce_bench");
  app.add_option("--workers", workers)->check(CLI::Range(2, 16))->capture_default_str();
  app.add_option("--mib", mib, "Of the gradient")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--port", port, "The first of our workers' ports")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  net::TuneMalloc();

  const int64_t size = (int64_t{mib} << 20) / static_cast<int64_t>(sizeof(float));
  CairnRing by_tcp(workers, size, port, net::Transport::kTcp);
  CairnRing by_memory(workers, size, port + workers, net::Transport::kShm);
  GlooRing gloo(workers, size);
  CrewOfWorkers tcp_crew(workers, [&](int worker) { return by_tcp.Reduce(worker); });
  CrewOfWorkers memory_crew(workers, [&](int worker) { return by_memory.Reduce(worker); });
  CrewOfWorkers gloo_crew(workers, [&](int worker) { return gloo.Reduce(worker); });
  const double bytes = static_cast<double>(size) * sizeof(float);
  std::vector<Contender> contenders;
  const auto compete = [&](const char* name, CrewOfWorkers& crew) {
    contenders.push_back(
        {.name = name, .bytes = bytes, .other_processes = {}, .once = [&crew] { return crew.Round(); }});
  };
  compete("Cairn's ring, TCP", tcp_crew);
  compete("Cairn's ring, shared memory", memory_crew);
  compete("Gloo's ring, TCP", gloo_crew);
  std::vector<Measured> measured;
  const absl::Status status = RunContest(contenders, {.rounds = rounds, .seconds_each = 0.5}, &measured);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%d workers, %d MiB; goodput of each worker's gradient\n", workers, mib);
  PrintTable(contenders, measured);
  std::printf("as a ratio of Gloo's: TCP %.2f, shared memory %.2f\n", Ratio(measured[0], measured[2]),
              Ratio(measured[1], measured[2]));
  return 0;
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  return cairn::bench::Main(argc, argv);
}
