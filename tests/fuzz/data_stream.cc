// Bytes that a client on this host sends on its socket after the handshake. The bits of the first byte: the
// client shares memory; it offers its own memory, of which one page can be read; a page comes with the bytes,
// for a region that they may declare.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/stream/stream.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace cairn;

// Reads all that it is given.
class Reader final : public net::DataReceiver {
 public:
  absl::StatusOr<absl::Span<char>> Begin(absl::Span<const char> header, size_t) override {
    FUZZ_CHECK(header.size() <= static_cast<size_t>(net::kMaxHeaderBytes));
    sum_ += std::count(header.begin(), header.end(), '\0');
    FUZZ_CHECK(!std::exchange(begun_, true));
    return absl::Span<char>();
  }
  absl::Status Complete(net::Payload payload) override {
    FUZZ_CHECK(std::exchange(begun_, false));
    std::string borrowed(payload.borrowed() != nullptr ? payload.borrowed()->size() : 0, '\0');
    if (!borrowed.empty()) CAIRN_RETURN_IF_ERROR(net::CopyPayload(payload, borrowed.data()));
    const auto kept = payload.borrowed() != nullptr ? payload.borrowed()->Keep() : std::nullopt;
    if (kept.has_value()) {
      std::string together;
      for (const auto& run : kept->runs) together.append(run.begin(), run.end());
      FUZZ_CHECK(together.size() == borrowed.size());
      sum_ += std::count(together.begin(), together.end(), '\0');
    }
    FUZZ_CHECK(net::PayloadBytes(payload) <= net::kMaxPayloadBytes);
    for (const auto& run : payload.runs()) sum_ += std::count(run.begin(), run.end(), '\0');
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override { FUZZ_CHECK(!status.ok() && !status.message().empty()); }

 private:
  int64_t sum_ = 0;
  bool begun_ = false;  // a message has begun and is not complete
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  Reader reader;
  auto ends = net::SocketPair();
  auto credit = net::SocketPair();
  if (!ends.ok() || !credit.ok()) return 0;
  static const auto region = net::SharedMemory::Create(4096, net::SharedMemory::Access::kRead).value();
  static const auto rings = net::SharedRings::Create(net::DataStream::kRingBytes).value();
  const auto stream =
      net::DataStream::Accept(std::move(ends->first), true, {.incarnation = 1, .offers_memory = true}, reader)
          .value();
  FUZZ_CHECK(stream->Start().ok());
  const bool shares = (data[0] & 1) != 0, offers_memory = (data[0] & 2) != 0;
  static const uint64_t probe = 42;
  const net::DataHandshake handshake = {
      .incarnation = 1,
      .shared = shares ? uint64_t{1} : 0,
      .probe = {.address = offers_memory ? reinterpret_cast<uint64_t>(&probe) : 0, .value = probe},
      .maps = shares ? uint64_t{1} : 0};
  const int passed[] = {rings->descriptor(), credit->second.get()};
  FUZZ_CHECK(net::SendPassing(ends->second, net::BytesOf(handshake), {passed, shares ? size_t{2} : 0}).ok());
  const int page[] = {region.descriptor().get()};
  (void)net::SendPassing(ends->second, {reinterpret_cast<const char*>(data) + 1, size - 1},
                         {page, (data[0] & 4) != 0 ? size_t{1} : 0});
  shutdown(ends->second.get(), SHUT_WR);  // the stream reads to the end of the input, or ends earlier
  char answer[64];
  do {
    pollfd ready = {.fd = ends->second.get(), .events = POLLIN, .revents = 0};
    poll(&ready, 1, 1000);
  } while (!stream->ended() && recv(ends->second.get(), answer, sizeof answer, 0) > 0);
  stream->Close();
  return 0;
}
