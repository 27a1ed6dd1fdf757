#include "common/net/direct/stream.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/entropy.h"
#include "common/core/status.h"
#include "common/net/direct/socket.h"

namespace cairn::net {
namespace {

// The client greets when it connects: who has not by then is none. The server answers at once, unless it
// stands still.
constexpr auto kClientsGreeting = std::chrono::seconds(10);
constexpr auto kServersGreeting = std::chrono::seconds(5);

template <typename T>
absl::Span<char> RoomOf(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof value};
}

}  // namespace

DirectStream::DirectStream(FileDescriptor socket, bool server, bool shared, const Options& options,
                           DirectReceiver& receiver)
    : options_(options),
      server_(server),
      shared_(shared),
      receiver_(receiver),
      socket_(std::move(socket)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      probe_(DrawRandomBits()),
      in_(kReadAhead),
      progress_(std::chrono::steady_clock::now()),
      greeted_(!server) {}

absl::StatusOr<std::unique_ptr<DirectStream>> DirectStream::Connect(FileDescriptor socket, bool shared,
                                                                    const Options& options,
                                                                    DirectReceiver& receiver) {
  std::unique_ptr<DirectStream> stream(
      new DirectStream(std::move(socket), /*server=*/false, shared, options, receiver));
  if (!stream->wake_.valid()) return SystemFailure("eventfd");
  const DirectGreeting greeting = stream->OurGreeting();
  FileDescriptor theirs;
  std::vector<int> passed;
  if (shared) {
    CAIRN_ASSIGN_OR_RETURN(auto rings, SharedRings::Create(kRingBytes));
    CAIRN_ASSIGN_OR_RETURN(auto ends, SocketPair());
    theirs = std::move(ends.second);
    passed = {rings->descriptor(), theirs.get()};
    stream->UseRings(std::move(rings), std::move(ends.first));
  }
  CAIRN_RETURN_IF_ERROR(SendPassing(stream->socket_, BytesOf(greeting), passed));
  DirectGreeting answer;
  CAIRN_RETURN_IF_ERROR(ReceivePassed(stream->socket_, RoomOf(answer), kServersGreeting).status());
  if (answer.magic != DirectGreeting::kMagic || answer.incarnation != greeting.incarnation ||
      answer.shared != greeting.shared) {
    return absl::UnavailableError("another server than was asked for");
  }
  stream->lends_ = shared && answer.borrows != 0;
  if (stream->CanBorrow(answer)) {
    const DirectPrologue borrows = {.kind = DirectPrologue::kBorrows};
    CAIRN_RETURN_IF_ERROR(SendPassing(stream->socket_, BytesOf(borrows), {}));
  }
  return stream;
}

absl::StatusOr<std::unique_ptr<DirectStream>> DirectStream::Accept(FileDescriptor socket, bool shared,
                                                                   const Options& options,
                                                                   DirectReceiver& receiver) {
  std::unique_ptr<DirectStream> stream(
      new DirectStream(std::move(socket), /*server=*/true, shared, options, receiver));
  if (!stream->wake_.valid()) return SystemFailure("eventfd");
  return stream;
}

DirectStream::~DirectStream() {
  Close();
}

void DirectStream::UseRings(std::unique_ptr<SharedRings> rings, FileDescriptor credit) {
  rings_ = std::move(rings);
  credit_ = std::move(credit);
  writer_ = std::make_unique<RingWriter>(*rings_, server_ ? 1 : 0);
  reader_ = std::make_unique<RingReader>(*rings_, server_ ? 0 : 1);
}

DirectGreeting DirectStream::OurGreeting() const {
  DirectGreeting greeting = {
      .incarnation = options_.incarnation, .part = options_.part, .shared = shared_ ? uint64_t{1} : 0};
  if (shared_ && options_.lends) {
    greeting.probe = {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_};
  }
  return greeting;
}

bool DirectStream::CanBorrow(const DirectGreeting& theirs) {
  if (theirs.shared != 0 && options_.lends) peer_ = PeerMemory::Open(socket_.get(), theirs.probe);
  return peer_ != nullptr;
}

void DirectStream::Start() {
  thread_ = Thread("direct-stream", [this] { Run(); });
}

void DirectStream::Abort() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  shutdown(socket_.get(), SHUT_RDWR);
  Wake();
}

void DirectStream::Close() {
  Abort();
  thread_.Join();
}

