#include "ps/rpc/backup_receiver.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/replicate.pb.h"
#include "ps/rpc/backup_session.h"

namespace cairn::ps {
namespace {

class BackupStreamSink final : public ReplicationSink {
 public:
  explicit BackupStreamSink(std::shared_ptr<net::DataStream> stream) : stream_(std::move(stream)) {}

  void Answer(const v1::ReplicationAck& answer) override {
    stream_->Send(answer.SerializeAsString(), {}, nullptr);
  }
  void Close(absl::Status reason) override { stream_->Finish(std::move(reason)); }

 private:
  const std::shared_ptr<net::DataStream> stream_;
};

class BackupReceiver final : public net::DataReceiver {
 public:
  BackupReceiver(HostedJob& hosted, std::shared_ptr<net::DataStream> stream)
      : session_(hosted, std::make_shared<BackupStreamSink>(std::move(stream))) {}

  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) override {
    if (!header_.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      return absl::InvalidArgumentError("frame: malformed header");
    }
    return session_.DestinationFor(header_, bytes);
  }
  absl::Status Complete(net::Payload payload) override { return session_.OnFrame(header_, payload); }
  void OnEnd(const absl::Status&) override {}

 private:
  BackupSession session_;
  v1::ReplicationHeader header_;  // of the message that is being received
};

}  // namespace

std::unique_ptr<net::DataReceiver> ReceiveForBackup(HostedJob& hosted,
                                                    std::shared_ptr<net::DataStream> stream) {
  return std::make_unique<BackupReceiver>(hosted, std::move(stream));
}

}  // namespace cairn::ps
