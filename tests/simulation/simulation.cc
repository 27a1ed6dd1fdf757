#include "tests/simulation/simulation.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/grpc_util.h"
#include "ps/follow_proto.h"
#include "tests/simulation/network.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::simulation {
namespace {

constexpr double kLease = 10;
constexpr double kHeartbeat = kLease / 4;
constexpr double kTick = 0.5;
constexpr double kLongest = 4 * 3600;  // a job that lasts longer hangs

// What a seed draws.
struct Setting {
  explicit Setting(Random& random) {
    const uint32_t mode = random.NextBelow(10);
    rules.mode = mode < 6 ? v1::MODE_SYNC : mode < 8 ? v1::MODE_SSP : v1::MODE_ASYNC;
    rules.servers = 1 + static_cast<int>(random.NextBelow(3));
    const uint32_t crowd = random.NextBelow(100);
    rules.workers = 1 + static_cast<int>(random.NextBelow(crowd < 1 ? 256 : crowd < 10 ? 32 : 6));
    steps = 5 + static_cast<int>(random.NextBelow(static_cast<uint32_t>(10 + 240 / rules.workers)));
    if (rules.mode == v1::MODE_SYNC && random.NextBelow(2) == 0) {
      rules.replicas_to_aggregate =
          1 + static_cast<int>(random.NextBelow(static_cast<uint32_t>(rules.workers)));
    }
    if (rules.mode == v1::MODE_SSP || (rules.mode == v1::MODE_ASYNC && random.NextBelow(2) == 0)) {
      rules.max_staleness = random.NextBelow(rules.mode == v1::MODE_SSP ? 4 : 8);
    }
    if (random.NextBelow(3) == 0) rules.final_version = 1 + random.NextBelow(static_cast<uint32_t>(steps));
    rules.rate_one = random.NextBelow(5) != 0;
    longest_delay = random.NextBelow(2) == 0 ? 0.05 : 1;
    computing = random.NextBelow(2) == 0 ? 0.1 : 2;
    // Mean seconds between two faults; none in one of four jobs.
    chaos_every = random.NextBelow(4) == 0 ? 0 : 0.5 + 8 * random.NextUniform();
    chaos_until = 200;
  }
  std::string ToText() const {
    return absl::StrCat(v1::Mode_Name(rules.mode), ", ", rules.servers, " servers, ", rules.workers,
                        " workers of ", steps, " steps, replicas_to_aggregate ", rules.replicas_to_aggregate,
                        ", max_staleness ", rules.max_staleness, ", final_version ", rules.final_version,
                        rules.rate_one ? "" : ", clipped by norms", ", delays up to ", longest_delay,
                        " s, a fault every ", chaos_every, " s");
  }

  Rules rules;
  int steps;  // of each worker
  double longest_delay, computing, chaos_every, chaos_until;
};

class World;

// Between a follower and ps/0. The follower makes it, as its port; it lives as long as its job.
class FollowLink final : public ps::SequencerPort {
 public:
  FollowLink(World& world, int server, std::shared_ptr<ps::Shard> shard)
      : world_(world), server_(server), shard_(std::move(shard)) {}

  void ReportStaged(const ps::Gradient& gradient) override;
  void ReportSums(ps::Sums sums) override;
  void ReportExecuted(int64_t index) override;

  void Open();
  void Break();
  void Deliver(const v1::Decision& decision);

  Way to_leader, from_leader;

 private:
  void Say(std::function<void(ps::Sequencer&)> what);

  World& world_;
  const int server_;
  const std::shared_ptr<ps::Shard> shard_;
  bool open_ = false;
};

class FollowSink final : public ps::LogSink {
 public:
  FollowSink(World& world, FollowLink& link) : world_(world), link_(link) {}
  void Append(const ps::LogEntry& entry) override;
  void Flush() override {}
  void End() override {}
  void Close() { closed_ = true; }

