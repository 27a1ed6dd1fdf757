// Latency of a synchronous round of a tiny model: gradients to the server, the update, values back. Also the
// latency of a read of unchanged values. For comparison, the same run measures unary gRPC calls of as many
// concurrent clients, and messages over bare sockets.
//
//   round_latency_bench [--workers 4] [--variables 10] [--transports tcp,unix,shm] [--rounds 7]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "common/core/status.h"
#include "common/net/grpc/grpc_util.h"
#include "common/system/thread.h"
#include "tests/bench/wire/cairn_ends.h"
#include "tests/bench/wire/contest.h"
#include "tests/bench/wire/peers.h"

namespace cairn::bench {
namespace {

constexpr int kCallsAtOnce = 200;  // for each client in each turn, so that starting threads does not count

struct Options {
  int workers = 4;
  int variables = 10;
  std::string transports = "tcp,unix,shm";
  std::string program;
  int rounds = 7;
};

using Clock = std::chrono::steady_clock;

// p50 and p99 in microseconds of one call among those of all clients.
struct Latency {
  double p50 = 0, p99 = 0;
};

template <typename Call>
absl::Status Turn(int clients, Call call, Latency* latency) {
  std::vector<std::vector<double>> seconds(static_cast<size_t>(clients));
  std::vector<absl::Status> results(static_cast<size_t>(clients));
  {
    std::vector<Thread> threads;
    for (int c = 0; c < clients; ++c) {
      threads.emplace_back("client", [&, c] {
        absl::Status& result = results[static_cast<size_t>(c)];
        for (int i = 0; i < kCallsAtOnce && result.ok(); ++i) {
          const auto start = Clock::now();
          result = call(c);
          seconds[static_cast<size_t>(c)].push_back(
              std::chrono::duration<double>(Clock::now() - start).count());
        }
      });
    }
  }
  std::vector<double> all;
  for (size_t c = 0; c < results.size(); ++c) {
    CAIRN_RETURN_IF_ERROR(results[c]);
    all.insert(all.end(), seconds[c].begin(), seconds[c].end());
  }
  *latency = {Percentile(all, 0.5) * 1e6, Percentile(all, 0.99) * 1e6};
  return absl::OkStatus();
}

struct Ours {
  std::string transport;
  std::unique_ptr<PsProcesses> servers;
  std::vector<std::unique_ptr<client::TrainingClient>> workers;
  std::unique_ptr<client::Client> client;
  std::vector<std::unique_ptr<client::VariableReader>> readers;  // [worker]
};

absl::Status Join(Ours& ours, const Options& options) {
  const BenchJob job = EqualVariables(*ours.servers, options.workers, options.variables, 256);
  for (int worker = 0; worker < options.workers; ++worker) {
    const std::string task = absl::StrCat("worker/", worker);
    CAIRN_ASSIGN_OR_RETURN(auto connection, Connect(*ours.servers, task, ours.transport));
    ours.workers.push_back(std::make_unique<client::TrainingClient>(
        std::move(connection), job.variables, client::TrainingOptions{.worker = worker, .task = task}));
    client::TrainingClient& joined = *ours.workers.back();
    if (worker == 0) {
      client::FirstValues zeros(std::vector<float>(static_cast<size_t>(job.elements)));
      CAIRN_RETURN_IF_ERROR(joined.Initialise(job.job, zeros));
    }
    CAIRN_RETURN_IF_ERROR(joined.WaitReady(job.job));
    CAIRN_RETURN_IF_ERROR(joined.Join());
  }
  CAIRN_ASSIGN_OR_RETURN(auto stubs, StubsTo(*ours.servers, ours.transport));
  CAIRN_ASSIGN_OR_RETURN(ours.client, client::Client::Connect(std::move(stubs)));
  for (int worker = 0; worker < options.workers; ++worker) {
    CAIRN_ASSIGN_OR_RETURN(auto reader, ours.client->OpenReader(job.variables[0].name));
    ours.readers.push_back(std::move(reader));
  }
  return absl::OkStatus();
}

absl::Status Step(client::TrainingClient& worker, int variables, absl::Span<const float> gradient) {
  client::Step& step = worker.steps().BeginStep(gradient, 1);
  for (int variable = variables - 1; variable >= 0; --variable) step.Announce(variable);
  return step.Finish().status();
}

absl::Status Run(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const auto peer, PeerProcess::Start());
  std::deque<Ours> all;
  for (const auto transport : absl::StrSplit(options.transports, ',')) {
    CAIRN_ASSIGN_OR_RETURN(auto servers, PsProcesses::Start(options.program, 1));
    all.push_back({std::string(transport), std::move(servers), {}, {}, {}});
  }
  for (Ours& ours : all) CAIRN_RETURN_IF_ERROR(Annotate(Join(ours, options), ours.transport));
  const std::vector<float> gradient(static_cast<size_t>(options.variables) * 256, 0.5f);

