#include "ps/rpc/backup_dialer.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/log.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/data_channel/data_endpoint.h"
#include "common/net/data_channel/stream/stream.h"
#include "common/net/data_channel/transport_choice.h"
#include "common/system/thread.h"
#include "ps/rpc/backup_session.h"
#include "ps/rpc/replicate.h"

namespace cairn::ps {
namespace {

using net::TransportChoice;

// Where a backup is.
struct Place {
  std::string address;  // of its process, for gRPC
  int shard = 0;
};

// Sends one frame, with a large payload in fragments that suit the stream.
void SendOn(net::DataStream& stream, const v1::ReplicationHeader& header, absl::Span<const float> payload,
            const std::shared_ptr<const void>& owner) {
  if (payload.empty()) return stream.Send(header.SerializeAsString(), {}, nullptr);
  const net::PayloadRoute route = stream.RouteOf({&payload, 1});
  v1::ReplicationHeader fragment_header;
  *fragment_header.mutable_floats() = header.floats();
  const auto most = static_cast<size_t>(route.fragment_floats);
  for (; payload.size() > most; payload.remove_prefix(most)) {
    const absl::Span<const float> fragment = payload.first(most);
    stream.Send(fragment_header.SerializeAsString(), {&fragment, 1}, owner, route);
    fragment_header.mutable_floats()->set_offset(fragment_header.floats().offset() + route.fragment_floats);
  }
  v1::ReplicationHeader last = header;
  last.mutable_floats()->set_offset(fragment_header.floats().offset());
  stream.Send(last.SerializeAsString(), {&payload, 1}, owner, route);
}

// One stream. The lock is taken before those of the call and of the data channel, and is not held while the
// handler is called.
class BackupStream final : public ReplicationStream, net::DataReceiver {
 public:
  BackupStream(Place place, const net::Credentials& credentials, std::shared_ptr<TransportChoice> choice,
               ReplicationStreamHandler& handler)
      : place_(std::move(place)),
        choice_(std::move(choice)),
        handler_(handler),
        call_(place_.address, credentials, place_.shard,
              {.on_answer = [this](const v1::ReplicationAck& answer) { OnCallAnswer(answer); },
               .on_end = [this](const absl::Status& status) { OnCallEnd(status); }}) {}
  ~BackupStream() override {
    closing_ = true;
    call_.Cancel();
    call_.AwaitEnd();  // no thread is started after that
    connecting_.Join();
    if (data_ != nullptr) data_->Close();
  }

  void Send(std::vector<NumberedItem> items) override {
    MutexLock lock(mutex_);
    if (route_ == Route::kUnknown || route_ == Route::kConnecting) {
      for (NumberedItem& item : items) queue_.push_back(std::move(item));
    } else {
      SendNow(items);
    }
  }

 private:
  enum class Route { kUnknown, kConnecting, kCall, kDataChannel };

