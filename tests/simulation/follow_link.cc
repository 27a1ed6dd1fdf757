#include "tests/simulation/follow_link.h"

#include <string>
#include <utility>

#include "ps/log/follow_proto.h"
#include "ps/rpc/received_decision.h"

namespace cairn::simulation {
namespace {

class FollowLink final : public Link, public std::enable_shared_from_this<FollowLink> {
 public:
  FollowLink(Simulation& simulation, Fleet& fleet, const Follower& follower, const v1::Job& job,
             std::shared_ptr<ps::Shard> shard)
      : simulation_(simulation),
        fleet_(fleet),
        follower_(follower),
        run_id_(job.run_id()),
        generation_(job.generation()),
        shard_(std::move(shard)) {}

  bool Touches(int process) const override {
    return process == follower_.process || process == fleet_.ProcessOf(0, away_);
  }
  void Break() override {
    if (!open_) return;
    open_ = false;
    to_leader_.Break();
    from_leader_.Break();
    Unsubscribe();
    if (simulation_.rules().copies) away_ = !away_;
    Later(simulation_.UpTo(3), [this] { Open(); });
  }
  void Unsubscribe() {
    if (stream_ != nullptr) *std::exchange(stream_, nullptr) = false;
    if (const auto leader = leader_.lock()) leader->sequencer()->Unsubscribe(follower_.shard, sink_.get());
    leader_.reset();
    sink_.reset();
  }

  void Open() {
    open_ = true;
    Send([this, next = shard_->next_index()] { Subscribe(next); });
    for (const ps::Gradient& gradient : shard_->StagedGradients()) Staged(gradient);
    if (auto sums = shard_->UnansweredSums()) Summed(*std::move(sums));
    if (simulation_.rules().copies) Watch();
  }
  void Staged(const ps::Gradient& gradient) {
    Post([this, proto = ps::ToProto(gradient)](ps::Sequencer& s) {
      s.OnStaged(follower_.shard, *ps::FromProto(proto));
    });
  }
  void Summed(const ps::Sums& sums) {
    Post([this, proto = ps::ToProto(sums)](ps::Sequencer& s) {
      s.OnSums(follower_.shard, *ps::FromProto(proto));
    });
  }
  void Executed(int64_t index) {
    Post([this, index](ps::Sequencer& s) { s.OnExecuted(follower_.shard, index); });
  }
  void Waiting(int64_t index) {
    Post([this, index](ps::Sequencer& s) { s.OnWaiting(follower_.shard, index); });
  }
  // Its job is over.
  void End() {
    open_ = false;
    to_leader_.Break();
    from_leader_.Break();
    Unsubscribe();
    over_ = true;
  }

 private:
  class Sink;

  void Later(double seconds, std::function<void()> what) {
    simulation_.events.After(seconds, [weak = weak_from_this(), what = std::move(what)] {
      const auto self = weak.lock();
      if (self == nullptr || self->over_) return;
      const double standing = self->fleet_.AwakeAt(self->follower_.process) - self->simulation_.events.now();
      if (standing > 0) {
        self->Later(standing, what);
      } else {
        what();
      }
    });
  }
  void Send(std::function<void()> what) {
    if (!open_) return;  // sent again after the next subscription
    to_leader_.Send(simulation_.events, simulation_.random, simulation_.setting.longest_delay,
                    std::move(what), [this] { return fleet_.AwakeAt(fleet_.ProcessOf(0, away_)); });
  }
  void Post(std::function<void(ps::Sequencer&)> what) {
    Send([this, what = std::move(what)] {
      if (const auto leader = leader_.lock()) what(*leader->sequencer());
    });
  }
  void Subscribe(int64_t next);
  // Checks whether the leader's backup has been promoted.
  void Watch() {
    Later(1, [this] {
      if (!open_) return;
      const bool other = !away_;
      ps::Server* const server = fleet_.At(0, other);
      const bool awake = fleet_.AwakeAt(fleet_.ProcessOf(0, other)) <= simulation_.events.now();
      if (server != nullptr && awake && server->ready() && server->JobToFollow(run_id_, generation_).ok()) {
        Break();
      } else {
        Watch();
      }
    });
  }
  void Deliver(const v1::Decision& decision) {
    if (!ps::Follow(decision, *shard_).ok()) {
      Break();
      return;
    }
    if (decision.apply().deferred()) ++simulation_.deferred;
    shard_->Flush();
  }

  Simulation& simulation_;
  Fleet& fleet_;
  const Follower follower_;
  const std::string run_id_;
  const int64_t generation_;
  const std::shared_ptr<ps::Shard> shard_;
  bool open_ = false, over_ = false;
  bool away_ = false;  // where the leader is looked for
  std::weak_ptr<ps::ActiveJob> leader_;
  std::shared_ptr<ps::LogSink> sink_;
  std::shared_ptr<bool> stream_;  // whether it is open
  Way to_leader_, from_leader_;
};

class FollowLink::Sink final : public ps::LogSink {
 public:
  Sink(std::shared_ptr<FollowLink> link, std::shared_ptr<bool> open) : link_(link), open_(std::move(open)) {}
  void Append(const ps::LogEntry& entry) override {
    const auto link = link_.lock();
    if (link == nullptr || !*open_) return;
    link->from_leader_.Send(
        link->simulation_.events, link->simulation_.random, link->simulation_.setting.longest_delay,
        [link = link.get(), decision = ps::ToProto(entry)] { link->Deliver(decision); },
        [link = link.get()] { return link->fleet_.AwakeAt(link->follower_.process); });
  }
  void Flush() override {}
  void End(const absl::Status&) override {
    const auto link = link_.lock();
    if (link != nullptr && *open_) link->Break();
  }

 private:
  const std::weak_ptr<FollowLink> link_;
  const std::shared_ptr<bool> open_;
};

void FollowLink::Subscribe(int64_t next) {
  ps::Server* const server = fleet_.At(0, away_);
  if (server == nullptr) {
    Break();
    return;
  }
  const auto job = server->JobToFollow(run_id_, generation_);
  if (!job.ok()) {
    Break();
    return;
  }
  leader_ = *job;
  stream_ = std::make_shared<bool>(true);
  sink_ = std::make_shared<Sink>(shared_from_this(), stream_);
  const absl::Status status = (*job)->sequencer()->Subscribe(follower_.shard, next, sink_, follower_.epoch);
  if (absl::IsFailedPrecondition(status)) {
    shard_->Fail(absl::AbortedError(status.message()));
  } else if (!status.ok()) {
    Break();
  }
}

class FollowPort final : public ps::SequencerPort {
 public:
  explicit FollowPort(std::shared_ptr<FollowLink> link) : link_(std::move(link)) { link_->Open(); }
  ~FollowPort() override { link_->End(); }
  void ReportStaged(const ps::Gradient& gradient) override { link_->Staged(gradient); }
  void ReportSums(ps::Sums sums) override { link_->Summed(sums); }
  void ReportExecuted(int64_t index) override { link_->Executed(index); }
  void ReportWaiting(int64_t index) override { link_->Waiting(index); }

 private:
  const std::shared_ptr<FollowLink> link_;
};

}  // namespace

std::unique_ptr<ps::SequencerPort> FollowLeader(Simulation& simulation, Fleet& fleet,
                                                const Follower& follower, const v1::Job& job,
                                                std::shared_ptr<ps::Shard> shard) {
  auto link = std::make_shared<FollowLink>(simulation, fleet, follower, job, std::move(shard));
  fleet.Add(link);
  return std::make_unique<FollowPort>(std::move(link));
}

}  // namespace cairn::simulation
