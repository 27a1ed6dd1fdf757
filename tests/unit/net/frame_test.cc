#include "common/net/wire/frame.h"

#include <numeric>
#include <string>

#include "cairn/v1/session.pb.h"
#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using testing::ElementsAre;

v1::ClientHeader ChunkAt(int64_t offset) {
  v1::ClientHeader header;
  header.set_request_id(300);
  header.mutable_chunk()->set_offset(offset);
  return header;
}

std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

grpc::ByteBuffer InPieces(const std::vector<std::string>& fragments) {
  std::vector<grpc::Slice> slices;
  for (const std::string& fragment : fragments) slices.emplace_back(fragment);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::vector<float> FloatsOf(Payload payload) {
  std::vector<float> floats(static_cast<size_t>(PayloadBytes(payload)) / sizeof(float));
  EXPECT_EQ(CopyPayload(payload, floats.data()), absl::OkStatus());
  return floats;
}

std::string Encoded(const v1::ClientHeader& header, const std::vector<float>& payload) {
  const absl::Span<const float> run(payload);
  return ToString(EncodeFrame(header, {&run, 1}, nullptr));
}

TEST(Frame, RoundTrips) {
  const float first[] = {1, 2}, second[] = {3};
  const absl::Span<const float> runs[] = {first, {}, second};
  DecodedFrame frame;
  v1::ClientHeader header;
  ASSERT_EQ(frame.Decode(EncodeFrame(ChunkAt(7), runs, nullptr), &header), absl::OkStatus());
  EXPECT_EQ(header.request_id(), 300u);
  EXPECT_EQ(header.chunk().offset(), 7);
  EXPECT_THAT(FloatsOf(frame.payload()), ElementsAre(1, 2, 3));
}

TEST(Frame, IsTheProtobufMessageOnTheWireBothWays) {
  v1::ClientFrame message;
  ASSERT_TRUE(message.ParseFromString(Encoded(ChunkAt(7), {1.5f, 2.5f})));
  EXPECT_EQ(message.header().chunk().offset(), 7);
  ASSERT_EQ(message.payload().size(), 8u);

  DecodedFrame frame;
  v1::ClientHeader header;
  ASSERT_EQ(frame.Decode(InPieces({message.SerializeAsString()}), &header), absl::OkStatus());
  EXPECT_EQ(header.request_id(), 300u);
  EXPECT_THAT(FloatsOf(frame.payload()), ElementsAre(1.5f, 2.5f));
}

TEST(Frame, MayArriveInSlicesCutAtAnyByte) {
  const std::string bytes = Encoded(ChunkAt(1 << 20), {1, 2, 3});
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      DecodedFrame frame;
      v1::ClientHeader header;
      const auto message =
          InPieces({bytes.substr(0, first), bytes.substr(first, second - first), bytes.substr(second)});
      ASSERT_EQ(frame.Decode(message, &header), absl::OkStatus()) << first << " " << second;
      ASSERT_EQ(header.chunk().offset(), 1 << 20);
      ASSERT_THAT(FloatsOf(frame.payload()), ElementsAre(1, 2, 3));
    }
  }
}

TEST(Frame, WithoutAPayloadIsOnlyAHeader) {
  v1::ClientHeader end;
  end.set_request_id(1);
  end.mutable_end();
  DecodedFrame frame;
  v1::ClientHeader header;
  ASSERT_EQ(frame.Decode(EncodeFrame(end, {}, nullptr), &header), absl::OkStatus());
  EXPECT_TRUE(header.has_end());
  EXPECT_TRUE(frame.payload().empty());
}

TEST(Frame, TruncatedAnywhereIsRefused) {
  const std::string bytes = Encoded(ChunkAt(7), {1, 2});
  const size_t header_ends = Encoded(ChunkAt(7), {}).size();
  for (size_t length = 0; length < bytes.size(); ++length) {
    if (length == header_ends) continue;  // a whole frame without a payload
    DecodedFrame frame;
    v1::ClientHeader header;
    EXPECT_EQ(frame.Decode(InPieces({bytes.substr(0, length)}), &header).code(),
              absl::StatusCode::kInvalidArgument)
        << length;
  }
}

TEST(Frame, WithMoreThanItAnnouncesIsRefused) {
  DecodedFrame frame;
  v1::ClientHeader header;
  EXPECT_FALSE(frame.Decode(InPieces({Encoded(ChunkAt(7), {1}) + "x"}), &header).ok());
  EXPECT_FALSE(frame.Decode(InPieces({Encoded(ChunkAt(7), {}) + Encoded(ChunkAt(7), {1})}), &header).ok());
}

TEST(Frame, LargerThanTheLimitsIsRefused) {
  v1::ClientFrame message;
  *message.mutable_header() = ChunkAt(0);
  message.set_payload(std::string(static_cast<size_t>(kMaxPayloadBytes), 'x'));
  DecodedFrame frame;
  v1::ClientHeader header;
  EXPECT_TRUE(frame.Decode(InPieces({message.SerializeAsString()}), &header).ok());
  message.mutable_payload()->append(4, 'x');
  EXPECT_FALSE(frame.Decode(InPieces({message.SerializeAsString()}), &header).ok());

  v1::ClientFrame long_header;
  long_header.mutable_header()->mutable_read()->set_marker(
      std::string(static_cast<size_t>(kMaxHeaderBytes), 'm'));
  EXPECT_FALSE(frame.Decode(InPieces({long_header.SerializeAsString()}), &header).ok());
}

TEST(Frame, GarbageIsRefusedOrDecodedButNeverMore) {
  Random random(11, "frame");
  const std::string bytes = Encoded(ChunkAt(7), {1, 2, 3, 4});
  for (int trial = 0; trial < 20000; ++trial) {
    std::string mutated = bytes;
    for (uint32_t change = 0; change <= random.NextBelow(4); ++change) {
      mutated[random.NextBelow(static_cast<uint32_t>(mutated.size()))] =
          static_cast<char>(random.NextBelow(256));
    }
    DecodedFrame frame;
    v1::ClientHeader header;
    if (frame.Decode(InPieces({mutated}), &header).ok()) {
      ASSERT_LE(PayloadBytes(frame.payload()), static_cast<int64_t>(mutated.size()));
    }
  }
}

// Messages that wait for a stalled server thus refer to the gradient itself, not to copies of it.
TEST(Frame, RefersToThePayloadInsteadOfCopyingIt) {
  const std::vector<float> values(1000, 1.0f);
  const absl::Span<const float> payload(values);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(EncodeFrame(v1::ClientHeader(), {&payload, 1}, nullptr).Dump(&slices).ok());
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(static_cast<const void*>(slices[1].begin()), values.data());
}

TEST(Frame, KeepsThePayloadsOwnerUntilTheMessageIsGone) {
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2});
  const std::weak_ptr<std::vector<float>> watch = owner;
  const absl::Span<const float> run(*owner);
  {
    const grpc::ByteBuffer message = EncodeFrame(ChunkAt(0), {&run, 1}, owner);
    owner.reset();
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace cairn::net
