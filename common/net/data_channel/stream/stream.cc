#include "common/net/data_channel/stream/stream.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/socket/tcp_socket.h"
#include "common/net/security/seal.h"
#include "common/system/cores.h"
#include "common/system/entropy.h"
#include "common/system/limits.h"

namespace cairn::net {
namespace {

// The time limits of the handshake. The client begins it when it connects, and a server that is not stopped
// answers at once.
constexpr auto kClientsHandshake = std::chrono::seconds(10);
constexpr auto kServersHandshake = std::chrono::seconds(5);

// The pollers of this process. At most half of the usable cores spin: the other ends may run on the rest.
BusyPollers<>& Pollers() {
  static BusyPollers<> pollers(UsableCores() / 2);
  return pollers;
}

// A thread in ReceiveUntil() has nothing else to do, and a training step waits for it. Therefore it spins in
// two cases in which the stream's thread does not: when the last wait was long ago, because the thread has
// computed since then, and while a large payload arrives.
constexpr BusyPoll<>::Options kCallerWaits = {.short_wait = std::chrono::microseconds(200),
                                              .awake = std::chrono::microseconds(200),
                                              .exchanges_alone = false};

template <typename T>
absl::Span<char> RoomOf(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof value};
}

}  // namespace

DataStream::DataStream(FileDescriptor socket, bool server, bool shared, const Options& options,
                       DataReceiver& receiver)
    : options_(options),
      server_(server),
      shared_(shared),
      receiver_(receiver),
      socket_(std::move(socket)),
      within_host_(StaysOnHost(socket_)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      nudge_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      watch_(epoll_create1(EPOLL_CLOEXEC)),
      probe_(DrawRandomBits()),
      pins_(options.pins),
      in_(kReadAhead),
      caller_waits_(Pollers(), kCallerWaits),
      waits_(Pollers(), {}),
      progress_(std::chrono::steady_clock::now()),
      heard_(progress_),
      greeted_(!server) {}

absl::StatusOr<std::unique_ptr<DataStream>> DataStream::Connect(FileDescriptor socket, bool shared,
                                                                const Options& options,
                                                                DataReceiver& receiver) {
  std::unique_ptr<DataStream> stream(
      new DataStream(std::move(socket), /*server=*/false, shared, options, receiver));
  CAIRN_RETURN_IF_ERROR(stream->CheckDescriptors());
  CAIRN_RETURN_IF_ERROR(stream->Watch(stream->wake_, EPOLLIN));
  CAIRN_RETURN_IF_ERROR(stream->Watch(stream->socket_, 0));
  const DataHandshake handshake = stream->OurHandshake();
  FileDescriptor theirs;
  std::vector<int> passed;
  if (shared) {
    CAIRN_ASSIGN_OR_RETURN(auto rings, SharedRings::Create(kRingBytes));
    CAIRN_ASSIGN_OR_RETURN(auto ends, SocketPair());
    theirs = std::move(ends.second);
    passed = {rings->descriptor(), theirs.get()};
    CAIRN_RETURN_IF_ERROR(stream->UseRings(std::move(rings), std::move(ends.first)));
  }
  CAIRN_RETURN_IF_ERROR(SendPassing(stream->socket_, BytesOf(handshake), passed));
  DataHandshake answer;
  CAIRN_RETURN_IF_ERROR(ReceivePassed(stream->socket_, RoomOf(answer), kServersHandshake).status());
  if (answer.magic != DataHandshake::kMagic || answer.incarnation != handshake.incarnation ||
      answer.shared != handshake.shared) {
    return absl::UnavailableError("the answer to the handshake is from another server");
  }
  stream->offers_memory_ = shared && answer.borrows != 0;
  stream->maps_ = handshake.maps != 0 && answer.maps != 0;
  if (stream->CanBorrow(answer)) {
    const DataPrologue borrows = {.kind = DataPrologue::kBorrowing};
    CAIRN_RETURN_IF_ERROR(SendPassing(stream->socket_, BytesOf(borrows), {}));
  }
  return stream;
}

absl::StatusOr<std::unique_ptr<DataStream>> DataStream::Accept(FileDescriptor socket, bool shared,
                                                               const Options& options,
                                                               DataReceiver& receiver) {
  std::unique_ptr<DataStream> stream(
      new DataStream(std::move(socket), /*server=*/true, shared, options, receiver));
  CAIRN_RETURN_IF_ERROR(stream->CheckDescriptors());
  CAIRN_RETURN_IF_ERROR(stream->Watch(stream->wake_, EPOLLIN));
  CAIRN_RETURN_IF_ERROR(stream->Watch(stream->socket_, 0));
  return stream;
}

DataStream::~DataStream() {
  Close();
}

absl::Status DataStream::UseRings(std::unique_ptr<SharedRings> rings, FileDescriptor ring_wake) {
  CAIRN_RETURN_IF_ERROR(Watch(ring_wake, EPOLLIN));
  pins_ = false;
  rings_ = std::move(rings);
  ring_wake_ = std::move(ring_wake);
  writer_ = std::make_unique<RingWriter>(*rings_, server_ ? 1 : 0);
  reader_ = std::make_unique<RingReader>(*rings_, server_ ? 0 : 1);
  return absl::OkStatus();
}

DataHandshake DataStream::OurHandshake() const {
  DataHandshake handshake = {
      .incarnation = options_.incarnation, .shard = options_.shard, .shared = shared_ ? uint64_t{1} : 0};
  // Only the client proves that it knows the key: a stranger that connects to this server learns nothing.
  if (!server_)
    std::copy_n(options_.key.begin(), std::min(options_.key.size(), handshake.key.size()),
                handshake.key.begin());
  if (shared_ && options_.offers_memory) {
    handshake.maps = 1;
    handshake.probe = {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_};
  }
  return handshake;
}

bool DataStream::CanBorrow(const DataHandshake& theirs) {
  if (theirs.shared != 0 && options_.offers_memory) peer_ = PeerMemory::Open(socket_.get(), theirs.probe);
  return peer_ != nullptr;
}

absl::Status DataStream::CheckDescriptors() const {
  if (wake_.valid() && nudge_.valid() && watch_.valid()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("no file descriptor is left for a stream (ulimit -n is ", DescriptorLimit(), ")"));
}

absl::Status DataStream::Watch(const FileDescriptor& descriptor, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = descriptor.get()}};
  if (epoll_ctl(watch_.get(), EPOLL_CTL_ADD, descriptor.get(), &event) == 0) return absl::OkStatus();
  return SystemFailure("watching a descriptor");
}

