// The test plays a hostile client, and sends arbitrary bytes to the server's end of a stream.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/data_channel/shared_memory/shared_memory.h"
#include "common/net/data_channel/socket/socket.h"
#include "common/net/data_channel/stream/stream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/net/data_channel/stream/data_ends.h"

namespace cairn::net {
namespace {

using ::testing::HasSubstr;

class HostileClientTest : public DataStreamTest {
 protected:
  // Begins the handshake, with shared memory.
  void Greet(bool offers_memory) {
    raw_ = StartRaw(offers_memory);
    const auto rings = SharedRings::Create(DataStream::kRingBytes).value();
    ring_wake_ = SocketPair().value();
    static const uint64_t probe = 42;
    const DataHandshake handshake = {.incarnation = kIncarnation,
                                     .shared = 1,
                                     .probe = {.address = reinterpret_cast<uint64_t>(&probe), .value = probe},
                                     .maps = 1};
    const int passed[] = {rings->descriptor(), ring_wake_.second.get()};
    EXPECT_EQ(SendPassing(raw_, BytesOf(handshake), passed), absl::OkStatus());
  }
  void SendRaw(const DataPrologue& prologue, absl::string_view rest, absl::Span<const int> passed = {}) {
    const std::string said = absl::StrCat(absl::string_view(BytesOf(prologue).data(), sizeof prologue), rest);
    EXPECT_EQ(SendPassing(raw_, {said.data(), said.size()}, passed), absl::OkStatus());
  }
  // Begins the handshake, then sends one prologue with `runs`. Returns the status with which the stream ends.
  absl::Status AfterSaying(const DataPrologue& prologue, bool offers_memory = false,
                           std::vector<BorrowedRun> runs = {}) {
    Greet(offers_memory);
    SendRaw(prologue, {reinterpret_cast<const char*>(runs.data()), runs.size() * sizeof(BorrowedRun)});
    return at_server_.AwaitEnd();
  }

  static FileDescriptor Memory(size_t bytes = 4096) {
    return SharedMemory::Create(bytes, SharedMemory::Access::kRead)->TakeDescriptor();
  }
  // Announces a region; by default with number 1 and one page.
  void SendRegion(const FileDescriptor& memory,
                  DataRegion told = {.number = 1, .address = kPlace, .bytes = 4096},
                  std::optional<uint32_t> header_bytes = std::nullopt) {
    const int passed[] = {memory.get()};
    SendRaw({.kind = DataPrologue::kRegion, .header_bytes = header_bytes.value_or(sizeof told)},
            {BytesOf(told).data(), header_bytes.value_or(sizeof told)},
            {passed, memory.valid() ? size_t{1} : 0});
  }
  absl::Status AfterBorrowing(uint64_t region, BorrowedRun run) {
    SendRaw({.kind = DataPrologue::kBorrowed,
             .payload_bytes = static_cast<uint32_t>(run.bytes),
             .runs = 1,
             .position = region},
            {BytesOf(run).data(), sizeof run});
    return at_server_.AwaitEnd();
  }
  static constexpr uint64_t kPlace = uint64_t{1} << 40;  // the address of the region in the client

