#include "client/transport/request.h"

#include <chrono>
#include <limits>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/borrowed.h"
#include "tests/support/recording_streams.h"

namespace cairn::client {
namespace {

using test::RecordingStreams;
using testing::Each;
using testing::ElementsAre;

v1::Chunk At(int64_t offset) {
  v1::Chunk chunk;
  chunk.set_offset(offset);
  return chunk;
}

// The servers store [a: 4 rows of 2 | split after row 3 | the rest on ps/1] and [b: 2 elements].
class ExtentsTest : public testing::Test {
 protected:
  ExtentsTest() {
    const std::vector<net::VariableInfo> variables = {{"b", Shape({2}), 0}, {"a", Shape({4, 2}), 2}};
    const std::vector<std::vector<net::Slice>> slices = {
        {{"a", Shape({4, 2}), 0, 3, 0}, {"unknown", Shape({1}), 0, 1, 6}, {"b", Shape({2}), 0, 2, 7}},
        {{"a", Shape({4, 2}), 3, 4, 0}}};
    layout_ = net::Layout::Create(variables, slices).value();
  }
  net::Layout layout_;
};

TEST_F(ExtentsTest, MapBetweenTheFlatBufferAndTheServers) {
  EXPECT_EQ(layout_.arena_size(0), 9);
  EXPECT_EQ(layout_.arena_size(1), 2);
  const auto a = layout_.extents_of(1);
  ASSERT_EQ(a.size(), 2u);
  EXPECT_EQ(a[0].server, 0);
  EXPECT_EQ(a[0].local_offset, 2);
  EXPECT_EQ(a[0].count, 6);
  EXPECT_EQ(a[1].server, 1);
  EXPECT_EQ(a[1].local_offset, 8);
  EXPECT_EQ(a[1].count, 2);
  EXPECT_FALSE(layout_.covers(0)) << "'unknown' is not the user's";
  EXPECT_TRUE(layout_.covers(1));
}

TEST_F(ExtentsTest, ExtentsAdjacentOnBothSidesAreSentAsOneRun) {
  const std::vector<net::VariableInfo> variables = {
      {"a", Shape({3}), 0}, {"b", Shape({2}), 3}, {"c", Shape({4}), 5}};
  const std::vector<std::vector<net::Slice>> slices = {{{"a", Shape({3}), 0, 3, 0},
                                                        {"b", Shape({2}), 0, 2, 3},
                                                        {"unknown", Shape({1}), 0, 1, 5},
                                                        {"c", Shape({4}), 0, 4, 6}}};
  const net::Layout layout = net::Layout::Create(variables, slices).value();
  const auto runs = layout.extents_on(0);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].count, 5);
  EXPECT_EQ(runs[1].server_offset, 6);
  EXPECT_EQ(runs[1].local_offset, 5);
  EXPECT_EQ(layout.extents_of(1)[0].server_offset, 3) << "the extents of each variable stay unchanged";
}

// Chunks that begin and end at any element, in runs that begin and end at any byte.
TEST_F(ExtentsTest, ReceivedChunksMayBeCutAnywhere) {
  std::vector<float> arena(9);
  std::iota(arena.begin(), arena.end(), 100.0f);
  const char* const bytes = reinterpret_cast<const char*>(arena.data());
  for (size_t chunk_end = 1; chunk_end < 9; ++chunk_end) {
    for (size_t cut = 0; cut <= 9 * sizeof(float); ++cut) {
      std::vector<float> buffer(10, -1.0f);
      const std::unique_ptr<ChunkSink> sink = ReceiveInto(layout_.extents_on(0), absl::MakeSpan(buffer));
      const auto deliver = [&](size_t begin, size_t end) {
        const size_t from = begin * sizeof(float), to = end * sizeof(float);
        const size_t at = std::min(std::max(cut, from), to);
        const absl::Span<const char> runs[] = {{bytes + from, at - from}, {bytes + at, to - at}};
        ASSERT_EQ(sink->Add(At(static_cast<int64_t>(begin)), net::Payload(runs)), absl::OkStatus());
      };
      deliver(chunk_end, 9);
      deliver(0, chunk_end);
      ASSERT_THAT(buffer, ElementsAre(107, 108, 100, 101, 102, 103, 104, 105, -1, -1))
          << chunk_end << " " << cut;
    }
  }
}