void DirectStream::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void DirectStream::Run() {
  absl::Status status = server_ ? AwaitGreeting() : absl::OkStatus();
  bool readable = true;
  while (status.ok()) {
    status = Pump(kTurn);
    if (status.ok() && readable) status = Receive();
    TellBorrowed();
    if (status.ok()) status = Wait(&readable);
  }
  // A client that cannot send may still learn why.
  unread_ = true;
  for (absl::Status said; !server_ && absl::IsUnavailable(status) && said.ok() && unread_;) {
    said = Receive();
    if (!said.ok()) status = said;
  }
  SayFarewell(status);
  shutdown(socket_.get(), SHUT_RDWR);  // what is read of ours from now on does not count: it may change
  Outbox<Message> unsent;              // released outside the lock
  std::deque<std::shared_ptr<const void>> unread;
  {
    MutexLock lock(mutex_);
    if (closing_) status = absl::CancelledError("the stream was closed");
    closing_ = true;
    while (pumping_) pumped_.Wait(mutex_);  // which does not block
    std::swap(unsent, outgoing_);
    unread.swap(lent_);
  }
  unsent.Clear();
  unread.clear();
  // Answers may hold the stream for longer; nobody sends any more.
  writer_.reset();
  reader_.reset();
  rings_.reset();
  receiver_.OnEnd(status);
  ended_ = true;
}

absl::Status DirectStream::AwaitGreeting() {
  DirectGreeting greeting;
  CAIRN_ASSIGN_OR_RETURN(std::vector<FileDescriptor> passed,
                         ReceivePassed(socket_, RoomOf(greeting), kClientsGreeting));
  if (greeting.magic != DirectGreeting::kMagic) return absl::InvalidArgumentError("no greeting");
  if (greeting.incarnation != options_.incarnation) {
    return absl::UnavailableError("the greeting is for another server");
  }
  CAIRN_RETURN_IF_ERROR(receiver_.OnGreeting(greeting.part));
  if (greeting.shared != 0) {
    if (!shared_ || passed.size() != 2) return absl::UnavailableError("no shared memory here");
    CAIRN_ASSIGN_OR_RETURN(auto rings, SharedRings::Open(std::move(passed[0])));
    MutexLock lock(mutex_);
    UseRings(std::move(rings), std::move(passed[1]));
  }
  DirectGreeting answer = OurGreeting();
  answer.shared = greeting.shared;
  answer.borrows = CanBorrow(greeting) ? 1 : 0;
  CAIRN_RETURN_IF_ERROR(SendPassing(socket_, BytesOf(answer), {}));
  MutexLock lock(mutex_);
  greeted_ = true;
  return absl::OkStatus();
}

// Until there is something to do, or to look after.
absl::Status DirectStream::Wait(bool* readable) {
  pollfd ready[3] = {{socket_.get(), 0, 0}, {wake_.get(), POLLIN, 0}, {credit_.get(), POLLIN, 0}};
  int timeout_ms = -1;  // the owner's Close() wakes us
  bool resting;
  {
    MutexLock lock(mutex_);
    if (closing_) return absl::CancelledError("the stream was closed");
    if (!send_failure_.ok()) return send_failure_;
    resting = outgoing_.size() > options_.rest_above;
    if (!resting) ready[0].events |= POLLIN;
    if (blocked_ == Blocked::kBySocket) ready[0].events |= POLLOUT;
    const auto now = std::chrono::steady_clock::now();
    const bool untaken = !outgoing_.empty() || !lent_.empty();
    if (!untaken || progressed_.exchange(false)) progress_ = now;
    if (untaken) {
      const auto look = std::min(options_.stall_limit, std::chrono::milliseconds(1000));
      const bool can_send = !outgoing_.empty() && blocked_ == Blocked::kNot && !pumping_;
      timeout_ms = can_send ? 0 : static_cast<int>(look.count());
      if (now - progress_ > options_.stall_limit) {
        return absl::UnavailableError("the other end has taken nothing for too long");
      }
    }
  }
  if (unread_ && !resting) timeout_ms = 0;
  if (poll(ready, rings_ != nullptr ? 3 : 2, timeout_ms) < 0 && errno != EINTR) return SystemFailure("poll");

  char drained[64];
  if (ready[1].revents != 0) (void)!read(wake_.get(), drained, sizeof drained);
  const bool credited = rings_ != nullptr && ready[2].revents != 0;
  if (credited) {
    const ssize_t got = recv(credit_.get(), drained, sizeof drained, MSG_DONTWAIT);
    if (got == 0) return OtherEndClosed();
    if (got < 0 && errno != EAGAIN && errno != EINTR) return SystemFailure("receiving");
  }
  if (resting && (ready[0].revents & (POLLHUP | POLLERR)) != 0) return OtherEndClosed();
  *readable = !resting && (unread_ || (ready[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
  MutexLock lock(mutex_);
  if ((blocked_ == Blocked::kBySocket && (ready[0].revents & POLLOUT) != 0) ||
      (blocked_ == Blocked::kByRing && credited)) {
    blocked_ = Blocked::kNot;
  }
  return absl::OkStatus();
}

}  // namespace cairn::net
