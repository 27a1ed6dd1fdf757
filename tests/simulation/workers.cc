#include "tests/simulation/workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/transport/connection.h"
#include "common/net/grpc/grpc_util.h"

namespace cairn::simulation {
namespace {

constexpr double kHeartbeat = kLease / 4;

int64_t GenerationAt(ps::Server& server, int shard) {
  int64_t generation = -1;
  v1::ConnectRequest request;
  request.set_protocol(net::kProtocolVersion);
  request.set_server(shard);
  server.Connect(request, [&](absl::StatusOr<v1::ConnectResponse> response) {
    if (response.ok() && response->state() == v1::STATE_READY) generation = response->job().generation();
  });
  return generation;
}

}  // namespace

Workers::Workers(Simulation& simulation, Fleet& fleet, Histories& histories)
    : simulation_(simulation), fleet_(fleet), histories_(histories) {
  workers_.resize(static_cast<size_t>(rules().workers));
  heard_.resize(workers_.size());
}

void Workers::Begin() {
  for (int w = 0; w < rules().workers; ++w) {
    Worker& worker = At(w);
    worker.steps_left = simulation_.setting.steps;
    worker.up_way.resize(static_cast<size_t>(num_servers()));
    worker.down_way.resize(worker.up_way.size());
    worker.pushes.resize(worker.up_way.size());
    const bool late = simulation_.Below(10) == 0;
    simulation_.events.After(simulation_.UpTo(late ? 60 : 3), [this, w] { Start(w); });
  }
}

bool Workers::any_up() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.up; });
}

void Workers::Expire(double now, bool absent_too) {
  Checker& checker = histories_.newest();
  const double lease = rules().copies ? kLease / 2 : kLease;  // its end is noticed and reported late
  for (int w = 0; w < rules().workers; ++w) {
    const bool lives = checker.LiveIncarnation(w).has_value();
    if (lives && heard_[static_cast<size_t>(w)] < now - lease) checker.Left(w);
    if (!lives && absent_too) checker.Left(w);
  }
}

void Workers::Act(int w, int64_t life, std::function<void()> what) {
  Worker& worker = At(w);
  if (worker.life != life) return;
  if (simulation_.events.now() < worker.paused_until) {
    simulation_.events.At(worker.paused_until,
                          [this, w, life, what = std::move(what)] { Act(w, life, what); });
  } else {
    what();
  }
}

void Workers::Later(int w, double seconds, std::function<void()> what) {
  simulation_.events.After(
      seconds, [this, w, life = At(w).life, what = std::move(what)] { Act(w, life, std::move(what)); });
}

// --- Its life ---

void Workers::Die(int w) {
  Worker& worker = At(w);
  ++worker.life;
  worker.up = worker.pushing = false;
  LeftUnseen(w);
  for (int s = 0; s < num_servers(); ++s) BreakStream(w, s);
}

void Workers::Vanish(int w) {
  std::fill(At(w).pushes.begin(), At(w).pushes.end(), 0);
  Die(w);
}

void Workers::Start(int w) {
  ++At(w).process;
  At(w).known.assign(static_cast<size_t>(num_servers()), {});
  Rejoin(w);
}

void Workers::Rejoin(int w) {
  Die(w);
  Worker& worker = At(w);
  worker.up = true;
  worker.step = 0;
  worker.incarnation = 0;
  worker.paused_until = 0;
  worker.work.Clear();
  worker.layouts.assign(worker.known.size(), 0);
  worker.looking.assign(worker.known.size(), false);
  if (worker.steps_left <= 0) worker.steps_left = 1;
  FindServers(w);
}

void Workers::Learn(int w, int s, const Found& found) {
  Known& known = At(w).known[static_cast<size_t>(s)];
  if (found.known.server.IsBefore(known.server)) return;
  if (known.away != found.known.away) ++At(w).moves;
  known = found.known;
}

void Workers::FindServers(int w) {
  auto left = std::make_shared<int>(num_servers());
  for (int s = 0; s < num_servers(); ++s) {
    FindAny(simulation_, fleet_, s, At(w).known[static_cast<size_t>(s)],
            As<absl::StatusOr<Found>>(w, [this, w, s, left](absl::StatusOr<Found> found) {
              if (*left < 0) return;
              if (!found.ok()) {
                *left = -1;
                if (!client::IsTransient(found.status())) EndForGood(w, found.status());
                Later(w, 1, [this, w] { FindServers(w); });
                return;
              }
              At(w).known[static_cast<size_t>(s)].server = {};  // any is the right one
              Learn(w, s, *found);
              if (--*left == 0) AwaitJob(w);
            }));
  }
}