 private:
  World& world_;
  FollowLink& link_;
  bool closed_ = false;
};

struct Worker {
  int64_t life = 0;  // what was planned for another is void
  bool up = false;
  double paused_until = 0;
  int steps_left = 0;
  uint64_t incarnation = 0;
  int64_t step = 0, pulls = 0;
  std::vector<int64_t> versions;  // [server] of what it computes from
  bool pushing = false;
  ps::Gradient gradient;
  float value = 0;
  std::vector<std::optional<ps::PushResult>> answers;  // [server]
  std::vector<std::optional<float>> values;            // [server]
  std::vector<Way> up_way, down_way;                   // [server]: its streams
};

class World {
 public:
  explicit World(uint64_t seed)
      : random(seed, "protocol"), setting_(random), checker_(setting_.rules), events(clock_) {
    outcome_.setting = setting_.ToText();
    links.resize(static_cast<size_t>(rules().servers));
    for (int s = 0; s < rules().servers; ++s) {
      servers_.push_back(std::make_unique<ps::Server>(
          ps::Server::Options{.index = s,
                              .incarnation = 1,
                              .connect_to_leader =
                                  [this, s](const v1::Job&, std::shared_ptr<ps::Shard> shard, int64_t) {
                                    auto link = std::make_unique<FollowLink>(*this, s, std::move(shard));
                                    links[static_cast<size_t>(s)] = link.get();
                                    return link;
                                  }},
          clock_));
    }
    CreateJobs();
    for (FollowLink* link : links) {
      if (link != nullptr) link->Open();
    }
    workers_.resize(static_cast<size_t>(rules().workers));
    for (int w = 0; w < rules().workers; ++w) {
      Worker& worker = At(w);
      worker.steps_left = setting_.steps;
      worker.up_way.resize(servers_.size());
      worker.down_way.resize(servers_.size());
      const bool late = random.NextBelow(10) == 0;
      events.After(random.NextUniform() * (late ? 60.0f : 3.0f), [this, w] { Start(w); });
    }
    events.After(kTick, [this] { Tick(); });
    if (setting_.chaos_every > 0) events.After(1, [this] { Fault(); });
  }

  Outcome Run() {
    double quiet_since = -1;
    while (checker_.violations().empty()) {
      events.Step();
      ++outcome_.events;
      checker_.EventEnded(Version(0));
      for (size_t s = 0; s < servers_.size(); ++s) {
        const absl::Status failure = Job(static_cast<int>(s)).shard().failure();
        if (!failure.ok()) checker_.Violation(absl::StrCat("ps/", s, " fails: ", failure.message()));
      }
      if (!Quiet()) {
        quiet_since = -1;
        if (events.now() > kLongest) {
          checker_.Violation(absl::StrCat("the job hangs at version ", Version(0)));
        }
      } else if (quiet_since < 0) {
        quiet_since = events.now();
      } else if (events.now() > quiet_since + 3 * kLease) {
        break;  // leases are over, and so is every message's way
      }
    }
    checker_.Ended(FinalState());
    outcome_.violations = checker_.violations();
    outcome_.coverage = checker_.coverage();
    return outcome_;
  }

  const Rules& rules() const { return setting_.rules; }
  double longest_delay() const { return setting_.longest_delay; }
  ps::Sequencer& sequencer() { return *Job(0).sequencer(); }
  void Held() { ++outcome_.held; }

  Random random;

 private:
  const Setting setting_;
  test::FakeClock clock_;
  Checker checker_;

 public:
  Events events;

 private:
  Worker& At(int w) { return workers_[static_cast<size_t>(w)]; }
  ps::Server& ServerAt(int s) { return *servers_[static_cast<size_t>(s)]; }
  ps::ActiveJob& Job(int s) { return *jobs_[static_cast<size_t>(s)]; }
  int64_t Version(int s) { return Job(s).shard().store().current().version; }
  static float ValueOf(const ps::Values& values) { return values.data->data()[0]; }
  bool one_log() const { return rules().mode != v1::MODE_ASYNC || !rules().rate_one; }
  double Delay() { return longest_delay() * random.NextUniform(); }
  double UpTo(double seconds) { return seconds * random.NextUniform(); }

