#include "common/net/data_channel/shared_memory/shared_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/net/data_channel/shared_memory/mapped_region.h"
#include "common/net/data_channel/shared_memory/shared_memory.h"
#include "common/net/data_channel/socket/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/net/data_channel/stream/data_ends.h"

namespace cairn::net {
namespace {

constexpr int64_t kLarge = int64_t{3} << 20;  // elements: on huge pages, if available

// A matcher would take seconds for some of these.
template <typename T>
bool AllAre(absl::Span<T> values, std::remove_const_t<T> value) {
  return std::all_of(values.begin(), values.end(), [value](T of) { return of == value; });
}

// While it exists, the system refuses new file descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none = {.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

std::shared_ptr<const SharedRegion> RegionOf(absl::Span<const float> run) {
  return SharedBuffer::RegionOf({&run, 1});
}

// Maps `region`, as the other end of a stream would.
std::shared_ptr<const MappedRegion> Mapped(const SharedRegion& region) {
  return MappedRegion::Open({.number = region.number, .address = region.address, .bytes = region.bytes},
                            FileDescriptor(fcntl(region.memory.get(), F_DUPFD_CLOEXEC, 0)))
      .value();
}

absl::Span<const float> FloatsOf(const MappedRegion& region) {
  return {reinterpret_cast<const float*>(region.all().data()), region.all().size() / sizeof(float)};
}

TEST(SharedMemory, IsZeroedWholePagesOfASealedSize) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{12} << 20, (size_t{12} << 20) + 1}) {
    const auto memory = SharedMemory::Create(bytes, SharedMemory::Access::kRead);
    ASSERT_EQ(memory.status(), absl::OkStatus());
    EXPECT_EQ(memory->size(), (bytes + 4095) / 4096 * 4096);
    EXPECT_TRUE(AllAre(absl::MakeSpan(memory->data(), memory->size()), 0));
    EXPECT_NE(ftruncate(memory->descriptor().get(), 0), 0);
  }
}

TEST(SharedMemory, TwoMappingsShareContentsAndOneMayBeReadOnly) {
  auto memory = SharedMemory::Create(4096, SharedMemory::Access::kRead).value();
  const auto other =
      SharedMemory::Open(memory.TakeDescriptor(), SharedMemory::Access::kRead, /*most_bytes=*/4096).value();
  memory.data()[7] = 'x';
  EXPECT_EQ(other.data()[7], 'x');
  EXPECT_DEATH(other.data()[7] = 'y', "");
}

TEST(SharedMemory, ReadOnlyMemoryCannotBeMappedForWriting) {
  auto memory = SharedMemory::Create(4096, SharedMemory::Access::kRead).value();
  memory.data()[0] = 'x';
  const auto opened =
      SharedMemory::Open(memory.TakeDescriptor(), SharedMemory::Access::kWrite, /*most_bytes=*/4096);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
}

TEST(SharedMemory, MoreThanTheLimitIsRefused) {
  auto memory = SharedMemory::Create(8192, SharedMemory::Access::kRead).value();
  const auto opened =
      SharedMemory::Open(memory.TakeDescriptor(), SharedMemory::Access::kRead, /*most_bytes=*/4096);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemory, PartialPagesAreRefused) {
  FileDescriptor memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), (8 << 20) + 100), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  const auto opened = SharedMemory::Open(std::move(memory), SharedMemory::Access::kRead, size_t{16} << 20);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemory, HugetlbfsPagesAreRefused) {
  FileDescriptor memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!memory.valid() || ftruncate(memory.get(), 2 << 20) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    GTEST_SKIP() << "no huge pages are reserved on this machine";
  }
  const auto opened = SharedMemory::Open(std::move(memory), SharedMemory::Access::kRead, size_t{2} << 20);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SharedBuffer, ARegionCoversExactlyOneBuffer) {
  SharedBuffer one(5000), other(5000);
  const auto region = RegionOf(one.span());
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->address, reinterpret_cast<uint64_t>(one.data()));
  EXPECT_EQ(RegionOf(std::as_const(one).span().subspan(4000, 1000)), region);
  EXPECT_NE(RegionOf(other.span())->number, region->number);
  const absl::Span<const float> both[] = {one.span(), other.span()};
  EXPECT_EQ(SharedBuffer::RegionOf(both), nullptr);
  EXPECT_EQ(SharedBuffer::RegionOf({}), nullptr);
  const std::vector<float> elsewhere(10);
  EXPECT_EQ(RegionOf(elsewhere), nullptr);
  EXPECT_EQ(RegionOf({one.data(), size_t{1} << 20}), nullptr);
}

TEST(SharedBuffer, ADestroyedBufferHasNoRegion) {
  std::optional<SharedBuffer> buffer(std::in_place, 1024);
  const absl::Span<const float> was = buffer->span();
  ASSERT_NE(RegionOf(was), nullptr);
  buffer.reset();
  EXPECT_EQ(RegionOf(was), nullptr);
}

