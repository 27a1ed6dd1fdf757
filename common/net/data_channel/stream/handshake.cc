#include "common/net/data_channel/stream/handshake.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "common/core/clock.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/security/seal.h"
#include "common/system/entropy.h"

namespace cairn::net {
namespace {

// The time limits of the handshake. The client begins it when it connects, and a server that is not stopped
// answers at once.
constexpr auto kClientsHandshake = std::chrono::seconds(10);
constexpr auto kServersHandshake = std::chrono::seconds(5);
constexpr auto kStopCheckEvery = std::chrono::milliseconds(100);

template <typename T>
absl::Span<char> RoomOf(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof value};
}

}  // namespace

StreamHandshake::StreamHandshake(const FileDescriptor& socket, bool shared, const StreamOptions& options)
    : socket_(socket), shared_(shared), options_(options), probe_(DrawRandomBits()) {}

DataHandshake StreamHandshake::Ours() const {
  DataHandshake handshake = {.incarnation = options_.incarnation,
                             .shard = options_.target.shard,
                             .replicates = options_.target.replicates ? uint64_t{1} : 0,
                             .shared = shared_ ? uint64_t{1} : 0};
  if (shared_ && options_.offers_memory) {
    handshake.maps = 1;
    handshake.probe = {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_};
  }
  return handshake;
}

std::unique_ptr<PeerMemory> StreamHandshake::OpenPeer(const DataHandshake& theirs) const {
  if (theirs.shared == 0 || !options_.offers_memory) return nullptr;
  return PeerMemory::Open(socket_.get(), theirs.probe);
}

absl::Status StreamHandshake::AwaitAnswer() const {
  const TimePoint deadline = SteadyNow() + kServersHandshake;
  while (options_.stopped && SteadyNow() < deadline) {
    pollfd ready = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(kStopCheckEvery.count())) > 0) return absl::OkStatus();
    if (options_.stopped()) return absl::CancelledError("stopped");
  }
  if (!options_.stopped) return absl::OkStatus();  // the caller's receive has the limit
  return absl::DeadlineExceededError("the server has not answered the handshake");
}

absl::StatusOr<StreamTerms> StreamHandshake::Request() {
  StreamTerms terms;
  DataHandshake handshake = Ours();
  // Only the client proves that it knows the key: a stranger that connects to this server learns nothing.
  std::copy_n(options_.key.begin(), std::min(options_.key.size(), handshake.key.size()),
              handshake.key.begin());
  FileDescriptor theirs;
  std::vector<int> passed;
  if (shared_) {
    CAIRN_ASSIGN_OR_RETURN(terms.rings, SharedRings::Create(kRingBytes));
    CAIRN_ASSIGN_OR_RETURN(auto ends, SocketPair());
    terms.ring_wake = std::move(ends.first);
    theirs = std::move(ends.second);
    passed = {terms.rings->descriptor(), theirs.get()};
  }
  CAIRN_RETURN_IF_ERROR(SendPassing(socket_, BytesOf(handshake), passed));
  DataHandshake answer;
  CAIRN_RETURN_IF_ERROR(AwaitAnswer());
  CAIRN_RETURN_IF_ERROR(ReceivePassed(socket_, RoomOf(answer), kServersHandshake).status());
  if (answer.magic != DataHandshake::kMagic || answer.incarnation != handshake.incarnation ||
      answer.shared != handshake.shared) {
    return absl::UnavailableError("the answer to the handshake is from another server");
  }
  terms.peer_borrows = shared_ && answer.borrows != 0;
  terms.maps = handshake.maps != 0 && answer.maps != 0;
  terms.peer = OpenPeer(answer);
  if (terms.peer != nullptr) {
    const DataPrologue borrows = {.kind = DataPrologue::kBorrowing};
    CAIRN_RETURN_IF_ERROR(SendPassing(socket_, BytesOf(borrows), {}));
  }
  return terms;
}

absl::StatusOr<StreamTerms> StreamHandshake::Answer(DataReceiver& receiver) {
  StreamTerms terms;
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
  CAIRN_RETURN_IF_ERROR(
      receiver.OnHandshake({.shard = handshake.shard, .replicates = handshake.replicates != 0}));
  DataHandshake answer = Ours();
  answer.shared = handshake.shared;
  if (handshake.shared != 0) {
    if (!shared_ || passed.size() != 2) return absl::UnavailableError("this server accepts no shared memory");
    CAIRN_ASSIGN_OR_RETURN(terms.rings, SharedRings::Open(std::move(passed[0])));
    terms.ring_wake = std::move(passed[1]);
    terms.peer = OpenPeer(handshake);
  } else {
    answer.maps = 0;
  }
  answer.borrows = terms.peer != nullptr ? 1 : 0;
  terms.maps = handshake.maps != 0 && answer.maps != 0;
  CAIRN_RETURN_IF_ERROR(SendPassing(socket_, BytesOf(answer), {}));
  return terms;
}

}  // namespace cairn::net