  // --- Before the start: one element on each server, the same on all ---
  void CreateJobs() {
    v1::CreateRequest request;
    v1::Job& job = *request.mutable_job();
    job.set_run_id("simulated");
    job.set_mode(rules().mode);
    for (int w = 0; w < rules().workers; ++w) job.add_workers(absl::StrCat("worker/", w));
    for (int s = 0; s < rules().servers; ++s) job.add_servers(absl::StrCat("host", s, ":1"));
    job.set_replicas_to_aggregate(rules().replicas_to_aggregate);
    if (rules().max_staleness >= 0) job.set_max_staleness(rules().max_staleness);
    job.set_final_version(rules().final_version);
    job.set_lease_seconds(kLease);
    job.mutable_optimizer()->set_name("SGD");
    auto& numbers = *job.mutable_optimizer()->mutable_hyperparameters();
    numbers["learning_rate"] = 1;
    if (!rules().rate_one) numbers["global_clipnorm"] = 0.5;
    for (int s = 0; s < rules().servers; ++s) {
      request.clear_slices();
      const std::string name = absl::StrCat("v", s);
      for (const net::Slice& slice : ps::Vectors({{name, 1}})) *request.add_slices() = slice.ToProto();
      uint64_t layout = 0;
      ServerAt(s).Create(request, [&](absl::StatusOr<v1::CreateResponse> response) {
        if (response.ok()) layout = response->layout();
      });
      jobs_.push_back(ServerAt(s).JobForLayout(layout).value());
      ServerAt(s).OnInitialised(layout);
    }
  }

  // --- Workers ---

  // Does `what` as this life of the worker: not when it has died, and later when it pauses.
  void Act(int w, int64_t life, std::function<void()> what) {
    Worker& worker = At(w);
    if (worker.life != life) return;
    if (events.now() < worker.paused_until) {
      events.At(worker.paused_until, [this, w, life, what = std::move(what)] { Act(w, life, what); });
    } else {
      what();
    }
  }
  void Later(int w, double seconds, std::function<void()> what) {
    events.After(seconds,
                 [this, w, life = At(w).life, what = std::move(what)] { Act(w, life, std::move(what)); });
  }