  void OnCallAnswer(const v1::ReplicationAck& answer) {
    {
      MutexLock lock(mutex_);
      if (route_ == Route::kUnknown) {
        ChooseRoute(answer);
        return;
      }
    }
    handler_.OnAnswer(answer);
  }
  void OnCallEnd(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      if (route_ == Route::kDataChannel) return;
      if (route_ == Route::kConnecting) {
        call_ended_ = status;
        return;
      }
    }
    handler_.OnClosed(status);
  }
  // `first`: the first answer of the call.
  void ChooseRoute(const v1::ReplicationAck& first) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    choice_->Learn(net::FromProto(first.data_endpoint()), first.keeper());
    if (choice_->way().transport != net::Transport::kGrpc) {
      auto thread = Thread::Start("backup-dial", [this] { ConnectDataChannel(); });
      if (thread.ok()) {
        connecting_ = *std::move(thread);
        route_ = Route::kConnecting;
        return;
      }
    }
    Use(Route::kCall);
  }
  void ConnectDataChannel() {
    std::optional<absl::Status> ended;
    std::unique_ptr<net::DataStream> connected = Connect();
    const bool reached = connected != nullptr;
    {
      MutexLock lock(mutex_);
      data_ = std::move(connected);
      if (!reached) ended = call_ended_;
      Use(reached ? Route::kDataChannel : Route::kCall);
    }
    if (reached) call_.Cancel();
    if (ended.has_value()) handler_.OnClosed(*ended);
  }
  // Returns a stream that has started, or null.
  std::unique_ptr<net::DataStream> Connect() {
    for (auto way = choice_->way(); way.transport != net::Transport::kGrpc; way = choice_->way()) {
      auto stream = Open(way);
      if (stream.ok()) {
        choice_->Say(way.transport);
        return *std::move(stream);
      }
      // A process that does not respond now is no reason to avoid this transport later.
      if (closing_ || absl::IsDeadlineExceeded(stream.status())) break;
      choice_->Fail(way);
    }
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<net::DataStream>> Open(const TransportChoice::Way& way) {
    CAIRN_ASSIGN_OR_RETURN(FileDescriptor socket,
                           net::ConnectDataChannel(place_.address, way.transport, way.endpoint));
    CAIRN_ASSIGN_OR_RETURN(auto stream,
                           net::DataStream::Connect(std::move(socket), way.transport == net::Transport::kShm,
                                                    {.incarnation = way.incarnation,
                                                     .key = way.endpoint.key,
                                                     .target = {.shard = place_.shard, .replicates = true},
                                                     .offers_memory = true},
                                                    *this));
    CAIRN_RETURN_IF_ERROR(stream->Start());
    return stream;
  }
  void Use(Route route) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    route_ = route;
    if (route == Route::kCall) choice_->Say(net::Transport::kGrpc);
    SendNow(std::exchange(queue_, {}));
  }
  void SendNow(const std::vector<NumberedItem>& items) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (route_ == Route::kCall) {
      call_.Send(items);
      return;
    }
    PutIntoFrames(items,
                  [stream = data_.get()](const v1::ReplicationHeader& header, absl::Span<const float> payload,
                                         const std::shared_ptr<const void>& owner) {
                    SendOn(*stream, header, payload, owner);
                  });
  }

  // --- The data channel ---
  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t) override {
    if (!answer_.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      return absl::InvalidArgumentError("replication: malformed answer");
    }
    return absl::Span<char>();
  }
  absl::Status Complete(net::Payload) override {
    handler_.OnAnswer(answer_);
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override {
    handler_.OnClosed(net::EndOfStream(status, "the backup closed the stream"));
  }

  const Place place_;
  const std::shared_ptr<TransportChoice> choice_;  // shared by the streams to this place
  ReplicationStreamHandler& handler_;
  v1::ReplicationAck answer_;  // of the data channel: used by the thread that receives
  std::atomic<bool> closing_{false};

  Mutex mutex_;
  Route route_ ABSL_GUARDED_BY(mutex_) = Route::kUnknown;
  std::vector<NumberedItem> queue_ ABSL_GUARDED_BY(mutex_);         // until the route is known
  std::optional<absl::Status> call_ended_ ABSL_GUARDED_BY(mutex_);  // the call's status, while kConnecting
  // Set once: connecting_ by a thread of the call, data_ by connecting_.
  Thread connecting_;
  std::unique_ptr<net::DataStream> data_;
  ReplicateCall call_;
};

// The state that streams share: one choice for each address.
class Dialer {
 public:
  Dialer(net::Credentials credentials, net::Transport best)
      : credentials_(std::move(credentials)), best_(best) {}

  std::unique_ptr<ReplicationStream> Dial(Place place, ReplicationStreamHandler& handler) {
    auto choice = ChoiceFor(place);
    return std::make_unique<BackupStream>(std::move(place), credentials_, std::move(choice), handler);
  }

 private:
  std::shared_ptr<TransportChoice> ChoiceFor(const Place& place) {
    MutexLock lock(mutex_);
    auto& choice = choices_[place.address];
    if (choice == nullptr) {
      choice = std::make_shared<TransportChoice>(TransportChoice::Options{
          .best = best_,
          .say = [what = absl::StrCat("to the backup of ps/", place.shard, "'s shard at ", place.address)](
                     const std::string& how) { LogInfo(what, ": by ", how); }});
    }
    return choice;
  }

  const net::Credentials credentials_;
  const net::Transport best_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<TransportChoice>> choices_ ABSL_GUARDED_BY(mutex_);  // [address]
};

}  // namespace

BackupDialer DialBackup(net::Credentials credentials, net::Transport best) {
  return [dialer = std::make_shared<Dialer>(std::move(credentials), best)](
             const std::string& address, int shard, ReplicationStreamHandler& handler) {
    return dialer->Dial({.address = address, .shard = shard}, handler);
  };
}

}  // namespace cairn::ps
