// One task of a ps-lite cluster, whose worker measures pushes and pulls as push_pull_bench measures ours.
// pslite_ratio.py starts the scheduler, the server and the worker, with the environment that ps-lite reads.
//
//   pslite_bench [--size 64MiB] [--variables 1] [--in_flight 1,4] [--transport tcp] [--server_pid PID]
//                [--rounds 7] [--seconds 0.3] [--limit 120] [--json FILE]
//
// A variable is a key. All variables are sent in one message of KVWorker, as a list; with --in_flight W also
// in one message each, of which up to W wait for their answers at a time. The server makes the same update as
// ours (SGD, before it answers), in the cheapest way: there is one worker, so its gradient is the sum, and
// the update is made in place in one pass. Our server sums in an accumulator and writes the new values to
// another buffer. Values are sent without a copy. Keys are not looked up, and only their bounds are checked:
// a real server does more.
#include <ps/ps.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/memory/memory_size.h"
#include "tests/bench/wire/contest.h"
#include "tests/bench/wire/json_lines.h"

namespace cairn::bench {
namespace {

constexpr float kLearningRate = 0.01f;

struct Options {
  std::string size = "64MiB";
  int variables = 1;
  std::vector<int> in_flight;
  std::string transport = "tcp";
  int server_pid = 0;
  unsigned limit_seconds = 120;
  std::string json;
  ContestOptions contest{.rounds = 7};
};

// The sizes, the same in all tasks.
struct Sizes {
  int variables;
  int64_t elements;  // of each
};

// All variables, one behind the other: the keys are 0, 1, 2 and so on, and those of a request follow each
// other.
class Values {
 public:
  explicit Values(Sizes sizes) : elements_(sizes.elements), values_(sizes.variables * sizes.elements) {}

  void Answer(const ps::KVMeta& request, const ps::KVPairs<float>& pushed, ps::KVServer<float>* server) {
    const auto first = static_cast<int64_t>(pushed.keys.front()) * elements_;
    const auto count = static_cast<int64_t>(pushed.keys.size()) * elements_;
    CAIRN_CHECK(first + count <= values_.size());
    if (request.push) {
      CAIRN_CHECK(static_cast<int64_t>(pushed.vals.size()) == count);
      float* const values = values_.data() + first;
      const float* const gradient = pushed.vals.data();
      for (int64_t i = 0; i < count; ++i) values[i] -= kLearningRate * gradient[i];
    }
    ps::KVPairs<float> answer;
    if (request.pull) {
      answer.keys = pushed.keys;
      answer.vals = ps::SArray<float>(values_.data() + first, static_cast<size_t>(count));
    }
    server->Response(request, answer);
  }

 private:
  const int64_t elements_;
  AlignedBuffer values_;
};

enum class Way { kPush, kPull };

// The worker's end. Waits have the limit of the whole program.
class Worker {
 public:
  Worker(Sizes sizes, ps::KVWorker<float>& client)
      : client_(client),
        gradient_(sizes.variables * sizes.elements),
        values_(sizes.variables * sizes.elements),
        keys_(static_cast<size_t>(sizes.variables)) {
    std::fill_n(gradient_.data(), gradient_.size(), 0.5f);
    std::iota(keys_.begin(), keys_.end(), ps::Key{0});
  }

  // All variables, `messages` of them, which divides their number, with `in_flight` unanswered at a time.
  void Move(Way way, size_t messages, size_t in_flight) {
    std::vector<ps::SArray<float>> arrived(messages);  // where the values go; read until the answer is there
    std::vector<int> sent;
    for (size_t i = 0; i < messages; ++i) {
      if (i >= in_flight) client_.Wait(sent[i - in_flight]);
      const size_t keys = keys_.size() / messages, floats = static_cast<size_t>(values_.size()) / messages;
      const ps::SArray<ps::Key> some(keys_.data() + i * keys, keys);
      const ps::SArray<float> gradient(gradient_.data() + i * floats, floats);
      arrived[i] = ps::SArray<float>(values_.data() + i * floats, floats);
      sent.push_back(way == Way::kPush ? client_.ZPush(some, gradient) : client_.ZPull(some, &arrived[i]));
    }
    for (size_t i = messages - std::min(messages, in_flight); i < messages; ++i) client_.Wait(sent[i]);
  }