  FileDescriptor raw_;
  std::pair<FileDescriptor, FileDescriptor> ring_wake_;
};
INSTANTIATE_TEST_SUITE_P(Over, HostileClientTest, testing::Values(Over::kRings));
class HostileOwnerTest : public HostileClientTest {};
INSTANTIATE_TEST_SUITE_P(Over, HostileOwnerTest, testing::Values(Over::kBorrowing));

TEST_P(HostileClientTest, AHeaderBeyondTheLimitEndsTheStream) {
  EXPECT_THAT(AfterSaying({.header_bytes = 0x80000000}).message(), HasSubstr("header of 2147483648 bytes"));
}
TEST_P(HostileClientTest, APayloadBeyondTheLimitEndsTheStream) {
  EXPECT_THAT(AfterSaying({.payload_bytes = 0xffffffff}).message(), HasSubstr("payload of 4294967295 bytes"));
}
TEST_P(HostileClientTest, AnUnknownKindEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = 99}).message(), HasSubstr("kind 99"));
}
TEST_P(HostileClientTest, APositionAcrossTheEndOfTheRingEndsTheStream) {
  EXPECT_THAT(
      AfterSaying(
          {.kind = DataPrologue::kInRing, .payload_bytes = 1 << 18, .position = DataStream::kRingBytes - 64})
          .message(),
      HasSubstr("not in the ring"));
}
TEST_P(HostileClientTest, APositionFarAheadEndsTheStream) {
  EXPECT_THAT(AfterSaying({1, 0, 64, 0, ~uint64_t{0} - 63}).message(), HasSubstr("not in the ring"));
}
TEST_P(HostileOwnerTest, AnInvalidAddressEndsTheStream) {
  const absl::Status end = AfterSaying({.kind = DataPrologue::kBorrowed, .payload_bytes = 4096, .runs = 1},
                                       /*offers_memory=*/true, {{.address = 64, .bytes = 4096}});
  EXPECT_EQ(end.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(end.message(), HasSubstr("borrowed memory: no such address"));
}
TEST_P(HostileOwnerTest, RunsOfAnotherSizeThanThePayloadEndTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DataPrologue::kBorrowed, .payload_bytes = 4096, .runs = 1},
                          /*offers_memory=*/true, {{.address = 64, .bytes = 8192}})
                  .message(),
              HasSubstr("payload of 4096 bytes does not match its runs of 8192 bytes"));
}
TEST_P(HostileOwnerTest, RunsWhoseSizesOverflowEndTheStream) {
  EXPECT_THAT(
      AfterSaying({.kind = DataPrologue::kBorrowed, .payload_bytes = 4096, .runs = 2}, /*offers_memory=*/true,
                  {{.address = 64, .bytes = ~uint64_t{0}}, {.address = 64, .bytes = 4097}})
          .message(),
      HasSubstr("payload of 4096 bytes does not match its runs of"));
}
TEST_P(HostileOwnerTest, TooManyRunsEndTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DataPrologue::kBorrowed, .payload_bytes = 4096, .runs = 257},
                          /*offers_memory=*/true)
                  .message(),
              HasSubstr("payload of 257 runs"));
}
TEST_P(HostileClientTest, ABorrowedPayloadForAServerThatDoesNotBorrowEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DataPrologue::kBorrowed, .payload_bytes = 4096, .runs = 1},
                          /*offers_memory=*/false, {{.address = 64, .bytes = 4096}})
                  .message(),
              HasSubstr("kind 3"));
}
TEST_P(HostileClientTest, ConfirmingMorePayloadsThanWereSentEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DataPrologue::kReleased, .position = 1}, /*offers_memory=*/true).message(),
              HasSubstr("1 payloads confirmed, but only 0 are outstanding"));
}
TEST_P(HostileClientTest, CreditFromAClientEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DataPrologue::kAllowed, .position = 1}).message(), HasSubstr("kind 9"));
}
TEST_P(HostileClientTest, AClientWithoutSharedMemoryCannotBorrow) {
  const FileDescriptor raw = StartRaw(/*offers_memory=*/true);
  const DataHandshake handshake = {.incarnation = kIncarnation};
  const DataPrologue borrows = {.kind = DataPrologue::kBorrowing};
  const std::string said = absl::StrCat(absl::string_view(BytesOf(handshake).data(), sizeof handshake),
                                        absl::string_view(BytesOf(borrows).data(), sizeof borrows));
  ASSERT_EQ(send(raw.get(), said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("kind 5"));
}
TEST_P(HostileClientTest, AnInvalidHandshakeEndsTheStream) {
  const FileDescriptor raw = StartRaw();
  const std::string nonsense(sizeof(DataHandshake), 'x');
  ASSERT_EQ(send(raw.get(), nonsense.data(), nonsense.size(), 0), static_cast<ssize_t>(nonsense.size()));
  EXPECT_EQ(at_server_.AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
}
TEST_P(HostileClientTest, ASocketInPlaceOfSharedMemoryIsRefused) {
  const FileDescriptor raw = StartRaw();
  const auto pair = SocketPair().value();
  const DataHandshake handshake = {.incarnation = kIncarnation, .shared = 1};
  const int passed[] = {pair.first.get(), pair.second.get()};
  ASSERT_EQ(SendPassing(raw, BytesOf(handshake), passed), absl::OkStatus());
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("not sealed"));
}

TEST_P(HostileClientTest, ARegionForAServerThatDoesNotBorrowEndsTheStream) {
  Greet(/*offers_memory=*/false);
  SendRegion(Memory());
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("kind 7"));
}
TEST_P(HostileClientTest, AnUnsealedRegionEndsTheStream) {
  Greet(/*offers_memory=*/true);
  const FileDescriptor memory(memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), 4096), 0);
  SendRegion(memory);
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("not sealed"));
}
TEST_P(HostileClientTest, AFileInPlaceOfARegionEndsTheStream) {
  Greet(/*offers_memory=*/true);
  SendRegion(FileDescriptor(open("/proc/self/exe", O_RDONLY | O_CLOEXEC)));
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("not sealed"));
}
TEST_P(HostileClientTest, ARegionLargerThanItsMemoryEndsTheStream) {
  Greet(/*offers_memory=*/true);
  SendRegion(Memory(), {.number = 1, .address = kPlace, .bytes = 8192});
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("region of 8192 bytes, but its memory has 4096"));
}
TEST_P(HostileClientTest, ARegionSmallerThanItsMemoryEndsTheStream) {
  Greet(/*offers_memory=*/true);
  SendRegion(Memory(8192));
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("shared memory cannot have 8192 bytes"));
}
TEST_P(HostileClientTest, ATruncatedRegionAnnouncementEndsTheStream) {
  Greet(/*offers_memory=*/true);
  SendRegion(Memory(), {.number = 1},
             /*header_bytes=*/8);
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("invalid announcement of 8 bytes for a region"));
}
TEST_P(HostileClientTest, ARegionAnnouncedTwiceEndsTheStream) {
  Greet(/*offers_memory=*/true);
  for (int i = 0; i < 2; ++i) SendRegion(Memory());
  EXPECT_THAT(at_server_.AwaitEnd().message(),
              HasSubstr("cannot map region 1: its number is 0 or in use, or 8 regions are mapped"));
}
TEST_P(HostileClientTest, TooManyRegionsEndTheStream) {
  Greet(/*offers_memory=*/true);
  for (uint64_t i = 1; i <= 9; ++i) {
    SendRegion(Memory(), {.number = i, .address = kPlace, .bytes = 4096});
  }
  EXPECT_THAT(at_server_.AwaitEnd().message(),
              HasSubstr("cannot map region 9: its number is 0 or in use, or 8 regions are mapped"));
}
TEST_P(HostileClientTest, DescriptorsWithoutARegionEndTheStream) {
  Greet(/*offers_memory=*/true);
  const int passed[] = {raw_.get(), raw_.get(), raw_.get()};
  for (int i = 0; i < 3; ++i) SendRaw({.header_bytes = 1}, "h", passed);
  EXPECT_THAT(at_server_.AwaitEnd().message(), HasSubstr("more descriptors than regions"));
}
TEST_P(HostileClientTest, APayloadInAnUnannouncedRegionEndsTheStream) {
  Greet(/*offers_memory=*/true);
  EXPECT_THAT(AfterBorrowing(1, {.address = kPlace, .bytes = 64}).message(),
              HasSubstr("region 1, which was not announced"));
}
TEST_P(HostileClientTest, ARegionWithoutItsDescriptorIsNotUsed) {
  Greet(/*offers_memory=*/true);
  SendRegion(FileDescriptor());
  EXPECT_THAT(AfterBorrowing(1, {.address = kPlace, .bytes = 64}).message(),
              HasSubstr("region 1, which was not announced"));
}
TEST_P(HostileClientTest, APayloadOutsideItsRegionEndsTheStream) {
  for (const BorrowedRun& run :
       {BorrowedRun{kPlace - 4, 64}, BorrowedRun{kPlace + 4096 - 60, 64}, BorrowedRun{kPlace + 4096, 4},
        BorrowedRun{~uint64_t{0} - 31, 64}, BorrowedRun{4, 64}}) {
    Greet(/*offers_memory=*/true);
    SendRegion(Memory());
    EXPECT_THAT(AfterBorrowing(1, run).message(), HasSubstr("lie outside the region")) << run.address;
    EXPECT_EQ(at_server_.messages(), 0u);
    server_.reset();
    at_server_.Forget();
  }
}
TEST_P(HostileClientTest, ConfirmingAnUnannouncedRegionEndsTheStream) {
  EXPECT_THAT(AfterSaying({.kind = DataPrologue::kMapped, .position = 3}, /*offers_memory=*/true).message(),
              HasSubstr("region 3 confirmed, which was not announced"));
}

}  // namespace
}  // namespace cairn::net
