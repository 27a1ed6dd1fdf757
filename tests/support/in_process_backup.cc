#include "tests/support/in_process_backup.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/system/thread.h"
#include "ps/rpc/backup_session.h"

namespace cairn::test {
namespace {

// The wire of one stream. The backup's server may keep it longer than both ends exist.
class ReplicationWire final : public ps::ReplicationSink {
 public:
  using Up = std::vector<ps::NumberedItem>;

  void Answer(const v1::ReplicationAck& answer) override { down.Push(answer); }
  // Only the first reason is kept.
  void Close(absl::Status reason) override {
    {
      MutexLock lock(mutex_);
      if (!reason_.has_value()) reason_ = std::move(reason);
    }
    up.Close();
    down.Close();
  }
  absl::Status reason() {
    MutexLock lock(mutex_);
    return reason_.value_or(absl::OkStatus());
  }

  Pipe<Up> up;
  Pipe<v1::ReplicationAck> down;

 private:
  Mutex mutex_;
  std::optional<absl::Status> reason_ ABSL_GUARDED_BY(mutex_);
};

class InProcessReplicationStream final : public ps::ReplicationStream {
 public:
  InProcessReplicationStream(const ServerSlot& slot, DelayOptions delay,
                             ps::ReplicationStreamHandler& handler)
      : server_(slot.Get()), wire_(std::make_shared<ReplicationWire>()) {
    if (server_ == nullptr) wire_->Close(absl::UnavailableError("failed to connect: Connection refused"));
    up_ = Thread("to-backup", [this, delay] { CarryUp(delay); });
    down_ = Thread("from-backup", [this, delay, &handler] {
      Delay wait(delay.seed, 1, delay.longest);
      while (const std::optional<v1::ReplicationAck> answer = wire_->down.Pop()) {
        wait.Wait();
        handler.OnAnswer(*answer);
      }
      handler.OnClosed(wire_->reason());
    });
  }
  ~InProcessReplicationStream() override {
    wire_->Close(absl::UnavailableError("the stream was closed"));
    up_.Join();
    down_.Join();
  }

  void Send(std::vector<ps::NumberedItem> items) override { wire_->up.Push(std::move(items)); }

 private:
  void CarryUp(DelayOptions delay) {
    if (server_ == nullptr) return;
    ps::BackupSession session(server_->hosted_job(), wire_);
    Delay wait(delay.seed, 0, delay.longest);
    while (const std::optional<ReplicationWire::Up> up = wire_->up.Pop()) {
      wait.Wait();
      absl::Status status;
      ps::PutIntoFrames(*up, [&](const v1::ReplicationHeader& header, absl::Span<const float> payload,
                                 const std::shared_ptr<const void>&) {
        const absl::Span<const char> run(reinterpret_cast<const char*>(payload.data()),
                                         payload.size() * sizeof(float));
        if (status.ok()) status = session.OnFrame(header, {&run, run.empty() ? size_t{0} : size_t{1}});
      });
      if (!status.ok()) wire_->Close(std::move(status));
    }
  }

  const std::shared_ptr<ps::Server> server_;  // null: it cannot be reached
  const std::shared_ptr<ReplicationWire> wire_;
  Thread up_, down_;
};

}  // namespace

std::unique_ptr<ps::ReplicationStream> DialBackupInProcess(const ServerSlot& slot, DelayOptions delay,
                                                           ps::ReplicationStreamHandler& handler) {
  return std::make_unique<InProcessReplicationStream>(slot, delay, handler);
}

}  // namespace cairn::test