absl::Status DataStream::Start() {
  CAIRN_ASSIGN_OR_RETURN(thread_, Thread::Start("data-stream", [this] { Run(); }));
  return absl::OkStatus();
}

void DataStream::Abort() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  shutdown(socket_.get(), SHUT_RDWR);
  Wake();
}

void DataStream::Close() {
  Abort();
  thread_.Join();
}

void DataStream::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void DataStream::Run() {
  absl::Status status = server_ ? AwaitHandshake() : absl::OkStatus();
  bool receive = true;
  while (status.ok()) {
    status = Pump(kTurn);
    if (status.ok() && receive) {
      status = Receive();
      SendReleased();
    }
    if (status.ok()) status = Wait(&receive);
  }
  TakeOver();
  // A client that cannot send may still receive the server's reason.
  unread_ = true;
  for (absl::Status said; !server_ && absl::IsUnavailable(status) && said.ok() && unread_;) {
    said = Receive();
    if (!said.ok()) status = said;
  }
  SendFarewell(status);
  ShutDown();
  Outbox<Message> unsent;  // destroyed outside the lock
  std::deque<std::shared_ptr<const void>> unread;
  {
    MutexLock lock(mutex_);
    if (closing_) status = absl::CancelledError("the stream was closed");
    closing_ = true;
    while (pumping_) stepped_back_.Wait(mutex_);  // pumping does not block
    std::swap(unsent, outgoing_);
    unread.swap(borrowed_);
  }
  unsent.Clear();
  unread.clear();
  // Replies may keep this object alive for longer, but nothing is sent any more.
  pages_.reset();
  writer_.reset();
  reader_.reset();
  rings_.reset();
  passed_.clear();
  regions_.clear();
  receiver_.OnEnd(status);
  ended_ = true;
}

absl::Status DataStream::AwaitHandshake() {
  DataHandshake handshake;
  CAIRN_ASSIGN_OR_RETURN(std::vector<FileDescriptor> passed,
                         ReceivePassed(socket_, RoomOf(handshake), kClientsHandshake));
  if (handshake.magic != DataHandshake::kMagic) return absl::InvalidArgumentError("no valid handshake");
  if (handshake.incarnation != options_.incarnation) {
    return absl::UnavailableError("the handshake is for another server");
  }
  if (!options_.key.empty() && !SameSecret(options_.key, {handshake.key.data(), handshake.key.size()})) {
    return absl::UnauthenticatedError("the handshake does not contain this server's key");
  }
  CAIRN_RETURN_IF_ERROR(receiver_.OnHandshake(handshake.shard));
  if (handshake.shared != 0) {
    if (!shared_ || passed.size() != 2) return absl::UnavailableError("this server accepts no shared memory");
    CAIRN_ASSIGN_OR_RETURN(auto rings, SharedRings::Open(std::move(passed[0])));
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(UseRings(std::move(rings), std::move(passed[1])));
  }
  DataHandshake answer = OurHandshake();
  answer.shared = handshake.shared;
  answer.borrows = CanBorrow(handshake) ? 1 : 0;
  if (handshake.shared == 0) answer.maps = 0;
  maps_ = handshake.maps != 0 && answer.maps != 0;
  CAIRN_RETURN_IF_ERROR(SendPassing(socket_, BytesOf(answer), {}));
  MutexLock lock(mutex_);
  greeted_ = true;
  return absl::OkStatus();
}

