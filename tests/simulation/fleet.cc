#include "tests/simulation/fleet.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/net/grpc_util.h"
#include "tests/simulation/copy_link.h"
#include "tests/simulation/follow_link.h"

namespace cairn::simulation {
namespace {

constexpr double kProbe = 1;  // seconds, as the client's

}  // namespace

Fleet::Fleet(Simulation& simulation) : simulation_(simulation) {
  processes_.resize(static_cast<size_t>(simulation_.rules().servers));
  for (int process = 0; process < size(); ++process) Restart(process);
}

Fleet::~Fleet() {
  for (int process = 0; process < size(); ++process) Kill(process);
}

ps::Server* Fleet::At(int part, bool away) const {
  const Process& process = Of(ProcessOf(part, away));
  if (!process.up) return nullptr;
  return away ? process.copy.get() : process.own.get();
}

std::unique_ptr<ps::Server> Fleet::MakeServer(int part, int process) {
  return std::make_unique<ps::Server>(
      ps::Server::Options{
          .index = part,
          .place = process,
          .incarnation = last_incarnation_ << 32,
          .connect_to_leader =
              [this, part, process](const v1::Job& job, std::shared_ptr<ps::Shard> shard, int64_t epoch) {
                return FollowLeader(simulation_, *this, {.part = part, .process = process, .epoch = epoch},
                                    job, std::move(shard));
              },
          .connect_to_copy =
              [this, process](const std::string&, int of, ps::CopyStreamHandler& handler) {
                return DialCopy(simulation_, *this, of, process, handler);
              },
          .copies_by_calls = true},
      simulation_.clock);
}

void Fleet::Restart(int index) {
  Process& process = Of(index);
  if (process.up) return;
  ++last_incarnation_;
  process.own = MakeServer(index, index);
  if (simulation_.rules().copies) process.copy = MakeServer((index + size() - 1) % size(), index);
  process.paused_until = 0;
  process.up = true;
}

void Fleet::Kill(int index) {
  Process& process = Of(index);
  if (!process.up) return;
  process.up = false;
  dying_ = true;
  const std::vector<std::weak_ptr<Link>> links = links_;
  for (const auto& weak : links) {
    if (const auto link = weak.lock(); link != nullptr && link->Touches(index)) link->Break();
  }
  for (auto* server : {&process.own, &process.copy}) {
    if (*server != nullptr) (*server)->Shutdown();
    server->reset();
  }
  dying_ = false;
}

void Fleet::Pause(int index, double seconds) {
  Process& process = Of(index);
  if (!process.up || process.paused_until > simulation_.events.now()) return;
  process.paused_until = simulation_.events.now() + seconds;
  // Before what has come meanwhile.
  simulation_.events.At(process.paused_until, [this, index] {
    for (ps::Server* server : {Of(index).own.get(), Of(index).copy.get()}) {
      if (server != nullptr) server->WokeUp();
    }
  });
}

void Fleet::BreakOneLink() {
  std::erase_if(links_, [](const auto& link) { return link.expired(); });
  if (links_.empty()) return;
  const auto link = links_[static_cast<size_t>(simulation_.Below(static_cast<int>(links_.size())))].lock();
  link->Break();
}

void Fleet::Tick() {
  for (Process& process : processes_) {
    if (!process.up || process.paused_until > simulation_.events.now()) continue;
    process.own->Tick();
    if (process.copy != nullptr) process.copy->Tick();
  }
}

void Fleet::KeepUpCopies() {
  for (Process& process : processes_) {
    if (!process.up || process.paused_until > simulation_.events.now()) continue;
    process.own->KeepUpCopies();
    process.copy->KeepUpCopies();
  }
}

void Fleet::Arrive(double at, int process, std::function<void()> what) {
  simulation_.events.At(at, [this, process, what = std::move(what)] {
    if (IsUp(process) && AwakeAt(process) > simulation_.events.now()) {
      Arrive(AwakeAt(process), process, what);
    } else {
      what();
    }
  });
}

namespace {

// One look for a part. Kept alive by what it waits for.
class Search : public std::enable_shared_from_this<Search> {
 public:
  Search(Simulation& simulation, Fleet& fleet, int part, const Known& known,
         std::function<void(absl::StatusOr<Found>)> then)
      : simulation_(simulation), fleet_(fleet), part_(part), known_(known), then_(std::move(then)) {}

