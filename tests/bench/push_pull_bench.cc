// Throughput of pushes to a server and pulls from it over each transport, compared to bare sockets, a bare
// gRPC stream, a naive unary call, UCX (if the build includes it) and memory in the same run.
//
//   push_pull_bench [--size 64MiB] [--variables 1] [--workers 1] [--ps 1] [--transports tcp,unix,shm]
//                   [--rounds 7] [--seconds 0.3] [--without naive,gRPC] [--wire_dtype float32] [--json FILE]
//
// A push ends when the server has made the update: sum, SGD, new version. "push alone" is the same stream to
// a process that only stores the gradient. GB/s are goodput, which counts float32 elements for every
// --wire_dtype. All contenders run in turn in each round; ratios are medians of the rounds' ratios; with
// another --wire_dtype none are printed, since bars are for float32. See docs/benchmarks.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/memory/memory_size.h"
#include "common/net/grpc/grpc_util.h"
#include "common/system/thread.h"
#include "tests/bench/wire/cairn_ends.h"
#include "tests/bench/wire/contest.h"
#include "tests/bench/wire/json_lines.h"
#include "tests/bench/wire/peers.h"
#include "tests/bench/wire/push_alone.h"
#include "tests/bench/wire/ucx_peer.h"
#include "worker/options/wire_flags.h"

