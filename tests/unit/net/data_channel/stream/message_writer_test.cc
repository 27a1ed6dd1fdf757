#include "common/net/data_channel/stream/message_writer.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/stream/stream_options.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

class MessageWriterTest : public testing::Test {
 protected:
  OutgoingMessage Message(absl::Span<const float> payload) {
    return {.prologue = {.header_bytes = 6,
                         .payload_bytes = static_cast<uint32_t>(payload.size() * sizeof(float))},
            .header = "header",
            .payload = {payload}};
  }
  // All that the other end can read now.
  std::string Read() {
    std::string all;
    std::vector<char> room(size_t{1} << 16);
    for (;;) {
      const ssize_t got = recv(ends_.second.get(), room.data(), room.size(), MSG_DONTWAIT);
      if (got <= 0) return all;
      all.append(room.data(), static_cast<size_t>(got));
    }
  }

  std::pair<FileDescriptor, FileDescriptor> ends_ = SocketPair().value();
  MessageWriter writer_{ends_.first, /*pins=*/false};
};

TEST_F(MessageWriterTest, AMessageThatDoesNotFitIsContinuedWhenThereIsRoom) {
  const std::vector<float> payload(size_t{256} << 10, 1.0f);
  OutgoingMessage message = Message(payload);
  std::string got;
  absl::StatusOr<Blocked> blocked = writer_.Write(message);
  ASSERT_EQ(blocked.value(), Blocked::kBySocket);
  for (int i = 0; i < 1000 && *blocked == Blocked::kBySocket; ++i) {
    got += Read();
    blocked = writer_.Write(message);
    ASSERT_EQ(blocked.status(), absl::OkStatus());
  }
  ASSERT_EQ(*blocked, Blocked::kNot);
  got += Read();
  const size_t bytes = payload.size() * sizeof(float);
  ASSERT_EQ(got.size(), sizeof(DataPrologue) + 6 + bytes);
  EXPECT_EQ(got.substr(sizeof(DataPrologue), 6), "header");
  EXPECT_TRUE(got.substr(sizeof(DataPrologue) + 6) ==
              std::string(reinterpret_cast<const char*>(payload.data()), bytes));
}

TEST_F(MessageWriterTest, LargePayloadsGoThroughTheRingUntilItIsFull) {
  const auto rings = SharedRings::Create(kRingBytes).value();
  writer_.UseRing(*rings, 0);
  RingReader reader(*rings, 0);
  const std::vector<float> payload(static_cast<size_t>(kFragmentFloats), 2.0f);
  for (int i = 0; i < 2; ++i) {
    OutgoingMessage message = Message(payload);
    EXPECT_EQ(writer_.Write(message).value(), Blocked::kNot);
    EXPECT_EQ(message.prologue.kind, DataPrologue::kInRing);
  }
  OutgoingMessage message = Message(payload);
  EXPECT_EQ(writer_.Write(message).value(), Blocked::kByRing);
  ASSERT_TRUE(reader.Take(0, payload.size() * sizeof(float)).has_value());
  EXPECT_TRUE(reader.Release()) << "the writer waits";
  EXPECT_EQ(writer_.Write(message).value(), Blocked::kNot);
}

TEST_F(MessageWriterTest, OnlyLargePayloadsInLargeRunsArePinned) {
  MessageWriter pins(ends_.first, /*pins=*/true);
  const std::vector<float> memory(size_t{32} << 10);  // 128 KiB
  const absl::Span<const float> all = memory;
  const auto pinned = [&](absl::Span<const absl::Span<const float>> payload) { return pins.Pins(payload); };
  EXPECT_TRUE(pinned({all}));
  EXPECT_FALSE(pinned({all.subspan(1)}));
  std::vector<absl::Span<const float>> runs;
  for (size_t at = 0; at < all.size(); at += 2048) runs.push_back(all.subspan(at, 2048));
  EXPECT_FALSE(pinned(runs));
  const absl::Span<const float> one[] = {all};
  EXPECT_FALSE(writer_.Pins(one));
}

TEST_F(MessageWriterTest, AClosedSocketIsAnError) {
  ends_.second.Reset();
  OutgoingMessage message = Message({});
  EXPECT_EQ(writer_.Write(message).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cairn::net