// All are ready, in one generation of the job.
void Workers::AwaitJob(int w) {
  auto described = std::make_shared<std::vector<v1::ConnectResponse>>(static_cast<size_t>(num_servers()));
  auto left = std::make_shared<int>(num_servers());
  for (int s = 0; s < num_servers(); ++s) {
    Describe(simulation_, fleet_, s, At(w).known[static_cast<size_t>(s)],
             As<absl::StatusOr<Found>>(w, [=, this](absl::StatusOr<Found> found) {
               if (*left < 0) return;
               if (absl::IsAborted(found.status())) {
                 *left = -1;
                 Later(w, 1, [this, w] { Rejoin(w); });
                 return;
               }
               if (found.ok()) {
                 Learn(w, s, *found);
                 (*described)[static_cast<size_t>(s)] = found->response;
               }
               if (--*left > 0) return;
               Worker& worker = At(w);
               worker.generation = described->front().job().generation();
               bool ready = true;
               for (size_t i = 0; i < described->size(); ++i) {
                 const v1::ConnectResponse& each = (*described)[i];
                 ready &= each.state() == v1::STATE_READY && each.job().generation() == worker.generation;
                 worker.layouts[i] = each.layout();
               }
               if (ready) {
                 Join(w, 0);
               } else {
                 Later(w, 1, [this, w] { AwaitJob(w); });
               }
             }));
  }
}

void Workers::Join(int w, int s) {
  v1::JoinRequest request;
  request.set_worker(w);
  request.set_task(absl::StrCat("worker/", w));
  request.set_incarnation(At(w).incarnation);
  request.set_incarnation_seal(At(w).incarnation_seal);
  request.mutable_process()->set_id(At(w).process);
  fleet_.Call<v1::JoinResponse>(
      s, away(w, s), kCall,
      [this, w, s, request, life = At(w).life](ps::Server& server, auto reply) {
        if (s == 0) {
          JoinFirst(w, life, server, request, std::move(reply));
        } else {
          server.Join(request, std::move(reply));
        }
      },
      As<absl::StatusOr<v1::JoinResponse>>(w, [this, w, s](absl::StatusOr<v1::JoinResponse> response) {
        if (!response.ok()) {
          Persist(w, response.status(), [this, w] {
            At(w).incarnation = 0;
            Join(w, 0);
          });
          return;
        }
        if (simulation_.Below(20) == 0) {  // the answer is lost with the worker
          Later(w, 2, [this, w] { Start(w); });
          return;
        }
        Worker& worker = At(w);
        if (s == 0) {
          worker.incarnation = response->incarnation();
          worker.incarnation_seal = response->incarnation_seal();
        }
        if (s == 0) {
          worker.work = response->work();
          worker.position = response->position();
        }
        if (s + 1 < num_servers()) {
          Join(w, s + 1);
        } else {
          Heartbeat(w);
          Pull(w);
        }
      }));
}

void Workers::JoinFirst(int w, int64_t life, ps::Server& server, const v1::JoinRequest& request,
                        ps::Reply<v1::JoinResponse> reply) {
  double& heard = heard_[static_cast<size_t>(w)];
  const double heard_before = std::exchange(heard, simulation_.events.now());
  // This ends the previous incarnation, unless the server waits to see whether its process still runs.
  const int64_t generation = GenerationAt(server, 0);
  std::optional<uint64_t> life_before;
  if (generation >= 0) {
    life_before = histories_.Of(generation).LiveIncarnation(w);
    histories_.Of(generation).Left(w);
  }
  auto refused = std::make_shared<bool>(false);
  server.Join(request, [this, w, life, refused, reply = std::move(reply)](auto response) mutable {
    *refused = !response.ok();
    if (response.ok() && !fleet_.dying()) {
      histories_.OfIncarnation(response->incarnation()).Joined(w, response->incarnation(), response->clock());
      const bool told_late = simulation_.events.now() - heard_[static_cast<size_t>(w)] > kHeartbeat;
      if (told_late || At(w).life != life) LeftUnseen(w);
    }
    reply(std::move(response));
  });
  if (!*refused) return;
  heard = heard_before;
  if (life_before.has_value()) histories_.Of(generation).StillLives(w, *life_before);
}

void Workers::Heartbeat(int w) {
  Later(w, kHeartbeat, [this, w] {
    for (int s = 0; s < num_servers(); ++s) {
      v1::HeartbeatRequest request;
      request.set_worker(w);
      request.set_incarnation(At(w).incarnation);
      fleet_.Call<v1::HeartbeatResponse>(
          s, away(w, s), kHeartbeat,
          [this, w, s, request](ps::Server& server, auto reply) {
            server.Heartbeat(request, [&](absl::StatusOr<v1::HeartbeatResponse> response) {
              if (response.ok() && s == 0) {
                heard_[static_cast<size_t>(w)] = simulation_.events.now();
                Checker& checker = histories_.OfIncarnation(request.incarnation());
                if (checker.LiveIncarnation(w) != request.incarnation() && !rules().copies) {
                  checker.Violation(absl::StrCat("worker ", w, " is heard of, though it has left"));
                }
              }
              reply(std::move(response));
            });
          },
          As<absl::StatusOr<v1::HeartbeatResponse>>(
              w, [this, w, s](absl::StatusOr<v1::HeartbeatResponse> response) {
                if (absl::IsAborted(response.status())) {
                  Rejoin(w);
                } else if (!response.ok() && simulation_.setting.server_faults != ServerFaults::kNone) {
                  Recover(w, s, absl::UnavailableError("a heartbeat failed"));
                }
              }));
    }
    Heartbeat(w);
  });
}