TEST_F(ExtentsTest, BorrowedValuesAreScatteredToAllExtents) {
  std::vector<float> arena(9);
  std::iota(arena.begin(), arena.end(), 100.0f);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t end = begin + 1; end <= 9; ++end) {
      std::vector<float> buffer(10, -1.0f), wanted(10, -1.0f);
      const std::unique_ptr<ChunkSink> sink = ReceiveInto(layout_.extents_on(0), absl::MakeSpan(buffer));
      const net::Borrowed borrowed(absl::MakeConstSpan(arena).subspan(begin, end - begin));
      ASSERT_EQ(sink->Add(At(static_cast<int64_t>(begin)), borrowed), absl::OkStatus());
      for (size_t i = begin; i < end; ++i) {
        if (i != 6) wanted[i < 6 ? i + 2 : i - 7] = arena[i];  // the value of element 6 is undefined
      }
      EXPECT_EQ(buffer, wanted) << begin << " " << end;
    }
  }
}

TEST_F(ExtentsTest, ChunksOutsideTheExtentsChangeNothing) {
  std::vector<float> buffer(10, -1.0f);
  const std::unique_ptr<ChunkSink> sink = ReceiveInto(layout_.extents_on(0), absl::MakeSpan(buffer));
  const absl::Span<const char> six_bytes("123456", 6), eight_bytes("12345678", 8);
  EXPECT_EQ(sink->Add(At(0), {&six_bytes, 1}).code(), absl::StatusCode::kInvalidArgument);
  for (int64_t offset : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(sink->Add(At(offset), {&eight_bytes, 1}).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(sink->Add(At(100), {&eight_bytes, 1}), absl::OkStatus()) << "after the last extent";
  EXPECT_THAT(buffer, Each(-1));
}

TEST_F(ExtentsTest, AChunkWithinOneExtentIsReceivedInPlace) {
  std::vector<float> buffer(10, -1.0f);
  const std::unique_ptr<ChunkSink> sink = ReceiveInto(layout_.extents_on(0), absl::MakeSpan(buffer));
  const auto extents = layout_.extents_on(0);
  ASSERT_FALSE(extents.empty());
  for (const net::Extent& extent : extents) {
    for (int64_t first = 0; first < extent.count; ++first) {
      for (int64_t count = 1; count <= extent.count - first; ++count) {
        const absl::Span<float> place = sink->DestinationFor(At(extent.server_offset + first), count);
        EXPECT_EQ(place.data(), buffer.data() + extent.local_offset + first);
        EXPECT_EQ(place.size(), static_cast<size_t>(count));
      }
      EXPECT_TRUE(sink->DestinationFor(At(extent.server_offset + first), extent.count - first + 1).empty());
    }
  }
  for (int64_t offset : {int64_t{-1}, int64_t{100}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_TRUE(sink->DestinationFor(At(offset), 1).empty());
  }
  v1::Chunk encoded = At(0);
  encoded.set_encoding(v1::ENCODING_BFLOAT16);
  encoded.set_count(2);
  EXPECT_TRUE(sink->DestinationFor(encoded, 1).empty());
  EXPECT_THAT(buffer, Each(-1));
}

TEST_F(ExtentsTest, RequestedValuesAreReceivedInPlace) {
  RecordingStreams streams;
  std::vector<float> buffer(10);
  PendingDone done, other_done;  // outlive the session, whose end completes open requests
  ServerSession session(streams);
  const uint64_t id =
      session.Begin({}, ReceiveInto(layout_.extents_on(0), absl::MakeSpan(buffer)), done.Callback()).value();
  const uint64_t other = session.Begin({}, nullptr, other_done.Callback()).value();
  v1::ServerHeader header;
  header.set_request_id(id);
  EXPECT_TRUE(streams.opened->BeginFrame(header, 4).empty()) << "an answer's end has no payload";
  *header.mutable_chunk() = At(layout_.extents_on(0)[0].server_offset);
  const absl::Span<char> place = streams.opened->BeginFrame(header, 4);
  EXPECT_EQ(place.data(), reinterpret_cast<char*>(buffer.data() + layout_.extents_on(0)[0].local_offset));
  EXPECT_EQ(place.size(), 4u);
  for (size_t bytes : {0, 2, 5}) EXPECT_TRUE(streams.opened->BeginFrame(header, bytes).empty());
  header.set_request_id(other);
  EXPECT_TRUE(streams.opened->BeginFrame(header, 4).empty()) << "this request asked for no values";
  header.set_request_id(id);
  header.mutable_done();
  streams.opened->OnFrame(header, {});
  *header.mutable_chunk() = At(layout_.extents_on(0)[0].server_offset);
  EXPECT_TRUE(streams.opened->BeginFrame(header, 4).empty()) << "this request has been answered";
}

TEST_F(ExtentsTest, AWaitForAnAnswerEndsWhenItIsStopped) {
  RecordingStreams streams;
  PendingDone done;  // outlives the session, whose end completes open requests
  ServerSession session(streams);
  ASSERT_EQ(session.Begin({}, nullptr, done.Callback()).status(), absl::OkStatus());
  int polls = 0;
  const auto ended = done.Wait(session, std::chrono::minutes(5), [&] { return ++polls == 2; });
  EXPECT_EQ(ended.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(done.Wait(session, std::chrono::milliseconds(1)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ExtentsTest, ExtentsAdjacentOnTheServerShareAChunk) {
  RecordingStreams streams;
  ServerSession session(streams);
  std::vector<float> buffer(10);
  std::iota(buffer.begin(), buffer.end(), 0.0f);
  // In the arena, [0, 2) and [2, 3) are adjacent, [5, 6) is separate.
  const net::Extent extents[] = {{0, 0, 4, 2}, {0, 2, 9, 1}, {0, 5, 0, 1}};
  SendExtents(session, 1, extents, buffer);
  ASSERT_EQ(streams.chunks.size(), 2u);
  EXPECT_EQ(streams.chunks[0].chunk.offset(), 0);
  EXPECT_THAT(streams.chunks[0].values, ElementsAre(4, 5, 9));
  EXPECT_EQ(streams.chunks[0].runs, 2u);
  EXPECT_EQ(streams.chunks[1].chunk.offset(), 5);
  EXPECT_THAT(streams.chunks[1].values, ElementsAre(0));
}

TEST(SendExtents, CutsAtTheLargestPayload) {
  RecordingStreams streams;
  ServerSession session(streams);
  const int64_t count = 2 * net::kMaxPayloadFloats + 7;
  const std::vector<float> buffer(static_cast<size_t>(count), 1.0f);
  const net::Extent extent = {0, 10, 0, count};
  SendExtents(session, 1, {&extent, 1}, buffer);
  ASSERT_EQ(streams.chunks.size(), 3u);
  EXPECT_EQ(streams.chunks[1].chunk.offset(), 10 + net::kMaxPayloadFloats);
  EXPECT_EQ(static_cast<int64_t>(streams.chunks[1].values.size()), net::kMaxPayloadFloats);
  EXPECT_EQ(streams.chunks[2].values.size(), 7u);
}

TEST_F(ExtentsTest, ChunksIn16BitsAreOneRunAndDecodeToTheSameValues) {
  RecordingStreams streams;
  ServerSession session(streams);
  std::vector<float> buffer(10), room(9), received(10, -1.0f);
  std::iota(buffer.begin(), buffer.end(), 0.0f);
  const net::Extent extents[] = {{0, 0, 4, 2}, {0, 2, 9, 1}, {0, 5, 0, 1}};
  SendExtents(session, 1, extents, buffer, {.encoding = v1::ENCODING_BFLOAT16, .room = absl::MakeSpan(room)});
  ASSERT_EQ(streams.chunks.size(), 2u);
  EXPECT_EQ(streams.chunks[0].runs, 1u);
  EXPECT_EQ(streams.chunks[0].chunk.count(), 3);
  EXPECT_EQ(streams.chunks[0].values.size(), 2u);
  EXPECT_EQ(streams.chunks[1].chunk.count(), 1);
  const std::unique_ptr<ChunkSink> sink = ReceiveInto(extents, absl::MakeSpan(received));
  for (const RecordingStreams::Sent& sent : streams.chunks) {
    const absl::Span<const char> run(reinterpret_cast<const char*>(sent.values.data()),
                                     sent.values.size() * sizeof(float));
    EXPECT_EQ(sink->Add(sent.chunk, {&run, 1}), absl::OkStatus());
  }
  EXPECT_THAT(received, ElementsAre(0, -1, -1, -1, 4, 5, -1, -1, -1, 9));
}

}  // namespace
}  // namespace cairn::client