namespace cairn::bench {
namespace {

struct Options {
  std::string size = "64MiB";
  int variables = 1;
  int workers = 1;
  int servers = 1;
  std::string transports = "tcp,unix,shm";
  std::string program;  // cairn-ps
  std::string without;  // contenders whose names begin so
  worker::WireFlags wire{.dtype = "float32"};
  std::string json;  // a file for the results
  ContestOptions contest{.rounds = 7};
};

// One body for all workers at once, the first in the thread that asks, which costs it no waking of another as
// it costs the peers none; each of the others in a thread that stays.
class Team {
 public:
  explicit Team(int size) : results_(static_cast<size_t>(size)) {
    for (int i = 1; i < size; ++i) threads_.emplace_back("team", [this, i] { Work(i); });
  }
  ~Team() {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  absl::Status Run(std::function<absl::Status(int)> body) {
    MutexLock lock(mutex_);
    body_ = std::move(body);
    running_ = static_cast<int>(threads_.size());
    ++turn_;
    changed_.NotifyAll();
    mutex_.Unlock();
    absl::Status result = body_(0);
    mutex_.Lock();
    results_[0] = std::move(result);
    while (running_ > 0) changed_.Wait(mutex_);  // each body has limits of its own
    for (const absl::Status& of_one : results_) CAIRN_RETURN_IF_ERROR(of_one);
    return absl::OkStatus();
  }

 private:
  void Work(int i) {
    int64_t seen = 0;
    MutexLock lock(mutex_);
    for (;;) {
      while (!stopping_ && turn_ == seen) changed_.Wait(mutex_);
      if (stopping_) return;
      seen = turn_;
      mutex_.Unlock();
      absl::Status result = body_(i);
      mutex_.Lock();
      results_[static_cast<size_t>(i)] = std::move(result);
      if (--running_ == 0) changed_.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::function<absl::Status(int)> body_;
  std::vector<absl::Status> results_;
  int64_t turn_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::vector<Thread> threads_;
};

// The servers of one transport, and workers that have joined.
struct Ours {
  std::string transport;
  std::unique_ptr<PsProcesses> servers;
  std::vector<std::unique_ptr<WireWorker>> workers;
};

// `elements`: of each variable.
absl::Status Join(Ours& ours, const Options& options, int64_t elements) {
  BenchJob job = EqualVariables(*ours.servers, options.workers, options.variables, elements);
  CAIRN_RETURN_IF_ERROR(worker::SetWire(options.wire, job.variables, job.job));
  for (int worker = 0; worker < options.workers; ++worker) {
    CAIRN_ASSIGN_OR_RETURN(auto connection,
                           Connect(*ours.servers, absl::StrCat("worker/", worker), ours.transport));
    if (worker == 0) CAIRN_RETURN_IF_ERROR(Initialise(*connection, job));
    CAIRN_ASSIGN_OR_RETURN(auto joined, WireWorker::Join(std::move(connection), job, worker));
    ours.workers.push_back(std::move(joined));
  }
  return absl::OkStatus();
}

class Bench {
 public:
  explicit Bench(std::vector<std::string> without) : without_(std::move(without)) {}

  void Add(Contender contender) {
    for (const std::string& prefix : without_) {
      if (absl::StartsWith(contender.name, prefix)) return;
    }
    contenders_.push_back(std::move(contender));
  }
  absl::Status Run(const ContestOptions& options) {
    CAIRN_RETURN_IF_ERROR(RunContest(contenders_, options, &measured_));
    PrintTable(contenders_, measured_);
    return absl::OkStatus();
  }
  absl::Status Append(const std::string& path, const RunRecord& run) const {
    return AppendJsonLines(path, run, contenders_, measured_);
  }
  // Says how `one` stands to `other`, if both ran.
  void Compare(const std::string& one, const std::string& other, double bar) const {
    const int a = Find(one), b = Find(other);
    if (a < 0 || b < 0) return;
    const double ratio = Ratio(measured_[static_cast<size_t>(a)], measured_[static_cast<size_t>(b)]);
    std::printf("%-28s / %-28s %8.2f   bar %.2f %s\n", one.c_str(), other.c_str(), ratio, bar,
                ratio >= bar ? "" : "MISSED");
  }
  void CompareCpu(const std::string& one, double bar) const {
    const int a = Find(one);
    if (a < 0) return;
    const Measured& m = measured_[static_cast<size_t>(a)];
    const double both = Median(m.near_cpu) + Median(m.far_cpu);
    std::printf("%-28s CPU s/GB, both sides %21.3f   bar %.2f %s\n", one.c_str(), both, bar,
                both <= bar ? "" : "MISSED");
  }

 private:
  int Find(const std::string& name) const {
    for (size_t i = 0; i < contenders_.size(); ++i) {
      if (contenders_[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
  const std::vector<std::string> without_;
  std::vector<Contender> contenders_;
  std::vector<Measured> measured_;
};

void AddMemory(Bench& bench, AlignedBuffer& from, AlignedBuffer& to) {
  const auto size = static_cast<size_t>(from.size()) * sizeof(float);
  bench.Add({"memcpy", static_cast<double>(size), {}, [&from, &to, size] {
               std::memcpy(to.data(), from.data(), size);
               return absl::OkStatus();
             }});
  bench.Add({"in-place add", static_cast<double>(size), {}, [&from, &to] {
               float* a = to.data();
               const float* b = from.data();
               for (int64_t i = 0; i < from.size(); ++i) a[i] += b[i];
               return absl::OkStatus();
             }});
}

struct Buffers {
  const char* from;
  char* to;
  size_t size;  // bytes of each
};

// The contenders of one transport.
struct Peers {
  pid_t process;
  RawSocket& raw;
  BareStream& stream;
  NaiveUnary& naive;
};

void AddPeers(Bench& bench, const std::string& transport, Peers peers, Buffers buffers) {
  const auto add = [&](const char* kind, const char* way, std::function<absl::Status()> once) {
    bench.Add({absl::StrCat(kind, " ", transport, " ", way),
               static_cast<double>(buffers.size),
               {peers.process},
               std::move(once),
               transport});
  };
  const char* const from = buffers.from;
  char* const to = buffers.to;
  const size_t size = buffers.size;
  add("raw", "push", [=, &raw = peers.raw] { return raw.Push(from, size); });
  add("raw", "pull", [=, &raw = peers.raw] { return raw.Pull(to, size); });
  add("raw", "push, kept", [=, &raw = peers.raw] { return raw.PushKept(from, size); });
  add("raw", "pull, kept", [=, &raw = peers.raw] { return raw.PullInto(to, size); });
  add("gRPC stream", "push", [=, &stream = peers.stream] { return stream.Push(from, size); });
  add("gRPC stream", "pull", [=, &stream = peers.stream] { return stream.Pull(size); });
  add("naive unary", "push", [=, &naive = peers.naive] { return naive.Push(from, size); });
  add("naive unary", "pull", [=, &naive = peers.naive] { return naive.Pull(to, size); });
}

using UcxPeers = std::vector<std::pair<std::string, std::unique_ptr<UcxPeer>>>;  // by transport

// Forks. None if `without` has "ucx", or if this build does not include UCX.
absl::StatusOr<UcxPeers> StartUcx(const std::string& without, size_t bytes) {
  UcxPeers peers;
  for (const auto prefix : absl::StrSplit(without, ',')) {
    if (prefix == "ucx") return peers;
  }
  for (const char* transport : {"shm", "tcp"}) {
    auto peer = UcxPeer::Start(transport, bytes);
    if (absl::IsUnimplemented(peer.status())) {
      std::printf("ucx: skipped: %s\n", std::string(peer.status().message()).c_str());
      return UcxPeers();
    }
    CAIRN_RETURN_IF_ERROR(peer.status());
    peers.emplace_back(transport, *std::move(peer));
  }
  return peers;
}

// The peer returns the bytes that it has received, by messages and by remote access.
absl::Status CheckUcx(UcxPeer& peer, absl::Span<const char> from, absl::Span<char> to) {
  CAIRN_RETURN_IF_ERROR(peer.Push(from, 1));
  CAIRN_RETURN_IF_ERROR(peer.Put(from, 1));
  const auto check = [&](const absl::Status& pulled) -> absl::Status {
    const bool same = std::equal(from.begin(), from.end(), to.begin());
    std::fill(to.begin(), to.end(), '\0');
    return pulled.ok() && !same ? absl::InternalError("ucx: the pulled bytes differ from the pushed")
                                : pulled;
  };
  CAIRN_RETURN_IF_ERROR(check(peer.Pull(to, 1)));
  return check(peer.Get(to, 1));
}

// By tagged messages and by remote memory access; a message for each variable, and one for all.
absl::Status AddUcx(Bench& bench, const UcxPeers& peers, size_t variables, Buffers buffers) {
  const absl::Span<const char> from(buffers.from, buffers.size);
  const absl::Span<char> to(buffers.to, buffers.size);
  for (const auto& [transport, owned] : peers) {
    UcxPeer& peer = *owned;
    CAIRN_RETURN_IF_ERROR(peer.Connect());
    CAIRN_RETURN_IF_ERROR(CheckUcx(peer, from, to));
    const auto add = [&, &transport = transport](absl::string_view way, size_t messages, auto once) {
      bench.Add({absl::StrCat("ucx ", transport, " ", way, messages < variables ? ", one message" : ""),
                 static_cast<double>(from.size()),
                 {peer.pid()},
                 std::move(once),
                 transport});
    };
    for (size_t messages = variables; messages > 0; messages = messages > 1 ? 1 : 0) {
      add("push", messages, [=, &peer] { return peer.Push(from, messages); });
      add("pull", messages, [=, &peer] { return peer.Pull(to, messages); });
      add("push, put", messages, [=, &peer] { return peer.Put(from, messages); });
      add("pull, get", messages, [=, &peer] { return peer.Get(to, messages); });
    }
  }
  return absl::OkStatus();
}

// Half of the bytes over each socket, concurrently: the baseline for streams to several servers.
void AddTwoStreams(Bench& bench, const PeerProcess& peer, RawSocket& one, RawSocket& other, Team& two,
                   Buffers buffers) {
  const size_t half = buffers.size / 2;
  const auto add = [&](const char* way, std::function<absl::Status(RawSocket&, size_t begin)> move) {
    bench.Add({absl::StrCat("raw tcp ", way, ", two streams"),
               static_cast<double>(2 * half),
               {peer.pid()},
               [&one, &other, &two, half, move = std::move(move)] {
                 return two.Run([&](int i) { return move(i == 0 ? one : other, i == 0 ? 0 : half); });
               },
               "tcp"});
  };
  add("push", [=](RawSocket& socket, size_t begin) { return socket.Push(buffers.from + begin, half); });
  add("pull", [=](RawSocket& socket, size_t begin) { return socket.Pull(buffers.to + begin, half); });
}

// Named after how gradients travel, where that is not in float32. `bytes`: of a worker, one way.
void AddOurs(Bench& bench, const Ours& ours, const std::string& encoding, double bytes, Team& team) {
  const auto add = [&](const char* way, double ways, absl::Status (WireWorker::*move)()) {
    const std::string special = encoding == "float32" ? "" : absl::StrCat(encoding, " ");
    const auto& workers = ours.workers;
    bench.Add({absl::StrCat("cairn ", ours.transport, " ", special, way),
               bytes * ways * static_cast<double>(workers.size()), ours.servers->pids(),
               [&team, &workers, move] {
                 return team.Run([&](int w) { return (*workers[static_cast<size_t>(w)].*move)(); });
               },
               ours.transport, encoding});
  };
  add("push", 1, &WireWorker::Push);
  add("pull", 1, &WireWorker::Pull);
  add("push-pull", 2, &WireWorker::PushPull);
}

// By every transport that has streams of ours; one worker's.
absl::Status AddPushesAlone(Bench& bench, const KeeperProcess& keeper, const std::deque<Ours>& all,
                            absl::Span<const float> gradient,
                            std::vector<std::unique_ptr<PushAlone>>& streams) {
  for (const Ours& ours : all) {
    CAIRN_ASSIGN_OR_RETURN(const net::Transport transport, net::ParseTransport(ours.transport));
    if (transport == net::Transport::kGrpc) continue;
    CAIRN_ASSIGN_OR_RETURN(auto stream, PushAlone::To(keeper, transport));
    bench.Add({absl::StrCat("push alone ", ours.transport),
               static_cast<double>(gradient.size() * sizeof(float)),
               {keeper.pid()},
               [stream = stream.get(), gradient] { return stream->Push(gradient); },
               ours.transport});
    streams.push_back(std::move(stream));
  }
  return absl::OkStatus();
}

// A push of UCX makes no update, like a push alone.
void CompareWithUcx(const Bench& bench, const std::string& transport) {
  for (const char* messages : {"", ", one message"}) {
    const auto compare = [&](const std::string& ours, const char* way) {
      bench.Compare(ours, absl::StrCat("ucx ", transport, " ", way, messages), 1);
    };
    compare(absl::StrCat("push alone ", transport), "push");
    compare(absl::StrCat("push alone ", transport), "push, put");
    compare(absl::StrCat("cairn ", transport, " pull"), "pull");
    compare(absl::StrCat("cairn ", transport, " pull"), "pull, get");
  }
}

// Compares the results with the bars. Contenders that did not run are skipped.
void CompareAll(const Bench& bench, int servers) {
  for (const char* way : {" push", " pull"}) {
    const std::string tcp = absl::StrCat("cairn tcp", way), local = absl::StrCat("cairn unix", way),
                      shm = absl::StrCat("cairn shm", way);
    bench.Compare(tcp, absl::StrCat("raw tcp", way), 0.95);
    bench.Compare(tcp, absl::StrCat("raw tcp", way, ", kept"), 0.95);
    if (servers > 1) bench.Compare(tcp, absl::StrCat("raw tcp", way, ", two streams"), 0.85);
    bench.Compare(tcp, absl::StrCat("gRPC stream tcp", way), 0.95);
    bench.Compare(tcp, absl::StrCat("naive unary tcp", way), 6);
    bench.CompareCpu(tcp, 0.45);
    bench.Compare(local, absl::StrCat("raw unix", way), 0.7);
    bench.Compare(local, absl::StrCat("raw unix", way, ", kept"), 0.7);
    bench.Compare(local, absl::StrCat("naive unary unix", way), 8);
    bench.CompareCpu(local, 0.36);
    bench.CompareCpu(shm, 0.1);
  }
  for (const char* transport : {"tcp", "unix", "shm"}) {
    bench.Compare(absl::StrCat("cairn ", transport, " push"), absl::StrCat("push alone ", transport),
                  1 / 1.1);
  }
  for (const char* transport : {"tcp", "shm"}) CompareWithUcx(bench, transport);
  bench.Compare("cairn shm pull", "memcpy", 0.8);
  bench.Compare("cairn shm pull", "cairn tcp pull", 3);
  bench.Compare("cairn shm push", "cairn tcp push", 3);
  bench.Compare("cairn shm push", "in-place add", 0.8);
}

absl::Status Run(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t size, ParseMemorySize(options.size));
  const int64_t of_each = size / static_cast<int64_t>(sizeof(float)) / options.variables / 256 * 256;
  if (of_each == 0) return absl::InvalidArgumentError("--size: less than 1 KiB for each variable");
  const int64_t elements = of_each * options.variables;
  const auto bytes = static_cast<size_t>(elements) * sizeof(float);

  // All other processes first: forking does not go together with threads.
  CAIRN_ASSIGN_OR_RETURN(const auto peer, PeerProcess::Start());
  CAIRN_ASSIGN_OR_RETURN(const auto keeper, KeeperProcess::Start(elements));
  CAIRN_ASSIGN_OR_RETURN(const UcxPeers ucx, StartUcx(options.without, bytes));
  std::deque<Ours> all;
  for (const auto transport : absl::StrSplit(options.transports, ',')) {
    CAIRN_ASSIGN_OR_RETURN(auto servers, PsProcesses::Start(options.program, options.servers));
    all.push_back({std::string(transport), std::move(servers), {}});
  }
  for (Ours& ours : all) {
    CAIRN_RETURN_IF_ERROR(Annotate(Join(ours, options, of_each), ours.transport));
  }

  AlignedBuffer from(elements), to(elements);
  std::fill_n(from.data(), elements, 0.5f);
  CAIRN_ASSIGN_OR_RETURN(const auto raw_tcp, RawSocket::Tcp(peer->tcp_port()));
  CAIRN_ASSIGN_OR_RETURN(const auto other_tcp, RawSocket::Tcp(peer->tcp_port()));
  CAIRN_ASSIGN_OR_RETURN(const auto raw_unix, RawSocket::Unix(peer->unix_name()));
  BareStream stream_tcp(peer->grpc_tcp()), stream_unix(peer->grpc_unix());
  NaiveUnary naive_tcp(peer->grpc_tcp()), naive_unix(peer->grpc_unix());
  Team team(options.workers), two(2);

  Bench bench(absl::StrSplit(options.without, ',', absl::SkipEmpty()));
  AddMemory(bench, from, to);
  const Buffers buffers{reinterpret_cast<const char*>(from.data()), reinterpret_cast<char*>(to.data()),
                        bytes};
  AddPeers(bench, "tcp", {peer->pid(), *raw_tcp, stream_tcp, naive_tcp}, buffers);
  AddTwoStreams(bench, *peer, *raw_tcp, *other_tcp, two, buffers);
  AddPeers(bench, "unix", {peer->pid(), *raw_unix, stream_unix, naive_unix}, buffers);
  CAIRN_RETURN_IF_ERROR(AddUcx(bench, ucx, static_cast<size_t>(options.variables), buffers));
  std::vector<std::unique_ptr<PushAlone>> pushes_alone;
  CAIRN_RETURN_IF_ERROR(AddPushesAlone(bench, *keeper, all, from.span(), pushes_alone));
  for (const Ours& ours : all) AddOurs(bench, ours, options.wire.dtype, static_cast<double>(bytes), team);
  RunRecord record =
      RunOf(static_cast<int64_t>(bytes), options.workers, options.servers, options.contest.rounds);
  record.variables = options.variables;

  std::printf("%s in %d variables, %d workers, %d ps\n", options.size.c_str(), options.variables,
              options.workers, options.servers);
  CAIRN_RETURN_IF_ERROR(bench.Run(options.contest));
  if (!options.json.empty()) CAIRN_RETURN_IF_ERROR(bench.Append(options.json, record));
  CompareAll(bench, options.servers);
  return absl::OkStatus();
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  cairn::bench::Options options;
  options.program = cairn::bench::PsProgramBeside(argv[0]);
  CLI::App app("Gradients up and values down, against what the machine can do.");
  app.add_option("--size", options.size, "of all variables, 1KiB to 1GiB");
  app.add_option("--variables", options.variables, "of the same size, which they share")
      ->check(CLI::PositiveNumber);
  app.add_option("--workers", options.workers, "threads of this process");
  app.add_option("--ps", options.servers);
  app.add_option("--transports", options.transports, "of tcp, unix, shm");
  app.add_option("--without", options.without, "contenders whose names begin so, separated by commas");
  app.add_option("--cairn_ps", options.program, "the program");
  app.add_option("--rounds", options.contest.rounds);
  app.add_option("--seconds", options.contest.seconds_each, "of each contender in each round, at least");
  app.add_option("--wire_dtype", options.wire.dtype,
                 "how gradients travel; values as with cairn train --wire_dtype")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "int8", "topk", "onebit"}));
  app.add_option("--json", options.json, "a file, to which a line for each contender is appended");
  CLI11_PARSE(app, argc, argv);
  cairn::net::TuneMalloc();
  cairn::net::QuietGrpc();
  const absl::Status status = cairn::bench::Run(options);
  if (!status.ok()) std::fprintf(stderr, "push_pull_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