void Workers::EndForGood(int w, const absl::Status& failure) {
  histories_.newest().Violation(absl::StrCat("worker ", w, " ends for good: ", failure.ToString()));
}

void Workers::Persist(int w, const absl::Status& failure, std::function<void()> again) {
  auto left = std::make_shared<int>(num_servers());
  for (int s = 0; s < num_servers(); ++s) {
    Describe(simulation_, fleet_, s, At(w).known[static_cast<size_t>(s)],
             As<absl::StatusOr<Found>>(w, [=, this, moves = At(w).moves](absl::StatusOr<Found> found) {
               if (*left < 0) return;
               if (absl::IsAborted(found.status())) {
                 *left = -1;
                 Rejoin(w);
                 return;
               }
               if (found.ok()) Learn(w, s, *found);
               if (--*left > 0) return;
               if (client::IsWorthRepeating(failure) || absl::IsDeadlineExceeded(failure) ||
                   At(w).moves != moves) {
                 Later(w, 0.5, again);
               } else if (absl::IsAborted(failure)) {
                 Rejoin(w);
               } else {
                 EndForGood(w, failure);
               }
             }));
  }
}

void Workers::Recover(int w, int s, const absl::Status& failure) {
  const auto index = static_cast<size_t>(s);
  Worker& worker = At(w);
  if (worker.looking[index]) return;
  worker.looking[index] = true;
  Describe(simulation_, fleet_, s, worker.known[index],
           As<absl::StatusOr<Found>>(w, [this, w, s, index, failure](absl::StatusOr<Found> found) {
             Worker& looker = At(w);
             looker.looking[index] = false;
             if (absl::IsAborted(found.status()) ||
                 (found.ok() && found->response.layout() != looker.layouts[index])) {
               Rejoin(w);
               return;
             }
             if (!found.ok()) {
               Later(w, 0.5, [this, w, s, failure] { Recover(w, s, failure); });
               return;
             }
             const bool moved = looker.known[index].away != found->known.away;
             Learn(w, s, *found);
             if (!moved && !client::IsWorthRepeating(failure)) {
               if (!absl::IsAborted(failure)) EndForGood(w, failure);
               Rejoin(w);
             } else if (looker.pushing && !looker.answers[index].has_value()) {
               BreakStream(w, s);
               Push(w, s);
             }
           }));
}

// --- Faults ---

void Workers::BreakStream(int w, int s) {
  Worker& worker = At(w);
  worker.up_way[static_cast<size_t>(s)].Break();
  worker.down_way[static_cast<size_t>(s)].Break();
  if (std::exchange(worker.pushes[static_cast<size_t>(s)], 0) < 2) return;  // as ps/rpc/session.cc
  fleet_.Post(s, away(w, s), [w, incarnation = worker.incarnation](ps::Server& server) {
    server.PushStreamBroke(w, incarnation);
  });
}

void Workers::ProcessDied(int process) {
  for (int w = 0; w < static_cast<int>(workers_.size()); ++w) {
    for (int s = 0; s < num_servers(); ++s) {
      if (!At(w).up || At(w).known.empty() || fleet_.ProcessOf(s, away(w, s)) != process) continue;
      BreakStream(w, s);
      if (At(w).pushing)
        Later(w, Delay(), [this, w, s] { Recover(w, s, absl::UnavailableError("its process died")); });
    }
  }
}

void Workers::BreakOne() {
  const int w = simulation_.Below(rules().workers), s = simulation_.Below(num_servers());
  BreakStream(w, s);
  Later(w, Delay(), [this, w, s] {
    const Worker& again = At(w);
    if (again.pushing && !again.answers[static_cast<size_t>(s)].has_value()) Push(w, s);
  });
}

bool Workers::KillOne() {
  const int w = simulation_.Below(rules().workers);
  if (!At(w).up) return false;
  const bool joined = At(w).incarnation != 0;
  if (simulation_.Below(4) == 0) {
    Vanish(w);
  } else {
    Die(w);
  }
  // The job waits for a worker that has never joined, and some worker must use dynamically assigned data.
  const bool needed = w == 0 || !joined || simulation_.setting.wait_for_return;
  if (needed || simulation_.Below(4) > 0) {
    simulation_.events.After(simulation_.UpTo(2 * kLease), [this, w] { Start(w); });
  }
  return true;
}

void Workers::PauseOne(double seconds) {
  const int w = simulation_.Below(rules().workers);
  At(w).paused_until = simulation_.events.now() + seconds;
  LeftUnseen(w);
}

// With backups, its lease may expire on a server that is promoted meanwhile.
void Workers::LeftUnseen(int w) {
  if (rules().copies && histories_.begun()) histories_.newest().Left(w);
}

}  // namespace cairn::simulation