TEST(SharedBuffer, RenewKeepsTheContentsAndTheOldPagesOfOtherMappings) {
  for (const int64_t count : {int64_t{1000}, kLarge}) {
    SharedBuffer buffer(count);
    std::fill(buffer.span().begin(), buffer.span().end(), 1.0f);
    const float* const place = buffer.data();
    const auto before = RegionOf(buffer.span());
    const auto there = Mapped(*before);

    SharedBuffer::Renew(buffer.span().subspan(1));
    EXPECT_EQ(buffer.data(), place);
    EXPECT_TRUE(AllAre(buffer.span(), 1.0f));
    const auto after = RegionOf(buffer.span());
    ASSERT_NE(after, nullptr);
    EXPECT_NE(after->number, before->number);

    const auto there_now = Mapped(*after);
    std::fill(buffer.span().begin(), buffer.span().end(), 2.0f);
    EXPECT_TRUE(AllAre(FloatsOf(*there).first(static_cast<size_t>(count)), 1.0f));
    EXPECT_TRUE(AllAre(FloatsOf(*there_now).first(static_cast<size_t>(count)), 2.0f));
  }
}

TEST(SharedBuffer, WithoutSharedMemoryABufferHasNoRegion) {
  std::optional<SharedBuffer> buffer;
  {
    const NoDescriptors none;
    buffer.emplace(kLarge);
  }
  EXPECT_TRUE(AllAre(buffer->span(), 0.0f));
  EXPECT_EQ(RegionOf(buffer->span()), nullptr);
  SharedBuffer::Renew(buffer->span());
}

TEST(SharedBuffer, RenewWithoutSharedMemoryEndsSharing) {
  SharedBuffer buffer(kLarge);
  std::fill(buffer.span().begin(), buffer.span().end(), 1.0f);
  const auto there = Mapped(*RegionOf(buffer.span()));
  {
    const NoDescriptors none;
    SharedBuffer::Renew(buffer.span());
  }
  EXPECT_TRUE(AllAre(buffer.span(), 1.0f));
  EXPECT_EQ(RegionOf(buffer.span()), nullptr);
  std::fill(buffer.span().begin(), buffer.span().end(), 2.0f);
  EXPECT_TRUE(AllAre(FloatsOf(*there), 1.0f));
}

TEST(SharedBuffer, RenewIgnoresABufferThatIsNotShared) {
  SharedBuffer buffer(5000, /*shared=*/false);
  EXPECT_EQ(RegionOf(buffer.span()), nullptr);
  SharedBuffer::Renew(buffer.span());
  EXPECT_TRUE(AllAre(buffer.span(), 0.0f));
}

class MappedBytesTest : public testing::Test {
 protected:
  MappedBytesTest() {
    for (size_t i = 0; i < buffer_.span().size(); ++i) buffer_.span()[i] = static_cast<float>(i);
  }
  BorrowedRun RunOf(int64_t begin, int64_t count) {
    return {.address = reinterpret_cast<uint64_t>(buffer_.data() + begin),
            .bytes = static_cast<uint64_t>(count) * sizeof(float)};
  }
  MappedBytes Of(std::vector<BorrowedRun> runs) {
    return MappedBytes::Of(region_, runs, ends_.first.get()).value();
  }

  SharedBuffer buffer_{2000};
  const std::shared_ptr<const MappedRegion> region_ = Mapped(*RegionOf(buffer_.span()));
  std::pair<FileDescriptor, FileDescriptor> ends_ = SocketPair().value();
};