  void Die(int w) {
    Worker& worker = At(w);
    ++worker.life;
    worker.up = worker.pushing = false;
    for (size_t s = 0; s < servers_.size(); ++s) BreakStream(w, s);
  }
  void Start(int w) {
    Die(w);
    Worker& worker = At(w);
    worker.up = true;
    worker.step = 0;
    worker.incarnation = 0;
    worker.paused_until = 0;
    if (worker.steps_left <= 0) worker.steps_left = 1;
    Join(w, 0);
  }
  void Join(int w, int s) {
    const int64_t life = At(w).life;
    events.After(Delay(), [this, w, s, life, incarnation = At(w).incarnation] {
      v1::JoinRequest request;
      request.set_worker(w);
      request.set_task(absl::StrCat("worker/", w));
      request.set_incarnation(incarnation);
      if (s == 0) checker_.Left(w);  // its life before ends with this
      ServerAt(s).Join(request, [this, w, s, life](absl::StatusOr<v1::JoinResponse> response) {
        if (!response.ok()) {  // a later life has overtaken it
          events.After(Delay(), [this, w, life] { Act(w, life, [this, w] { Start(w); }); });
          return;
        }
        if (s == 0) {
          checker_.Joined(w, response->incarnation(), response->clock());
          heard_[w] = events.now();
        }
        const bool lost = random.NextBelow(20) == 0;
        events.After(lost ? 2 : Delay(), [this, w, s, life, lost, drawn = response->incarnation()] {
          Act(w, life, [this, w, s, lost, drawn] {
            if (lost) {
              Start(w);
              return;
            }
            At(w).incarnation = drawn;
            if (s + 1 < rules().servers) {
              Join(w, s + 1);
            } else {
              Heartbeat(w);
              Pull(w);
            }
          });
        });
      });
    });
  }
  void Heartbeat(int w) {
    Later(w, kHeartbeat, [this, w] {
      const int64_t life = At(w).life;
      for (int s = 0; s < rules().servers; ++s) {
        events.After(Delay(), [this, w, s, life, incarnation = At(w).incarnation] {
          v1::HeartbeatRequest request;
          request.set_worker(w);
          request.set_incarnation(incarnation);
          ServerAt(s).Heartbeat(
              request, [this, w, s, life, incarnation](absl::StatusOr<v1::HeartbeatResponse> response) {
                if (response.ok() && s == 0) {
                  heard_[w] = events.now();
                  if (checker_.LiveIncarnation(w) != incarnation) {
                    checker_.Violation(absl::StrCat("worker ", w, " is heard of, though it has left"));
                  }
                }
                if (absl::IsAborted(response.status())) {
                  events.After(Delay(), [this, w, life] { Act(w, life, [this, w] { Start(w); }); });
                }
              });
        });
      }
      Heartbeat(w);
    });
  }
  void Pull(int w) {
    const int64_t life = At(w).life;
    const std::string mark = one_log() ? absl::StrCat(w, "#", life, ".", ++At(w).pulls) : std::string();
    At(w).versions.assign(servers_.size(), -1);
    events.After(Delay(), [this, w, life, mark] {
      if (!mark.empty()) CAIRN_CHECK(sequencer().WriteMark({.token = mark}).ok());
      for (int s = 0; s < rules().servers; ++s) {
        events.After(Delay(), [this, w, s, life, mark] {
          Job(s).shard().Read(mark, [this, w, s, life](absl::StatusOr<ps::ReadResult> read) {
            if (!read.ok()) {
              checker_.Violation(absl::StrCat("a read on ps/", s, " fails: ", read.status().message()));
              return;
            }
            if (one_log()) checker_.Read(s, read->values.version, ValueOf(read->values));
            events.After(Delay(),
                         [this, w, s, life, version = read->values.version, finished = read->finished] {
                           Act(w, life, [=, this] { OnRead(w, s, version, finished); });
                         });
          });
        });
      }
    });
  }
  void OnRead(int w, int s, int64_t version, bool finished) {
    Worker& worker = At(w);
    worker.versions[static_cast<size_t>(s)] = version;
    for (const int64_t read : worker.versions) {
      if (read < 0) return;
      if (one_log() && read != worker.versions[0]) {
        checker_.Violation(absl::StrCat("worker ", w, " reads versions ", read, " and ", worker.versions[0],
                                        " at one mark"));
      }
    }
    if (finished) {
      Leave(w);
    } else {
      Compute(w);
    }
  }
  void Compute(int w) {
    Later(w, UpTo(setting_.computing), [this, w] {
      Worker& worker = At(w);
      worker.gradient.key = {.worker = w, .incarnation = worker.incarnation, .step = ++worker.step};
      worker.gradient.examples = random.NextBelow(8) == 0 ? 0 : 1 + random.NextBelow(4);
      worker.value = static_cast<float>(random.NextBelow(17)) - 8;
      worker.answers.assign(servers_.size(), std::nullopt);
      worker.values.assign(servers_.size(), std::nullopt);
      worker.pushing = true;
      for (int s = 0; s < rules().servers; ++s) Push(w, s);
    });
  }
  void Push(int w, int s) {
    Worker& worker = At(w);
    ps::Gradient gradient = worker.gradient;
    gradient.base_version = worker.versions[static_cast<size_t>(s)];
    worker.up_way[static_cast<size_t>(s)].Send(
        events, random, longest_delay(), [this, w, s, gradient, value = worker.value, life = worker.life] {
          ps::Shard& shard = Job(s).shard();
          auto push = shard.BeginPush({.gradient = gradient, .read_values = true});
          if (gradient.examples > 0) (void)push->AddChunk(ps::At(0), ps::Bytes({value}));
          const int64_t arrival = checker_.Arrived(s, gradient, value);
          shard.FinishPush(std::move(push), [=, this](absl::StatusOr<ps::PushResult> result) {
            if (!result.ok()) {
              checker_.Violation(absl::StrCat("a push on ps/", s, " fails: ", result.status().message()));
              return;
            }
            std::optional<float> left;
            if (result->values.data != nullptr) left = ValueOf(result->values);
            checker_.Answered(arrival, *result, left);
            result->values.data.reset();
            At(w).down_way[static_cast<size_t>(s)].Send(
                events, random, longest_delay(), [=, this, step = gradient.key.step, told = *result] {
                  Act(w, life, [=, this] { OnAnswer(w, s, step, told, left); });
                });
          });
        });
  }
  void OnAnswer(int w, int s, int64_t step, const ps::PushResult& result, std::optional<float> left) {
    Worker& worker = At(w);
    if (!worker.pushing || worker.step != step) return;
    worker.answers[static_cast<size_t>(s)] = result;
    worker.values[static_cast<size_t>(s)] = left;
    for (const auto& answer : worker.answers) {
      if (!answer.has_value()) return;
    }
    worker.pushing = false;
    bool pull = false, rejected = false, finished = false;
    for (size_t i = 0; i < worker.answers.size(); ++i) {
      const ps::PushResult& answer = *worker.answers[i];
      rejected |= answer.outcome == v1::OUTCOME_REJECTED;
      finished |= answer.finished || answer.outcome == v1::OUTCOME_FINISHED;
      pull |= !worker.values[i].has_value();
      pull |= one_log() && answer.version != worker.answers[0]->version;
      worker.versions[i] = answer.version;
    }
    if (rejected) {
      Later(w, Delay(), [this, w] { Start(w); });
    } else if (--worker.steps_left <= 0 || finished) {
      Leave(w);
    } else if (pull) {
      Pull(w);
    } else {
      Compute(w);
    }
  }
  void Leave(int w) {
    const uint64_t incarnation = At(w).incarnation;
    Die(w);
    for (int s = 0; s < rules().servers; ++s) {
      events.After(Delay(), [this, w, s, incarnation] {
        v1::LeaveRequest request;
        request.set_worker(w);
        request.set_incarnation(incarnation);
        request.set_reason(v1::LEAVE_REASON_FINISHED);
        if (s == 0 && checker_.LiveIncarnation(w) == incarnation) checker_.Left(w);
        ServerAt(s).Leave(request, [](absl::StatusOr<v1::LeaveResponse>) {});
      });
    }
  }

