#include "tests/simulation/fleet.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/net/grpc/grpc_util.h"
#include "tests/simulation/backup_link.h"
#include "tests/simulation/follow_link.h"

namespace cairn::simulation {
namespace {

constexpr double kProbe = 1;  // seconds, as the client's

}  // namespace

Fleet::Fleet(Simulation& simulation, std::function<void()> on_promoted)
    : simulation_(simulation), on_promoted_(std::move(on_promoted)) {
  processes_.resize(static_cast<size_t>(simulation_.rules().servers));
  for (int process = 0; process < size(); ++process) Restart(process);
}

Fleet::~Fleet() {
  for (int process = 0; process < size(); ++process) Kill(process);
}

ps::Server* Fleet::At(int shard, bool away) const {
  const Process& process = Of(ProcessOf(shard, away));
  return process.up ? process.shards->Find(shard) : nullptr;
}

absl::StatusOr<ps::Server*> Fleet::ForBackup(int shard, bool away) {
  Process& process = Of(ProcessOf(shard, away));
  if (!process.up) return absl::UnavailableError("failed to connect: Connection refused");
  return process.shards->ForBackup(shard);
}

std::unique_ptr<ps::Server> Fleet::MakeServer(int shard, int process, uint64_t incarnation) {
  return std::make_unique<ps::Server>(
      ps::Server::Options{
          .index = shard,
          .host_index = process,
          .incarnation = incarnation,
          .connect_to_leader =
              [this, shard, process](const v1::Job& job, std::shared_ptr<ps::Shard> own, int64_t epoch) {
                return FollowLeader(simulation_, *this, {.shard = shard, .process = process, .epoch = epoch},
                                    job, std::move(own));
              },
          .connect_to_backup =
              [this, process](const std::string&, int of, ps::ReplicationStreamHandler& handler) {
                return DialBackup(simulation_, *this, of, process, handler);
              },
          .replicates_by_calls = true,
          .tables = &tables_},
      simulation_.clock);
}

void Fleet::Restart(int index) {
  Process& process = Of(index);
  if (process.up) return;
  const uint64_t incarnation = ++last_incarnation_ << 32;
  process.shards = std::make_unique<ps::HostedShards>(
      MakeServer(index, index, incarnation), index,
      [this, index, incarnation](int shard) { return MakeServer(shard, index, incarnation); });
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
  process.shards->Shutdown();
  process.shards.reset();
  dying_ = false;
}

void Fleet::Pause(int index, double seconds) {
  Process& process = Of(index);
  if (!process.up || process.paused_until > simulation_.events.now()) return;
  process.paused_until = simulation_.events.now() + seconds;
  // Before what has come meanwhile.
  simulation_.events.At(process.paused_until, [this, index] {
    if (Of(index).up) Of(index).shards->WokeUp();
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
    process.shards->Tick();
  }
}

void Fleet::KeepUpBackups() {
  for (int process = 0; process < size(); ++process) {
    if (!IsUp(process) || AwakeAt(process) > simulation_.events.now()) continue;
    for (const int shard : {process, (process + size() - 1) % size()}) {
      if (ps::Server* const server = Of(process).shards->Find(shard)) server->KeepUpBackups();
    }
  }
}

void Fleet::Promote(ps::Server& backup, const v1::PromoteRequest& request,
                    ps::Reply<v1::PromoteResponse> reply) {
  backup.Promote(request, [this, reply = std::move(reply)](auto response) mutable {
    if (response.ok()) on_promoted_();
    reply(std::move(response));
  });
}

void Fleet::Post(int shard, bool away, std::function<void(ps::Server&)> what) {
  Arrive(simulation_.events.now() + simulation_.Delay(), ProcessOf(shard, away),
         [this, shard, away, what = std::move(what)] {
           if (ps::Server* const server = At(shard, away)) what(*server);
         });
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

// Kept alive by the calls whose answers it waits for.
class Search : public std::enable_shared_from_this<Search> {
 public:
  Search(Fleet& fleet, int shard, const client::ShardSearch::Options& options, OnFound then)
      : fleet_(fleet), shard_(shard), known_(options.known), search_(options), then_(std::move(then)) {}

  void Call() {
    const auto question = search_.question();
    if (!question.has_value()) {
      Conclude();
    } else if (question->call == client::ShardSearch::Question::Call::kConnect) {
      Connect(*question);
    } else {
      Promote(*question);
    }
  }

 private:
  void Connect(const client::ShardSearch::Question& question) {
    v1::ConnectRequest request;
    request.set_protocol(net::kProtocolVersion);
    request.set_server(shard_);
    request.set_client("client");
    request.set_incarnation(known_.incarnation);
    request.set_epoch(known_.epoch);
    request.set_epoch_seal(known_.epoch_seal);
    fleet_.Call<v1::ConnectResponse>(
        shard_, question.away, question.brief ? kProbe : kCall,
        [request](ps::Server& server, auto reply) { server.Connect(request, std::move(reply)); },
        [self = shared_from_this()](auto response) {
          self->search_.OnConnected(std::move(response));
          self->Call();
        });
  }
  void Promote(const client::ShardSearch::Question& question) {
    v1::PromoteRequest request;
    request.set_incarnation(known_.incarnation);
    fleet_.Call<v1::PromoteResponse>(
        shard_, question.away, kProbe,
        [&fleet = fleet_, request](ps::Server& server, auto reply) {
          fleet.Promote(server, request, std::move(reply));
        },
        [self = shared_from_this()](auto response) {
          self->search_.OnPromoted(response.status());
          self->Call();
        });
  }
  void Conclude() {
    const auto& result = search_.result();
    if (result.ok()) {
      then_(Found{.response = result->response, .known = {result->away, result->known()}});
    } else {
      then_(result.status());
    }
  }

  Fleet& fleet_;
  const int shard_;
  const client::ShardSearch::Known known_;
  client::ShardSearch search_;
  const OnFound then_;
};

}  // namespace

void FindAny(Simulation& simulation, Fleet& fleet, int shard, const Known& known, OnFound then) {
  std::make_shared<Search>(
      fleet, shard,
      client::ShardSearch::Options{
          .away = known.away, .has_backup = simulation.rules().copies, .known = known.server},
      std::move(then))
      ->Call();
}

void Describe(Simulation& simulation, Fleet& fleet, int shard, const Known& known, OnFound then) {
  std::make_shared<Search>(fleet, shard,
                           client::ShardSearch::Options{.away = known.away,
                                                        .has_backup = simulation.rules().copies,
                                                        .known = known.server,
                                                        .only_known = known.server.incarnation != 0},
                           std::move(then))
      ->Call();
}

}  // namespace cairn::simulation
