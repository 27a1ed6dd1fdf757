#include "tests/bench/wire/push_alone.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "cairn/v1/session.pb.h"
#include "common/core/aligned_buffer.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/net/direct/listeners.h"
#include "common/net/direct/pieces.h"
#include "common/net/direct/stream.h"
#include "common/net/grpc_util.h"

namespace cairn::bench {
namespace {

constexpr uint64_t kIncarnation = 1;
constexpr auto kTimeout = std::chrono::seconds(60);

// Where chunks belong, and an answer to each end.
class Keeper final : public net::DirectReceiver {
 public:
  static absl::StatusOr<std::unique_ptr<Keeper>> Start(net::DirectListeners::Connection connection,
                                                       int64_t elements) {
    auto keeper = std::make_unique<Keeper>(elements);
    CAIRN_ASSIGN_OR_RETURN(keeper->stream_,
                           net::DirectStream::Accept(std::move(connection.socket), connection.local,
                                                     {.incarnation = kIncarnation, .lends = true}, *keeper));
    keeper->stream_->Start();
    return keeper;
  }
  explicit Keeper(int64_t elements) : room_(elements) {}

  absl::Span<char> PlaceFor(absl::Span<const char> header, size_t bytes) override {
    v1::ClientHeader parsed;
    if (!parsed.ParseFromArray(header.data(), static_cast<int>(header.size())) || !parsed.has_chunk()) {
      return {};
    }
    const auto begin = static_cast<size_t>(parsed.chunk().offset()) * sizeof(float);
    const size_t size = static_cast<size_t>(room_.size()) * sizeof(float);
    if (begin > size || bytes > size - begin) return {};
    return {reinterpret_cast<char*>(room_.data()) + begin, bytes};
  }
  absl::Status OnMessage(absl::Span<const char> header, net::Payload payload) override {
    if (payload.empty()) {
      stream_->Send(header, {}, nullptr);
      return absl::OkStatus();
    }
    const auto bytes = static_cast<size_t>(net::PayloadBytes(payload));
    const absl::Span<char> place = PlaceFor(header, bytes);
    if (place.size() != bytes) return absl::InvalidArgumentError("a chunk that belongs nowhere");
    if (payload.lent() == nullptr && payload.runs()[0].data() == place.data()) return absl::OkStatus();
    return net::CopyPayload(payload, place.data());
  }
  void OnEnd(const absl::Status&) override {}

 private:
  AlignedBuffer room_;
  std::unique_ptr<net::DirectStream> stream_;
};

class StreamToKeeper final : public PushAlone, net::DirectReceiver {
 public:
  absl::Status Connect(const net::DirectAddress& address, net::Transport transport) {
    CAIRN_ASSIGN_OR_RETURN(FileDescriptor socket, net::ConnectDirectly("127.0.0.1:1", transport, address));
    CAIRN_ASSIGN_OR_RETURN(stream_,
                           net::DirectStream::Connect(std::move(socket), transport == net::Transport::kShm,
                                                      {.incarnation = kIncarnation, .lends = true}, *this));
    stream_->Start();
    return absl::OkStatus();
  }
  absl::Status Push(absl::Span<const float> gradient) override {
    v1::ClientHeader header;
    for (size_t at = 0; at < gradient.size(); at += net::kMaxPayloadFloats) {
      header.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      const auto chunk = gradient.subspan(at, net::kMaxPayloadFloats);
      net::SendInPieces(*stream_, header, {&chunk, 1}, nullptr, /*ranked=*/true);
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
  absl::Status OnMessage(absl::Span<const char>, net::Payload) override {
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
  std::unique_ptr<net::DirectStream> stream_;  // ends before what its thread calls goes
};

struct Told {
  int tcp_port = 0;
  char local_socket[64] = {};
};

[[noreturn]] void Serve(int tell, int lifeline, int64_t elements) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  net::TuneMalloc();
  auto local = net::ListenLocally();
  auto tcp = net::ListenByTcp("127.0.0.1", 0);
  Told told;
  if (!local.ok() || !tcp.ok() || local->name.size() >= sizeof told.local_socket) _exit(1);
  told.tcp_port = tcp->port;
  std::memcpy(told.local_socket, local->name.data(), local->name.size());
  if (write(tell, &told, sizeof told) != sizeof told) _exit(1);
  net::DirectListeners listeners(*std::move(local), *std::move(tcp));
  std::vector<std::unique_ptr<Keeper>> keepers;  // end with the process
  const Thread waiting("lifeline", [lifeline] {
    char end;
    (void)!read(lifeline, &end, 1);
    _exit(0);
  });
  for (;;) {
    auto connection = listeners.Accept(std::chrono::seconds(1));
    if (!connection.has_value()) continue;
    auto keeper = Keeper::Start(*std::move(connection), elements);
    if (keeper.ok()) keepers.push_back(*std::move(keeper));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeeperProcess>> KeeperProcess::Start(int64_t elements) {
  std::unique_ptr<KeeperProcess> keeper(new KeeperProcess);
  int tell[2], lifeline[2];
  if (pipe(tell) != 0 || pipe(lifeline) != 0) return net::SystemFailure("pipe");
  keeper->pid_ = fork();
  if (keeper->pid_ < 0) return net::SystemFailure("fork");
  if (keeper->pid_ == 0) {
    close(lifeline[1]);
    Serve(tell[1], lifeline[0], elements);
  }
  close(tell[1]);
  close(lifeline[0]);
  keeper->lifeline_ = lifeline[1];
  Told told;
  const bool ok = read(tell[0], &told, sizeof told) == sizeof told;
  close(tell[0]);
  if (!ok) return absl::InternalError("the keeper's process did not start");
  keeper->address_ = {.local_socket = told.local_socket, .port = told.tcp_port};
  return keeper;
}

KeeperProcess::~KeeperProcess() {
  if (lifeline_ >= 0) close(lifeline_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::unique_ptr<PushAlone>> PushAlone::To(const KeeperProcess& keeper,
                                                         net::Transport transport) {
  auto stream = std::make_unique<StreamToKeeper>();
  CAIRN_RETURN_IF_ERROR(stream->Connect(keeper.address(), transport));
  return std::unique_ptr<PushAlone>(std::move(stream));
}

}  // namespace cairn::bench