void DataStream::Arm() {
  const bool callers = receiving_ == Receiving::kCaller;
  uint32_t events = 0;
  if (!resting_ && !callers) events |= EPOLLIN;
  if (blocked_ == Blocked::kBySocket) events |= EPOLLOUT;
  // EPOLLHUP cannot be masked. With EPOLLET it is reported only once; the thread in ReceiveUntil() handles
  // it.
  if (callers) events |= EPOLLET;
  if (std::exchange(armed_, events) == events) return;
  epoll_event event{.events = events, .data = {.fd = socket_.get()}};
  CAIRN_CHECK(epoll_ctl(watch_.get(), EPOLL_CTL_MOD, socket_.get(), &event) == 0);
}

absl::Status DataStream::Wait(bool* receive) {
  int timeout_ms = -1;  // Close() wakes this thread
  {
    MutexLock lock(mutex_);
    if (closing_) return absl::CancelledError("the stream was closed");
    if (!failure_.ok()) return failure_;
    resting_ = outgoing_.size() > options_.rest_above;
    const auto now = std::chrono::steady_clock::now();
    const bool untaken = !outgoing_.empty() || !borrowed_.empty();
    if (!untaken || progressed_.exchange(false)) progress_ = now;
    if (untaken) {
      const auto look = std::min(options_.stall_limit, std::chrono::milliseconds(1000));
      const bool can_send = !outgoing_.empty() && blocked_ == Blocked::kNot && !pumping_;
      timeout_ms = can_send ? 0 : static_cast<int>(look.count());
      if (now - progress_ > options_.stall_limit) {
        return absl::UnavailableError("the other end has received nothing for too long");
      }
      if (blocked_ == Blocked::kByCreditLimit) {
        const auto until = credit_limit_.WaitsUntil(now).value_or(now);
        timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(until - now).count());
      }
    }
    if (const auto left = SilenceLeft(now); left.count() == 0) {
      return absl::UnavailableError("the client has been silent for too long");
    } else if (server_) {
      const auto limit = static_cast<int>(std::min<int64_t>(left.count(), std::numeric_limits<int>::max()));
      timeout_ms = timeout_ms < 0 ? limit : std::min(timeout_ms, limit);
    }
    if (receiving_ != Receiving::kCaller) {
      receiving_ = unread_ && !resting_ ? Receiving::kThread : Receiving::kNobody;
      if (receiving_ == Receiving::kThread) timeout_ms = 0;
      if (std::exchange(large_, false)) waits_.Distrust();
    }
    Arm();
  }
  epoll_event events[3];
  const int ready = waits_.Wait(
      timeout_ms, [&](int most_ms) { return epoll_wait(watch_.get(), events, std::size(events), most_ms); });
  if (ready < 0 && errno != EINTR) return SystemFailure("epoll_wait");

  uint32_t of_socket = 0;
  bool room_freed = false;
  for (int i = 0; i < ready; ++i) {
    char drained[64];
    if (events[i].data.fd == socket_.get()) {
      of_socket = events[i].events;
    } else if (events[i].data.fd == wake_.get()) {
      (void)!read(wake_.get(), drained, sizeof drained);
    } else {
      room_freed = true;
      const ssize_t got = recv(ring_wake_.get(), drained, sizeof drained, MSG_DONTWAIT);
      if (got == 0) return OtherEndClosed();
      if (got < 0 && errno != EAGAIN && errno != EINTR) return SystemFailure("receiving");
    }
  }
  MutexLock lock(mutex_);
  const bool ended = (of_socket & (EPOLLHUP | EPOLLERR)) != 0;
  if (resting_ && ended) return OtherEndClosed();
  if (receiving_ == Receiving::kNobody && !resting_ && (unread_ || ended || (of_socket & EPOLLIN) != 0)) {
    receiving_ = Receiving::kThread;
  }
  *receive = receiving_ == Receiving::kThread;
  if ((blocked_ == Blocked::kBySocket && (of_socket & EPOLLOUT) != 0) ||
      (blocked_ == Blocked::kByRing && room_freed) ||
      (blocked_ == Blocked::kByCreditLimit && !FrontWaits())) {
    blocked_ = Blocked::kNot;
  }
  return absl::OkStatus();
}

std::chrono::milliseconds DataStream::SilenceLeft(std::chrono::steady_clock::time_point now) {
  if (heard_more_.exchange(false, std::memory_order_relaxed)) {
    heard_ = now;
    spoken_ = true;
  }
  const auto limit = spoken_ ? options_.idle_limit : options_.first_limit;
  if (!server_ || now - heard_ < limit)
    return std::chrono::ceil<std::chrono::milliseconds>(heard_ + limit - now);
  if (!spoken_ || !receiver_.OwesAnswer()) return std::chrono::milliseconds(0);
  heard_ = now;
  return limit;
}

void DataStream::TakeOver() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  Nudge();
  MutexLock lock(mutex_);
  while (receiving_ == Receiving::kCaller) stepped_back_.Wait(mutex_);  // receiving does not block
  receiving_ = Receiving::kThread;
}

}  // namespace cairn::net