 private:
  ps::KVWorker<float>& client_;
  AlignedBuffer gradient_, values_;
  std::vector<ps::Key> keys_;
};

absl::Status Measure(const Options& options, Sizes sizes, Worker& worker) {
  const auto bytes = static_cast<double>(sizes.variables * sizes.elements) * sizeof(float);
  std::vector<Contender> contenders;
  const auto add = [&](const char* name, Way way) {
    const auto moves = [&](const std::string& how, size_t messages, size_t in_flight) {
      contenders.push_back({absl::StrCat("pslite ", options.transport, " ", name, how),
                            bytes,
                            {options.server_pid},
                            [&worker, way, messages, in_flight] {
                              worker.Move(way, messages, in_flight);
                              return absl::OkStatus();
                            },
                            options.transport});
    };
    moves("", 1, 1);
    for (const int in_flight : options.in_flight) {
      moves(absl::StrCat(", ", in_flight, " in flight"), static_cast<size_t>(sizes.variables),
            static_cast<size_t>(in_flight));
    }
  };
  add("push", Way::kPush);
  add("pull", Way::kPull);
  RunRecord record = RunOf(static_cast<int64_t>(bytes), 1, 1, options.contest.rounds);
  record.variables = sizes.variables;
  std::vector<Measured> measured;
  CAIRN_RETURN_IF_ERROR(RunContest(contenders, options.contest, &measured));
  PrintTable(contenders, measured);
  if (options.json.empty()) return absl::OkStatus();
  return AppendJsonLines(options.json, record, contenders, measured);
}

absl::Status Run(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t size, ParseMemorySize(options.size));
  const Sizes sizes{options.variables, size / static_cast<int64_t>(sizeof(float)) / options.variables};
  ps::StartAsync(0, "pslite_bench");
  Values values(sizes);
  std::unique_ptr<ps::KVServer<float>> server;
  std::unique_ptr<ps::KVWorker<float>> client;
  if (ps::IsServer()) {
    server = std::make_unique<ps::KVServer<float>>(0);
    server->set_request_handle([&values](const auto&... request) { values.Answer(request...); });
  }
  if (ps::IsWorker()) client = std::make_unique<ps::KVWorker<float>>(0, 0);
  // No task sends before all have their handlers.
  ps::Postoffice::Get()->Barrier(0, ps::kScheduler + ps::kServerGroup + ps::kWorkerGroup);
  if (client == nullptr) {
    for (;;) pause();  // until the script, or the limit, kills it
  }
  Worker worker(sizes, *client);
  return Measure(options, sizes, worker);
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  cairn::bench::Options options;
  CLI::App app("Pushes and pulls by ps-lite.");
  app.add_option("--size", options.size, "of all variables");
  app.add_option("--variables", options.variables, "of the same size")->check(CLI::PositiveNumber);
  app.add_option("--in_flight", options.in_flight,
                 "messages that wait for answers, where each variable has its own")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--transport", options.transport, "what the results call it; the environment chooses");
  app.add_option("--server_pid", options.server_pid, "whose processor time counts as the other side's");
  app.add_option("--rounds", options.contest.rounds);
  app.add_option("--seconds", options.contest.seconds_each, "of each contender in each round, at least");
  app.add_option("--limit", options.limit_seconds, "seconds after which the program is killed");
  app.add_option("--json", options.json, "a file, to which a line for each contender is appended");
  CLI11_PARSE(app, argc, argv);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(options.limit_seconds);
  const absl::Status status = cairn::bench::Run(options);
  if (!status.ok()) std::fprintf(stderr, "pslite_bench: %s\n", status.ToString().c_str());
  std::fflush(nullptr);
  _exit(status.ok() ? 0 : 1);  // without ps-lite's own ending, whose barrier has no limit
}