  // --- Faults ---

  void BreakStream(int w, size_t s) {
    At(w).up_way[s].Break();
    At(w).down_way[s].Break();
  }
  void Fault() {
    if (events.now() > setting_.chaos_until) return;
    events.After(2 * UpTo(setting_.chaos_every), [this] { Fault(); });
    const int w = static_cast<int>(random.NextBelow(static_cast<uint32_t>(rules().workers)));
    const int s = static_cast<int>(random.NextBelow(static_cast<uint32_t>(rules().servers)));
    Worker& worker = At(w);
    const uint32_t kind = random.NextBelow(8);
    if (kind == 0) {
      if (!worker.up) return;
      ++outcome_.deaths;
      Die(w);
      if (random.NextBelow(4) > 0) events.After(UpTo(2 * kLease), [this, w] { Start(w); });
    } else if (kind == 1) {
      ++outcome_.pauses;
      worker.paused_until = events.now() + UpTo(2.5 * kLease);
    } else if (kind < 6) {
      ++outcome_.breaks;
      BreakStream(w, static_cast<size_t>(s));
      Later(w, Delay(), [this, w, s] {
        const Worker& again = At(w);
        if (again.pushing && !again.answers[static_cast<size_t>(s)].has_value()) Push(w, s);
      });
    } else if (links[static_cast<size_t>(s)] != nullptr) {
      ++outcome_.breaks;
      links[static_cast<size_t>(s)]->Break();
    }
  }

