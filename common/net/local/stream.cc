#include "common/net/local/stream.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/local/socket.h"

namespace cairn::net {
namespace {

constexpr uint64_t kMagic = 0x326e726961632d6c;
// The client greets when it connects: who has not by then is none. The server answers at once, unless it
// stands still.
constexpr auto kClientsGreeting = std::chrono::seconds(10);
constexpr auto kServersGreeting = std::chrono::seconds(5);
// Payloads up to here go over the socket, with their header: telling of a place costs as much. Messages up to
// here, and those whose payload is lent, are sent by their caller, who is spared the way to another thread.
constexpr size_t kSmallBytes = size_t{16} << 10;
// Payloads from here on are lent, if their runs are not too small: telling where one lies, and reading it, costs what
// copying some hundred bytes does.
constexpr size_t kLeastLent = size_t{32} << 10;
constexpr size_t kLeastLentRun = 4096;
// Taken from the socket before it is known what it is; the rest of a payload goes to its place at once.
constexpr size_t kReadAhead = 4096;
// How many messages go one way before it is the other's turn.
constexpr int kTurn = 4;
constexpr size_t kMostRuns = 64;  // of one sendmsg()
constexpr size_t kMostLentRuns = kMaxPayloadBytes / kLeastLentRun;

absl::Status Lost(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::Status TheyEnded() {
  return absl::UnavailableError("the other end closed the stream");
}

template <typename T>
absl::Span<char> RoomOf(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof value};
}
template <typename T>
absl::Span<const char> BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

struct LocalStream::Greeting {
  uint64_t magic = kMagic;
  uint64_t incarnation = 0;
  int64_t part = kOwnPart;
  uint64_t shared = 0;
  PeerMemory::Probe probe{};
  uint64_t borrows = 0;  // the server's: it takes what is lent
};

struct LocalStream::Prologue {
  enum Kind : uint32_t { kInline = 0, kInRing = 1, kFarewell = 2, kLent = 3, kBorrowed = 4, kBorrows = 5 };
  uint32_t kind = kInline;
  uint32_t header_bytes = 0;   // of a farewell: its text
  uint32_t payload_bytes = 0;  // of a farewell: its status code
  uint32_t runs = 0;           // of a payload that is lent: LentRuns, behind the header
  uint64_t position = 0;       // in the ring; kBorrowed: how many messages
};

namespace {

class LentPayload final : public LentBytes {
 public:
  LentPayload(const PeerMemory& memory, absl::Span<const LentRun> runs, size_t size)
      : memory_(memory), runs_(runs), size_(size) {}

  size_t size() const override { return size_; }
  absl::Status Read(size_t begin, absl::Span<char> to) const override {
    if (status_.ok()) status_ = memory_.Read(runs_, begin, to);
    return status_;
  }
  const absl::Status& status() const { return status_; }