  std::vector<std::unique_ptr<RawSocket>> sockets;
  std::vector<std::unique_ptr<NaiveUnary>> calls;
  for (int c = 0; c < options.workers; ++c) {
    CAIRN_ASSIGN_OR_RETURN(auto socket, RawSocket::Unix(peer->unix_name()));
    sockets.push_back(std::move(socket));
    calls.push_back(std::make_unique<NaiveUnary>(peer->grpc_tcp()));
  }

  std::vector<std::string> names = {"raw unix message", "gRPC unary call, tcp"};
  for (const Ours& ours : all) {
    names.push_back(absl::StrCat("cairn ", ours.transport, " round"));
    names.push_back(absl::StrCat("cairn ", ours.transport, " unchanged read"));
  }
  std::vector<std::vector<double>> p50(names.size()), p99(names.size()), of_call(names.size());
  for (int round = 0; round <= options.rounds; ++round) {
    std::vector<Latency> now(names.size());
    CAIRN_RETURN_IF_ERROR(
        Turn(options.workers, [&](int c) { return sockets[static_cast<size_t>(c)]->Ping(); }, &now[0]));
    CAIRN_RETURN_IF_ERROR(
        Turn(options.workers, [&](int c) { return calls[static_cast<size_t>(c)]->Ping(); }, &now[1]));
    for (size_t i = 0; i < all.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(Turn(
          options.workers,
          [&](int c) { return Step(*all[i].workers[static_cast<size_t>(c)], options.variables, gradient); },
          &now[2 + 2 * i]));
      // Reads the values after the rounds.
      for (const auto& reader : all[i].readers) CAIRN_RETURN_IF_ERROR(reader->Refresh().status());
      CAIRN_RETURN_IF_ERROR(Turn(
          options.workers, [&](int c) { return all[i].readers[static_cast<size_t>(c)]->Refresh().status(); },
          &now[3 + 2 * i]));
    }
    if (round == 0) continue;  // warms up
    for (size_t i = 0; i < names.size(); ++i) {
      p50[i].push_back(now[i].p50);
      p99[i].push_back(now[i].p99);
      of_call[i].push_back(now[i].p50 / now[1].p50);
    }
  }
  std::printf("%d workers, %d variables of 1 KiB, 1 ps\n%-26s %10s %10s %22s\n", options.workers,
              options.variables, "", "p50 us", "p99 us", "p50 / that of a call");
  for (size_t i = 0; i < names.size(); ++i) {
    const double ratio = Median(of_call[i]);
    std::printf("%-26s %10.1f %10.1f %22.2f%s\n", names[i].c_str(), Median(p50[i]), Median(p99[i]), ratio,
                i >= 2 ? (ratio <= 2 ? "   bar 2.00" : "   bar 2.00 MISSED") : "");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  cairn::bench::Options options;
  options.program = cairn::bench::PsProgramBeside(argv[0]);
  CLI::App app("Rounds of a tiny model, against calls that do nothing.");
  app.add_option("--workers", options.workers);
  app.add_option("--variables", options.variables, "of 1 KiB each");
  app.add_option("--transports", options.transports, "of tcp, unix, shm");
  app.add_option("--cairn_ps", options.program, "the program");
  app.add_option("--rounds", options.rounds);
  CLI11_PARSE(app, argc, argv);
  cairn::net::TuneMalloc();
  cairn::net::QuietGrpc();
  const absl::Status status = cairn::bench::Run(options);
  if (!status.ok()) std::fprintf(stderr, "round_latency_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