TEST_F(MappedBytesTest, RunsAreReadAsOneSequence) {
  const MappedBytes bytes = Of({RunOf(10, 2), RunOf(100, 1), RunOf(50, 2)});
  EXPECT_EQ(bytes.size(), 5 * sizeof(float));
  float read[3];
  ASSERT_EQ(bytes.Read(sizeof(float), {reinterpret_cast<char*>(read), sizeof read}), absl::OkStatus());
  EXPECT_THAT(read, testing::ElementsAre(11, 100, 50));
  float first, others[3];
  const absl::Span<char> places[] = {
      {reinterpret_cast<char*>(&first), sizeof first}, {}, {reinterpret_cast<char*>(others), sizeof others}};
  ASSERT_EQ(bytes.Scatter(sizeof(float), places), absl::OkStatus());
  EXPECT_EQ(first, 11);
  EXPECT_THAT(others, testing::ElementsAre(100, 50, 51));
  EXPECT_EQ(bytes.Read(3 * sizeof(float), {reinterpret_cast<char*>(read), sizeof read}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MappedBytesTest, KeptRunsAreInPlaceAndAdjacentOnesAreMerged) {
  const MappedBytes bytes = Of({RunOf(10, 2), RunOf(12, 30), RunOf(100, 1)});
  const auto kept = bytes.Keep();
  ASSERT_TRUE(kept.has_value());
  ASSERT_EQ(kept->runs.size(), 2u);
  EXPECT_EQ(kept->runs[0].data(), region_->all().data() + 10 * sizeof(float));
  EXPECT_EQ(kept->runs[0].size(), 32 * sizeof(float));
  EXPECT_EQ(kept->runs[1].data(), region_->all().data() + 100 * sizeof(float));
  EXPECT_EQ(kept->runs[1].size(), sizeof(float));
}

TEST_F(MappedBytesTest, ReadingAfterTheSenderClosedIsUnavailable) {
  const MappedBytes bytes = Of({RunOf(10, 2)});
  shutdown(ends_.second.get(), SHUT_RDWR);
  float read[2];
  EXPECT_EQ(bytes.Read(0, {reinterpret_cast<char*>(read), sizeof read}).code(),
            absl::StatusCode::kUnavailable);
}

// Streams that share memory.
class SharedBufferStreamTest : public DataStreamTest {
 protected:
  // Sends parts of the buffer until one arrives that may be used in place.
  std::optional<KeptPayload> AwaitKept(const SharedBuffer& buffer) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (size_t sent = at_server_.messages(); std::chrono::steady_clock::now() < deadline; ++sent) {
      const absl::Span<const float> part = buffer.span().first(kPart);
      client_->Send("part", {&part, 1}, nullptr);
      const auto got = at_server_.Await(sent + 1);
      if (got.empty() || got.back().second != TextOf(part)) return std::nullopt;
      if (const auto kept = at_server_.kept(); !kept.empty()) return kept.back();
    }
    return std::nullopt;
  }
  static constexpr size_t kPart = static_cast<size_t>(DataStream::kFragmentFloats);
};
INSTANTIATE_TEST_SUITE_P(Over, SharedBufferStreamTest, testing::Values(Over::kBorrowing));

TEST_P(SharedBufferStreamTest, AMappedPayloadIsUsedInPlaceAndOutlivesTheStream) {
  SharedBuffer buffer(2 * static_cast<int64_t>(kPart));
  std::fill(buffer.span().begin(), buffer.span().end(), 1.0f);
  Start();
  const auto kept = AwaitKept(buffer);
  ASSERT_TRUE(kept.has_value());
  ASSERT_EQ(kept->bytes.size(), kPart * sizeof(float));
  const absl::Span<const float> there(reinterpret_cast<const float*>(kept->bytes.data()), kPart);
  EXPECT_NE(there.data(), buffer.data());
  EXPECT_TRUE(AllAre(there, 1.0f));
  buffer.span()[3] = 5;
  EXPECT_EQ(there[3], 5);  // the same memory
  buffer.span()[3] = 1;

  client_->Close();
  SharedBuffer::Renew(buffer.span());
  std::fill(buffer.span().begin(), buffer.span().end(), 2.0f);
  server_->Close();
  EXPECT_TRUE(AllAre(there, 1.0f));
}

TEST_P(SharedBufferStreamTest, ARenewedBufferIsAnnouncedAgain) {
  SharedBuffer buffer(static_cast<int64_t>(kPart));
  Start();
  const auto kept = AwaitKept(buffer);
  ASSERT_TRUE(kept.has_value());
  SharedBuffer::Renew(buffer.span());
  std::fill(buffer.span().begin(), buffer.span().end(), 2.0f);
  const absl::Span<const float> before(reinterpret_cast<const float*>(kept->bytes.data()), kPart);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const size_t kepts = at_server_.kept().size();
  while (at_server_.kept().size() == kepts && std::chrono::steady_clock::now() < deadline) {
    ASSERT_TRUE(AwaitKept(buffer).has_value());
  }
  EXPECT_GT(at_server_.kept().size(), kepts);
  EXPECT_TRUE(AllAre(before, 0.0f));
}

TEST_P(SharedBufferStreamTest, PayloadsInMoreBuffersThanCanBeMappedArrive) {
  Start();
  std::vector<std::unique_ptr<SharedBuffer>> buffers;
  for (int i = 0; i < 12; ++i) {
    buffers.push_back(std::make_unique<SharedBuffer>(static_cast<int64_t>(kPart)));
  }
  // The other end confirms its mappings while more payloads are sent.
  std::set<const char*> mapped;
  size_t sent = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while ((mapped.size() < 8 || sent < 3 * buffers.size()) && std::chrono::steady_clock::now() < deadline) {
    for (const auto& buffer : buffers) {
      buffer->data()[1] = static_cast<float>(sent);
      const absl::Span<const float> part = buffer->span();
      client_->Send("part", {&part, 1}, nullptr);
      const auto got = at_server_.Await(++sent);
      ASSERT_EQ(got.size(), sent);
      EXPECT_TRUE(got.back().second == TextOf(part)) << sent;
    }
    for (const KeptPayload& kept : at_server_.kept()) mapped.insert(kept.bytes.data());
  }
  EXPECT_EQ(mapped.size(), 8u);
}

}  // namespace
}  // namespace cairn::net