  void Begin() {
    const bool has_copy = simulation_.rules().copies;
    Handshake(known_.away, has_copy && known_.incarnation != 0 ? kProbe : kCall, [this](auto response) {
      first_ = std::move(response);
      if (first_.ok() && Serves(*first_)) {
        then_(Found{*first_, known_.away});
      } else if (simulation_.rules().copies && (first_.ok() || IsTransient(first_.status()))) {
        LookElsewhere();
      } else {
        Conclude(absl::NotFoundError("there is no other place"));
      }
    });
  }

 private:
  static bool IsTransient(const absl::Status& status) {
    return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  }
  bool Serves(const v1::ConnectResponse& response) const {
    if (response.state() == v1::STATE_COPY) return false;
    if (known_.incarnation == 0) return response.state() != v1::STATE_EMPTY;
    return response.incarnation() == known_.incarnation && response.epoch() >= known_.epoch;
  }
  void Handshake(bool away, double limit, std::function<void(absl::StatusOr<v1::ConnectResponse>)> then) {
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_server(part_);
    request.set_client("client");
    request.set_incarnation(known_.incarnation);
    request.set_epoch(known_.epoch);
    fleet_.Ask<v1::ConnectResponse>(
        part_, away, limit,
        [request](ps::Server& server, auto reply) { server.Connect(request, std::move(reply)); },
        [self = shared_from_this(), then = std::move(then)](auto response) { then(std::move(response)); });
  }
  void LookElsewhere() {
    Handshake(!known_.away, kProbe, [this](auto response) {
      const bool same =
          response.ok() && (known_.incarnation == 0 || response->incarnation() == known_.incarnation);
      if (!same || response->state() != v1::STATE_COPY) {
        Settle(std::move(response));
        return;
      }
      v1::PromoteRequest request;
      request.set_incarnation(known_.incarnation);
      fleet_.Ask<v1::PromoteResponse>(
          part_, !known_.away, kProbe,
          [request](ps::Server& server, auto reply) { server.Promote(request, std::move(reply)); },
          [this, self = shared_from_this()](auto promoted) {
            if (promoted.ok()) {
              Handshake(!known_.away, kProbe, [this](auto again) { Settle(std::move(again)); });
            } else {
              Conclude(promoted.status());
            }
          });
    });
  }
  void Settle(absl::StatusOr<v1::ConnectResponse> elsewhere) {
    if (elsewhere.ok() && Serves(*elsewhere)) {
      then_(Found{*std::move(elsewhere), !known_.away});
    } else {
      Conclude(elsewhere.ok() ? absl::NotFoundError("it is not there") : elsewhere.status());
    }
  }
  // It is served at neither place.
  void Conclude(const absl::Status& elsewhere) {
    if (known_.incarnation == 0) {
      if (IsTransient(elsewhere)) {
        then_(elsewhere);
      } else if (first_.ok()) {
        then_(Found{*first_, known_.away});
      } else {
        then_(first_.status());
      }
      return;
    }
    if (!first_.ok() && IsTransient(first_.status())) {
      then_(first_.status());
    } else if (IsTransient(elsewhere)) {
      then_(elsewhere);
    } else {
      then_(absl::AbortedError("it has been restarted and has lost its variables"));
    }
  }

  Simulation& simulation_;
  Fleet& fleet_;
  const int part_;
  const Known known_;
  const std::function<void(absl::StatusOr<Found>)> then_;
  absl::StatusOr<v1::ConnectResponse> first_;
};

}  // namespace

void Find(Simulation& simulation, Fleet& fleet, int part, const Known& known,
          std::function<void(absl::StatusOr<Found>)> then) {
  std::make_shared<Search>(simulation, fleet, part, known, std::move(then))->Begin();
}

}  // namespace cairn::simulation