  // --- The servers' clock ---

  void Tick() {
    for (const auto& [w, heard] : heard_) {
      if (heard < events.now() - kLease && checker_.LiveIncarnation(w).has_value()) checker_.Left(w);
    }
    for (const auto& server : servers_) server->Tick();
    events.After(kTick, [this] { Tick(); });
  }

  bool Quiet() const {
    for (const Worker& worker : workers_) {
      if (worker.up) return false;
    }
    return events.now() > setting_.chaos_until + 3 * kLease;  // nobody is to be started again
  }

  Checker::Final FinalState() {
    Checker::Final final;
    for (int s = 0; s < rules().servers; ++s) {
      final.versions.push_back(Version(s));
      final.values.push_back(ValueOf(Job(s).shard().store().current()));
    }
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    ServerAt(0).Connect(request, [&](absl::StatusOr<v1::ConnectResponse> response) {
      if (response.ok()) final.counters = response->counters();
    });
    return final;
  }

  std::vector<std::unique_ptr<ps::Server>> servers_;
  std::vector<std::shared_ptr<ps::ActiveJob>> jobs_;
  std::vector<Worker> workers_;
  std::map<int, double> heard_;  // [worker]: when ps/0 last heard of it
  Outcome outcome_;

 public:
  std::vector<FollowLink*> links;  // [server], null where none
};

void FollowLink::Say(std::function<void(ps::Sequencer&)> what) {
  if (!open_) return;  // said again after the next subscription
  to_leader.Send(world_.events, world_.random, world_.longest_delay(),
                 [this, what = std::move(what)] { what(world_.sequencer()); });
}
void FollowLink::ReportStaged(const ps::Gradient& gradient) {
  Say([this, proto = ToProto(gradient)](ps::Sequencer& s) { s.OnStaged(server_, *ps::FromProto(proto)); });
}
void FollowLink::ReportSums(ps::Sums sums) {
  Say([this, proto = ToProto(sums)](ps::Sequencer& s) { s.OnSums(server_, ps::FromProto(proto)); });
}
void FollowLink::ReportExecuted(int64_t index) {
  Say([this, index](ps::Sequencer& s) { s.OnExecuted(server_, index); });
}

void FollowLink::Open() {
  open_ = true;
  Say([this, next = shard_->next_index()](ps::Sequencer& sequencer) {
    if (!sequencer.Subscribe(server_, next, std::make_shared<FollowSink>(world_, *this))) {
      shard_->Fail(absl::AbortedError("the log is not kept so far back"));
    }
  });
  for (const ps::Gradient& gradient : shard_->StagedGradients()) ReportStaged(gradient);
  if (auto sums = shard_->UnansweredSums()) ReportSums(*std::move(sums));
}

void FollowLink::Break() {
  if (!open_) return;
  open_ = false;
  to_leader.Break();
  from_leader.Break();
  world_.events.After(3 * world_.random.NextUniform(), [this] { Open(); });
}

void FollowLink::Deliver(const v1::Decision& decision) {
  auto entry = ps::FromProto(decision);
  if (!entry.ok() || entry->index != shard_->next_index()) {
    Break();
    return;
  }
  if (const auto* apply = std::get_if<ps::Apply>(&entry->what); apply != nullptr && apply->held)
    world_.Held();
  shard_->Append(*entry);
  shard_->Flush();
}

void FollowSink::Append(const ps::LogEntry& entry) {
  link_.from_leader.Send(world_.events, world_.random, world_.longest_delay(),
                         [&link = link_, decision = ps::ToProto(entry)] { link.Deliver(decision); });
}

}  // namespace

Outcome Simulate(uint64_t seed) {
  return World(seed).Run();
}

}  // namespace cairn::simulation