 private:
  const PeerMemory& memory_;
  const absl::Span<const LentRun> runs_;
  const size_t size_;
  mutable absl::Status status_;
};

uint64_t RandomBits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

LocalStream::LocalStream(FileDescriptor socket, bool server, bool shared, const Options& options,
                         LocalReceiver& receiver)
    : options_(options),
      server_(server),
      shared_(shared),
      receiver_(receiver),
      socket_(std::move(socket)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      probe_(RandomBits()),
      in_(kReadAhead),
      progress_(std::chrono::steady_clock::now()),
      greeted_(!server) {}

absl::StatusOr<std::unique_ptr<LocalStream>> LocalStream::Connect(FileDescriptor socket, bool shared,
                                                                  const Options& options,
                                                                  LocalReceiver& receiver) {
  std::unique_ptr<LocalStream> stream(
      new LocalStream(std::move(socket), /*server=*/false, shared, options, receiver));
  if (!stream->wake_.valid()) return Lost("eventfd");
  const Greeting greeting = stream->OurGreeting();
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
  Greeting answer;
  CAIRN_RETURN_IF_ERROR(ReceivePassed(stream->socket_, RoomOf(answer), kServersGreeting).status());
  if (answer.magic != kMagic || answer.incarnation != greeting.incarnation ||
      answer.shared != greeting.shared) {
    return absl::UnavailableError("another server than was asked for");
  }
  stream->lends_ = answer.borrows != 0;
  if (stream->CanBorrow(answer)) {
    const Prologue borrows = {.kind = Prologue::kBorrows};
    CAIRN_RETURN_IF_ERROR(SendPassing(stream->socket_, BytesOf(borrows), {}));
  }
  return stream;
}

absl::StatusOr<std::unique_ptr<LocalStream>> LocalStream::Accept(FileDescriptor socket, bool shared,
                                                                 const Options& options,
                                                                 LocalReceiver& receiver) {
  std::unique_ptr<LocalStream> stream(
      new LocalStream(std::move(socket), /*server=*/true, shared, options, receiver));
  if (!stream->wake_.valid()) return Lost("eventfd");
  return stream;
}

LocalStream::~LocalStream() {
  Close();
}

void LocalStream::UseRings(std::unique_ptr<SharedRings> rings, FileDescriptor credit) {
  rings_ = std::move(rings);
  credit_ = std::move(credit);
  writer_ = std::make_unique<RingWriter>(*rings_, server_ ? 1 : 0);
  reader_ = std::make_unique<RingReader>(*rings_, server_ ? 0 : 1);
}

LocalStream::Greeting LocalStream::OurGreeting() const {
  Greeting greeting = {.incarnation = options_.incarnation,
                       .part = options_.part,
                       .shared = shared_ ? uint64_t{1} : 0};
  if (shared_ && options_.lends) {
    greeting.probe = {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_};
  }
  return greeting;
}

bool LocalStream::CanBorrow(const Greeting& theirs) {
  if (theirs.shared != 0 && options_.lends) peer_ = PeerMemory::Open(socket_.get(), theirs.probe);
  return peer_ != nullptr;
}

void LocalStream::Start() {
  thread_ = Thread("local-stream", [this] { Run(); });
}

void LocalStream::Abort() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  shutdown(socket_.get(), SHUT_RDWR);
  Wake();
}

void LocalStream::Close() {
  Abort();
  thread_.Join();
}

void LocalStream::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void LocalStream::Run() {
  absl::Status status = server_ ? AwaitGreeting() : absl::OkStatus();
  bool readable = true;
  while (status.ok()) {
    status = Pump(kTurn);
    if (status.ok() && readable) status = Receive();
    TellBorrowed();
    if (status.ok()) status = Wait(&readable);
  }
  // A client that cannot send may still learn why.
  for (absl::Status said; !server_ && absl::IsUnavailable(status) && said.ok() && unread_;) {
    said = Receive();
    if (!said.ok()) status = said;
  }
  SayFarewell(status);
  shutdown(socket_.get(), SHUT_RDWR);  // what is read of ours from now on does not count: it may change
  std::deque<Message> unsent;          // released outside the lock
  std::deque<std::shared_ptr<const void>> unread;
  {
    MutexLock lock(mutex_);
    if (closing_) status = absl::CancelledError("the stream was closed");
    closing_ = true;
    while (pumping_) pumped_.Wait(mutex_);  // which does not block
    unsent.swap(outgoing_);
    unread.swap(lent_);
  }
  unsent.clear();
  unread.clear();
  // Answers may hold the stream for longer; nobody sends any more.
  writer_.reset();
  reader_.reset();
  rings_.reset();
  receiver_.OnEnd(status);
  ended_ = true;
}

absl::Status LocalStream::AwaitGreeting() {
  Greeting greeting;
  CAIRN_ASSIGN_OR_RETURN(std::vector<FileDescriptor> passed,
                         ReceivePassed(socket_, RoomOf(greeting), kClientsGreeting));
  if (greeting.magic != kMagic) return absl::InvalidArgumentError("no greeting");
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
  Greeting answer = OurGreeting();
  answer.shared = greeting.shared;
  answer.borrows = CanBorrow(greeting) ? 1 : 0;
  CAIRN_RETURN_IF_ERROR(SendPassing(socket_, BytesOf(answer), {}));
  MutexLock lock(mutex_);
  greeted_ = true;
  return absl::OkStatus();
}

// Until there is something to do, or to look after.
absl::Status LocalStream::Wait(bool* readable) {
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
  if (poll(ready, rings_ != nullptr ? 3 : 2, timeout_ms) < 0 && errno != EINTR) return Lost("poll");

  char drained[64];
  if (ready[1].revents != 0) (void)!read(wake_.get(), drained, sizeof drained);
  const bool credited = rings_ != nullptr && ready[2].revents != 0;
  if (credited) {
    const ssize_t got = recv(credit_.get(), drained, sizeof drained, MSG_DONTWAIT);
    if (got == 0) return TheyEnded();
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Lost("receiving");
  }
  if (resting && (ready[0].revents & (POLLHUP | POLLERR)) != 0) return TheyEnded();
  *readable = !resting && (unread_ || (ready[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
  MutexLock lock(mutex_);
  if ((blocked_ == Blocked::kBySocket && (ready[0].revents & POLLOUT) != 0) ||
      (blocked_ == Blocked::kByRing && credited)) {
    blocked_ = Blocked::kNot;
  }
  return absl::OkStatus();
}

// --- Sending ---

bool LocalStream::Lends(FloatSpans payload) const {
  size_t bytes = 0;
  for (const auto& run : payload) bytes += run.size() * sizeof(float);
  return lends_ && bytes >= std::max(kLeastLent, kLeastLentRun * payload.size());
}

void LocalStream::Send(absl::Span<const char> header, FloatSpans payload, std::shared_ptr<const void> owner) {
  Message message;
  message.payload.assign(payload.begin(), payload.end());
  for (const auto& run : payload) message.payload_bytes += run.size() * sizeof(float);
  message.lent = Lends(payload);
  const int64_t most = message.lent ? kMaxPayloadFloats : kPieceFloats;
  CAIRN_CHECK(message.payload_bytes <= static_cast<size_t>(most) * sizeof(float));
  const Prologue prologue = {.header_bytes = static_cast<uint32_t>(header.size()),
                             .payload_bytes = static_cast<uint32_t>(message.payload_bytes)};
  message.front.reserve(sizeof prologue + header.size());
  message.front.append(reinterpret_cast<const char*>(&prologue), sizeof prologue);
  message.front.append(header.data(), header.size());
  message.owner = std::move(owner);
  Queue(std::move(message));
}

void LocalStream::Queue(Message message) {
  const bool small = message.lent || message.payload_bytes <= kSmallBytes;
  bool send_here;
  {
    MutexLock lock(mutex_);
    if (closing_) return;
    send_here = small && outgoing_.empty() && !pumping_ && greeted_;
    const bool thread_knows = !outgoing_.empty();
    outgoing_.push_back(std::move(message));
    if (thread_knows) return;
  }
  if (!send_here) {
    Wake();
    return;
  }
  const absl::Status status = Pump(1);
  MutexLock lock(mutex_);
  if (!status.ok()) send_failure_ = status;
  if (!outgoing_.empty() || !status.ok()) Wake();  // the thread goes on with it
}

absl::Status LocalStream::Pump(int most) {
  std::shared_ptr<const void> released;  // outside the lock
  for (int i = 0; i < most; ++i) {
    Message* front;
    {
      MutexLock lock(mutex_);
      if (pumping_ || closing_ || outgoing_.empty() || blocked_ != Blocked::kNot) return absl::OkStatus();
      pumping_ = true;
      front = &outgoing_.front();  // stays where it is: others only add behind it
    }
    absl::StatusOr<Blocked> blocked = SendPartOf(*front);
    released = std::move(front->owner);
    MutexLock lock(mutex_);
    pumping_ = false;
    pumped_.NotifyAll();
    if (!blocked.ok()) return blocked.status();
    progressed_ = true;
    blocked_ = *blocked;
    if (*blocked == Blocked::kNot) {
      outgoing_.pop_front();
    } else if (!front->settled) {
      front->owner = std::move(released);
    }
  }
  return absl::OkStatus();
}

void LocalStream::Lend(Message& message) {
  Prologue prologue;
  std::memcpy(&prologue, message.front.data(), sizeof prologue);
  prologue.kind = Prologue::kLent;
  prologue.runs = static_cast<uint32_t>(message.payload.size());
  std::memcpy(message.front.data(), &prologue, sizeof prologue);
  for (const auto& run : message.payload) {
    const LentRun place = {.address = reinterpret_cast<uint64_t>(run.data()), .bytes = run.size() * sizeof(float)};
    message.front.append(reinterpret_cast<const char*>(&place), sizeof place);
  }
  MutexLock lock(mutex_);
  lent_.push_back(std::move(message.owner));  // before it can be told that this has been read
}

absl::StatusOr<LocalStream::Blocked> LocalStream::PutIntoRing(Message& message) {
  const RingWriter::Reserved place = writer_->Reserve(message.payload_bytes);
  if (place.outcome == RingWriter::Outcome::kFull) return Blocked::kByRing;
  if (place.outcome == RingWriter::Outcome::kBroken) {
    return absl::InvalidArgumentError("the other end spoilt the ring");
  }
  char* to = place.data;
  for (const auto& run : message.payload) {
    std::memcpy(to, run.data(), run.size() * sizeof(float));
    to += run.size() * sizeof(float);
  }
  Prologue prologue;
  std::memcpy(&prologue, message.front.data(), sizeof prologue);
  prologue.kind = Prologue::kInRing;
  prologue.position = place.position;
  std::memcpy(message.front.data(), &prologue, sizeof prologue);
  return Blocked::kNot;
}

absl::StatusOr<LocalStream::Blocked> LocalStream::SendPartOf(Message& message) {
  if (writer_ != nullptr && !message.settled && message.payload_bytes > kSmallBytes) {
    if (message.lent) {
      Lend(message);
    } else {
      CAIRN_ASSIGN_OR_RETURN(const Blocked blocked, PutIntoRing(message));
      if (blocked != Blocked::kNot) return blocked;
    }
    message.payload.clear();
    message.payload_bytes = 0;
    message.settled = true;
  }
  while (message.sent < message.front.size() + message.payload_bytes) {
    absl::InlinedVector<iovec, 8> runs;
    size_t skip = message.sent;
    const auto add = [&](const void* data, size_t bytes) {
      if (skip >= bytes) {
        skip -= bytes;
      } else if (runs.size() < kMostRuns) {
        runs.push_back({const_cast<char*>(static_cast<const char*>(data)) + skip, bytes - skip});
        skip = 0;
      }
    };
    add(message.front.data(), message.front.size());
    for (const auto& run : message.payload) add(run.data(), run.size() * sizeof(float));
    msghdr parts{};
    parts.msg_iov = runs.data();
    parts.msg_iovlen = runs.size();
    const ssize_t sent = sendmsg(socket_.get(), &parts, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Blocked::kBySocket;
    if (sent < 0) return Lost("sending");
    message.sent += static_cast<size_t>(sent);
  }
  return Blocked::kNot;
}

// What ended it, for the other end; as far as that can be said between two messages.
void LocalStream::SayFarewell(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    while (pumping_) pumped_.Wait(mutex_);
    if (closing_ || (!outgoing_.empty() && outgoing_.front().sent > 0)) return;
  }
  const absl::string_view text = why.message().substr(0, kReadAhead);
  const Prologue prologue = {.kind = Prologue::kFarewell,
                             .header_bytes = static_cast<uint32_t>(text.size()),
                             .payload_bytes = static_cast<uint32_t>(why.code())};
  std::string message(reinterpret_cast<const char*>(&prologue), sizeof prologue);
  absl::StrAppend(&message, text);
  (void)SendPassing(socket_, message, {});
}

// --- Receiving ---

// False: there is no more at present.
absl::StatusOr<bool> LocalStream::ReceiveInto(char* to, size_t count, size_t* got) {
  for (;;) {
    const ssize_t received = recv(socket_.get(), to, count, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      unread_ = false;
      return false;
    }
    if (received < 0) return Lost("receiving");
    if (received == 0) return TheyEnded();
    *got += static_cast<size_t>(received);
    return true;
  }
}

absl::Status LocalStream::Receive() {
  unread_ = true;
  for (int messages = 0; messages < kTurn;) {
    // What must be here before the next step can be made.
    Prologue prologue;
    size_t needed = sizeof prologue;
    if (in_end_ - in_begin_ >= needed) {
      std::memcpy(&prologue, in_.data() + in_begin_, sizeof prologue);
      if (prologue.header_bytes > kMaxHeaderBytes) {
        return absl::InvalidArgumentError(absl::StrCat("frame: header of ", prologue.header_bytes, " bytes"));
      }
      if (prologue.runs > kMostLentRuns) {
        return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.runs, " runs"));
      }
      needed += prologue.header_bytes + prologue.runs * sizeof(LentRun);
    }
    if (in_end_ - in_begin_ < needed) {
      std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
      in_end_ -= std::exchange(in_begin_, 0);
      if (in_.size() < needed) in_.resize(needed);
      CAIRN_ASSIGN_OR_RETURN(const bool more,
                             ReceiveInto(in_.data() + in_end_, in_.size() - in_end_, &in_end_));
      if (!more) return absl::OkStatus();
      continue;
    }
    const absl::Span<const char> front(in_.data() + in_begin_ + sizeof prologue, needed - sizeof prologue);
    if (prologue.kind == Prologue::kFarewell) {
      if (prologue.payload_bytes == 0 || front.empty()) return TheyEnded();
      return absl::Status(static_cast<absl::StatusCode>(prologue.payload_bytes),
                          absl::string_view(front.data(), front.size()));
    }
    if (prologue.payload_bytes > kMaxPayloadBytes) {
      return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.payload_bytes, " bytes"));
    }
    if (prologue.kind == Prologue::kInline && prologue.payload_bytes > 0) {
      // The header stays in in_ until its payload is whole; what follows it there is the payload's beginning.
      payload_.resize(std::max<size_t>(payload_.size(), prologue.payload_bytes));
      const size_t here = std::min(in_end_ - in_begin_ - needed, prologue.payload_bytes - payload_got_);
      if (here > 0) {
        std::memcpy(payload_.data() + payload_got_, in_.data() + in_begin_ + needed, here);
        std::memmove(in_.data() + in_begin_ + needed, in_.data() + in_begin_ + needed + here,
                     in_end_ - in_begin_ - needed - here);
        in_end_ -= here;
        payload_got_ += here;
      }
      if (payload_got_ < prologue.payload_bytes) {
        CAIRN_ASSIGN_OR_RETURN(const bool more,
                               ReceiveInto(payload_.data() + payload_got_,
                                           prologue.payload_bytes - payload_got_, &payload_got_));
        if (!more) return absl::OkStatus();
        continue;
      }
    }
    CAIRN_RETURN_IF_ERROR(Deliver(prologue, front));
    payload_got_ = 0;
    in_begin_ += needed;
    ++messages;
    MutexLock lock(mutex_);
    if (closing_ || outgoing_.size() > options_.rest_above) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status LocalStream::Deliver(const Prologue& prologue, absl::Span<const char> front) {
  if (prologue.kind == Prologue::kLent && peer_ != nullptr) return DeliverLent(prologue, front);
  if (prologue.kind == Prologue::kBorrowed) return TakeBack(prologue.position);
  if (prologue.kind == Prologue::kBorrows && server_) {
    lends_ = options_.lends;
    return absl::OkStatus();
  }
  const absl::Span<const char> header = front.subspan(0, prologue.header_bytes);
  if (prologue.kind == Prologue::kInline) {
    const absl::Span<const char> run(payload_.data(), prologue.payload_bytes);
    return receiver_.OnMessage(header, run.empty() ? Payload() : Payload(&run, 1));
  }
  if (prologue.kind != Prologue::kInRing || reader_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("frame: kind ", static_cast<uint32_t>(prologue.kind)));
  }
  const auto run = reader_->Take(prologue.position, prologue.payload_bytes);
  if (!run.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.payload_bytes, " bytes at ",
                                                   prologue.position, ", which is not in the ring"));
  }
  CAIRN_RETURN_IF_ERROR(receiver_.OnMessage(header, Payload(&*run, 1)));
  if (reader_->GiveBack()) (void)send(credit_.get(), "c", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return absl::OkStatus();
}

absl::Status LocalStream::DeliverLent(const Prologue& prologue, absl::Span<const char> front) {
  absl::InlinedVector<LentRun, 8> runs(prologue.runs);
  if (!runs.empty()) std::memcpy(runs.data(), front.data() + prologue.header_bytes, runs.size() * sizeof(LentRun));
  uint64_t bytes = 0;
  for (const LentRun& run : runs) bytes += std::min<uint64_t>(run.bytes, kMaxPayloadBytes + 1);
  if (bytes == 0 || bytes != prologue.payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: payload of ", prologue.payload_bytes, " bytes, of which ", bytes,
                                                   " are lent"));
  }
  const LentPayload payload(*peer_, runs, bytes);
  CAIRN_RETURN_IF_ERROR(receiver_.OnMessage(front.subspan(0, prologue.header_bytes), Payload(payload)));
  ++borrowed_;
  return payload.status();
}

absl::Status LocalStream::TakeBack(uint64_t count) {
  std::vector<std::shared_ptr<const void>> released;  // outside the lock
  MutexLock lock(mutex_);
  if (count > lent_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: ", count, " payloads read, of ", lent_.size(), " lent"));
  }
  for (; count > 0; --count, lent_.pop_front()) released.push_back(std::move(lent_.front()));
  progressed_ = true;
  return absl::OkStatus();
}

void LocalStream::TellBorrowed() {
  if (borrowed_ == 0) return;
  const Prologue told = {.kind = Prologue::kBorrowed, .position = std::exchange(borrowed_, 0)};
  Message message;
  message.front.assign(reinterpret_cast<const char*>(&told), sizeof told);
  Queue(std::move(message));
}

}  // namespace cairn::net
