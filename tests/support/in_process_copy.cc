#include "tests/support/in_process_copy.h"

#include <optional>
#include <utility>

#include "common/core/thread.h"
#include "ps/copy_session.h"

namespace cairn::test {
namespace {

// The wire of one stream. The backup's server may keep it longer than both ends exist.
class CopyWire final : public ps::CopySink {
 public:
  struct Up {
    uint64_t number;
    ps::CopyItem item;
  };

  void Answer(const v1::CopyAnswer& answer) override { down.Push(answer); }
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
  Pipe<v1::CopyAnswer> down;

 private:
  Mutex mutex_;
  std::optional<absl::Status> reason_ ABSL_GUARDED_BY(mutex_);
};

class InProcessCopyStream final : public ps::CopyStream {
 public:
  InProcessCopyStream(const ServerSlot& slot, DelayOptions delay, ps::CopyStreamHandler& handler)
      : server_(slot.Get()), wire_(std::make_shared<CopyWire>()) {
    if (server_ == nullptr) wire_->Close(absl::UnavailableError("failed to connect: Connection refused"));
    up_ = Thread("to-copy", [this, delay] { CarryUp(delay); });
    down_ = Thread("from-copy", [this, delay, &handler] {
      Delay wait(delay.seed, 1, delay.longest);
      while (const std::optional<v1::CopyAnswer> answer = wire_->down.Pop()) {
        wait.Wait();
        handler.OnAnswer(*answer);
      }
      handler.OnClosed(wire_->reason());
    });
  }
  ~InProcessCopyStream() override {
    wire_->Close(absl::UnavailableError("the stream was closed"));
    up_.Join();
    down_.Join();
  }

  void Send(uint64_t number, ps::CopyItem item) override { wire_->up.Push({number, std::move(item)}); }

 private:
  void CarryUp(DelayOptions delay) {
    if (server_ == nullptr) return;
    ps::CopySession session(*server_, wire_);
    Delay wait(delay.seed, 0, delay.longest);
    while (const std::optional<CopyWire::Up> up = wire_->up.Pop()) {
      wait.Wait();
      absl::Status status;
      ps::SplitIntoFrames(
          up->number, up->item,
          [&](const v1::CopyHeader& header, net::FloatSpans payload, const std::shared_ptr<const void>&) {
            std::vector<absl::Span<const char>> runs;
            for (const auto& run : payload) {
              runs.emplace_back(reinterpret_cast<const char*>(run.data()), run.size() * sizeof(float));
            }
            if (status.ok()) status = session.OnFrame(header, runs);
          });
      if (!status.ok()) wire_->Close(std::move(status));
    }
  }

  const std::shared_ptr<ps::Server> server_;  // null: it cannot be reached
  const std::shared_ptr<CopyWire> wire_;
  Thread up_, down_;
};

}  // namespace

std::unique_ptr<ps::CopyStream> DialCopyInProcess(const ServerSlot& slot, DelayOptions delay,
                                                  ps::CopyStreamHandler& handler) {
  return std::make_unique<InProcessCopyStream>(slot, delay, handler);
}

}  // namespace cairn::test
