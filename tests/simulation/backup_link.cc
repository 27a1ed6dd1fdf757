#include "tests/simulation/backup_link.h"

#include <optional>
#include <utility>
#include <vector>

#include "ps/rpc/backup_session.h"

namespace cairn::simulation {
namespace {

// The middle of one stream; both ends may be gone.
class ReplicationWire final : public Link,
                              public ps::ReplicationSink,
                              public std::enable_shared_from_this<ReplicationWire> {
 public:
  ReplicationWire(Simulation& simulation, Fleet& fleet, int shard, int from,
                  ps::ReplicationStreamHandler& handler)
      : simulation_(simulation),
        fleet_(fleet),
        shard_(shard),
        from_(from),
        away_(from == shard),
        to_(fleet.ProcessOf(shard, away_)),
        handler_(&handler) {}

  void Open() {
    Up([this] {
      const auto server = fleet_.ForBackup(shard_, away_);
      if (server.ok()) {
        session_ = std::make_unique<ps::BackupSession>((*server)->hosted_job(), shared_from_this());
      } else {
        End(server.status());
      }
    });
  }
  void Send(std::vector<ps::NumberedItem> items) {
    Up([this, items = std::move(items)] {
      if (session_ == nullptr) return;
      absl::Status status;
      ps::PutIntoFrames(items, [&](const v1::ReplicationHeader& header, absl::Span<const float> payload,
                                   const std::shared_ptr<const void>&) {
        const absl::Span<const char> run(reinterpret_cast<const char*>(payload.data()),
                                         payload.size() * sizeof(float));
        if (status.ok()) status = session_->OnFrame(header, {&run, run.empty() ? size_t{0} : size_t{1}});
      });
      if (!status.ok()) Close(std::move(status));
    });
  }
  // The serving end goes.
  void Leave() {
    handler_ = nullptr;
    down_.Break();
    EndSession();
  }

  bool Touches(int process) const override { return process == from_ || process == to_; }
  void Break() override {
    up_.Break();
    down_.Break();
    if (!fleet_.IsUp(to_)) session_.reset();  // before its server
    EndSession();
    End(absl::UnavailableError("the connection broke"));
  }

  // --- The backup's end ---
  void Answer(const v1::ReplicationAck& answer) override {
    Down([this, answer] {
      if (handler_ != nullptr) handler_->OnAnswer(answer);
    });
  }
  void Close(absl::Status reason) override {
    EndSession();
    End(std::move(reason));
  }

 private:
  void Up(std::function<void()> what) {
    up_.Send(simulation_.events, simulation_.random, simulation_.setting.longest_delay, std::move(what),
             [this] { return fleet_.AwakeAt(to_); });
  }
  void Down(std::function<void()> what) {
    down_.Send(simulation_.events, simulation_.random, simulation_.setting.longest_delay, std::move(what),
               [this] { return fleet_.AwakeAt(from_); });
  }
  // The first reason stays.
  void End(absl::Status reason) {
    if (std::exchange(ended_, true)) return;
    Down([this, reason = std::move(reason)] {
      if (handler_ != nullptr) std::exchange(handler_, nullptr)->OnClosed(reason);
    });
  }
  // Not now: it may be what is at work. What is on the way to it is lost.
  void EndSession() {
    up_.Break();
    simulation_.events.After(simulation_.Delay(), [self = shared_from_this()] { self->session_.reset(); });
  }

  Simulation& simulation_;
  Fleet& fleet_;
  const int shard_, from_;
  const bool away_;  // where the backup is
  const int to_;
  ps::ReplicationStreamHandler* handler_;
  std::unique_ptr<ps::BackupSession> session_;
  bool ended_ = false;
  Way up_, down_;
};

class BackupLink final : public ps::ReplicationStream {
 public:
  explicit BackupLink(std::shared_ptr<ReplicationWire> wire) : wire_(std::move(wire)) { wire_->Open(); }
  ~BackupLink() override { wire_->Leave(); }
  void Send(std::vector<ps::NumberedItem> items) override { wire_->Send(std::move(items)); }

 private:
  const std::shared_ptr<ReplicationWire> wire_;
};

}  // namespace

std::unique_ptr<ps::ReplicationStream> DialBackup(Simulation& simulation, Fleet& fleet, int shard, int from,
                                                  ps::ReplicationStreamHandler& handler) {
  auto wire = std::make_shared<ReplicationWire>(simulation, fleet, shard, from, handler);
  fleet.Add(wire);
  return std::make_unique<BackupLink>(std::move(wire));
}

}  // namespace cairn::simulation
