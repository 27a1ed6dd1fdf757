#include "tests/bench/wire/push_alone.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cairn/v1/session.pb.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/data_channel/listeners.h"
#include "common/net/data_channel/stream/fragments.h"
#include "common/net/data_channel/stream/stream.h"
#include "common/system/thread.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kIncarnation = 1;
constexpr auto kTimeout = std::chrono::seconds(60);

// Where chunks belong, and an answer to each end.
class Keeper final : public net::DataReceiver {
 public:
  static absl::StatusOr<std::unique_ptr<Keeper>> Start(net::DataListeners::Connection connection,
                                                       int64_t elements) {
    auto keeper = std::make_unique<Keeper>(elements);
    CAIRN_ASSIGN_OR_RETURN(
        keeper->stream_,
        net::DataStream::Accept(std::move(connection.socket), connection.local,
                                {.incarnation = kIncarnation, .offers_memory = true}, *keeper));
    CAIRN_RETURN_IF_ERROR(keeper->stream_->Start());
    return keeper;
  }
  explicit Keeper(int64_t elements) : room_(elements) {}

  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t bytes) override {
    if (!header_.ParseFromArray(header.data(), static_cast<int>(header.size()))) {
      return absl::InvalidArgumentError("malformed header");
    }
    return PlaceOf(bytes);
  }
  absl::Status Complete(net::Payload payload) override {
    if (payload.empty()) {
      stream_->Send(header_.SerializeAsString(), {}, nullptr);
      return absl::OkStatus();
    }
    const auto bytes = static_cast<size_t>(net::PayloadBytes(payload));
    const absl::Span<char> place = PlaceOf(bytes);
    if (place.size() != bytes) return absl::InvalidArgumentError("a chunk that belongs nowhere");
    if (payload.borrowed() == nullptr && payload.runs()[0].data() == place.data()) return absl::OkStatus();
    return net::CopyPayload(payload, place.data());
  }
  void OnEnd(const absl::Status&) override {}

 private:
  // Where the chunk that is being received belongs.
  absl::Span<char> PlaceOf(size_t bytes) {
    if (!header_.has_chunk()) return {};
    const auto begin = static_cast<size_t>(header_.chunk().offset()) * sizeof(float);
    const size_t size = static_cast<size_t>(room_.size()) * sizeof(float);
    if (begin > size || bytes > size - begin) return {};
    return {reinterpret_cast<char*>(room_.data()) + begin, bytes};
  }

  AlignedBuffer room_;
  v1::ClientHeader header_;
  std::unique_ptr<net::DataStream> stream_;
};

class StreamToKeeper final : public PushAlone, net::DataReceiver {
 public:
  absl::Status Connect(const net::DataEndpoint& address, net::Transport transport) {
    CAIRN_ASSIGN_OR_RETURN(FileDescriptor socket, net::ConnectDataChannel("127.0.0.1:1", transport, address));
    CAIRN_ASSIGN_OR_RETURN(
        stream_, net::DataStream::Connect(std::move(socket), transport == net::Transport::kShm,
                                          {.incarnation = kIncarnation, .offers_memory = true}, *this));
    return stream_->Start();
  }
  absl::Status Push(absl::Span<const float> gradient) override {
    v1::ClientHeader header;
    for (size_t at = 0; at < gradient.size(); at += net::kMaxPayloadFloats) {
      header.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      const auto chunk = gradient.subspan(at, net::kMaxPayloadFloats);
      net::SendInFragments(*stream_, header, {&chunk, 1}, nullptr, /*ranked=*/true);
    }
    header.mutable_end();
    stream_->Send(header.SerializeAsString(), {}, nullptr);
    ++pushes_;
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    MutexLock lock(mutex_);
    while (answers_ < pushes_ && status_.ok()) {
      if (!changed_.WaitUntil(mutex_, deadline)) return absl::DeadlineExceededError("no answer to a push");
    }
    return status_;
  }

 private:
  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char>, size_t) override {
    return absl::Span<char>();
  }
  absl::Status Complete(net::Payload) override {
    MutexLock lock(mutex_);
    ++answers_;
    changed_.NotifyAll();
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override {
    MutexLock lock(mutex_);
    status_ = status;
    changed_.NotifyAll();
  }

  int64_t pushes_ = 0;
  Mutex mutex_;
  CondVar changed_;
  int64_t answers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<net::DataStream> stream_;  // ends before the objects that its thread calls
};

// Does not return, except if it cannot listen; then it has reported nothing.
void Serve(const Forker& parent, int64_t elements) {
  auto local = net::ListenLocally();
  auto tcp = net::ListenByTcp("127.0.0.1", 0);
  if (!local.ok() || !tcp.ok()) return;
  parent.Report(absl::StrCat(tcp->port, " ", local->name));
  net::DataListeners listeners(*std::move(local), *std::move(tcp));
  std::vector<std::unique_ptr<Keeper>> keepers;  // end with the process
  const Thread accepting("accepting", [&] {
    for (;;) {
      auto connection = listeners.Accept(std::chrono::seconds(1));
      if (!connection.has_value()) continue;
      auto keeper = Keeper::Start(*std::move(connection), elements);
      if (keeper.ok()) keepers.push_back(*std::move(keeper));
    }
  });
  parent.ExitWhenItIsDone();
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeeperProcess>> KeeperProcess::Start(int64_t elements) {
  CAIRN_ASSIGN_OR_RETURN(auto process,
                         ForkedProcess::Start([elements](const Forker& parent) { Serve(parent, elements); }));
  const std::pair<std::string, std::string> told = absl::StrSplit(process->told(), absl::MaxSplits(' ', 1));
  net::DataEndpoint address = {.local_socket = told.second};
  if (!absl::SimpleAtoi(told.first, &address.port)) return absl::InternalError("the keeper reported no port");
  return std::unique_ptr<KeeperProcess>(new KeeperProcess(std::move(process), std::move(address)));
}

absl::StatusOr<std::unique_ptr<PushAlone>> PushAlone::To(const KeeperProcess& keeper,
                                                         net::Transport transport) {
  auto stream = std::make_unique<StreamToKeeper>();
  CAIRN_RETURN_IF_ERROR(stream->Connect(keeper.address(), transport));
  return std::unique_ptr<PushAlone>(std::move(stream));
}

}  // namespace cairn::bench
