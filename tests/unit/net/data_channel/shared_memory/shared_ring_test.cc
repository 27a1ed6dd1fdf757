#include "common/net/data_channel/shared_memory/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <memory>

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

constexpr size_t kBytes = 4096;

// Both ends of a ring, each with its own mapping.
struct Ends {
  std::unique_ptr<SharedRings> here = SharedRings::Create(kBytes).value();
  std::unique_ptr<SharedRings> there = SharedRings::Open(FileDescriptor(dup(here->descriptor()))).value();
  RingWriter writer{*here, 0};
  RingReader reader{*there, 0};
};

TEST(SharedRing, DataWrittenAtOneEndIsReadAtTheOther) {
  Ends ends;
  const auto reserved = ends.writer.Reserve(5);
  ASSERT_EQ(reserved.outcome, RingWriter::Outcome::kReserved);
  std::memcpy(reserved.data, "hello", 5);
  const auto taken = ends.reader.Take(reserved.position, 5);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(std::string(taken->begin(), taken->end()), "hello");
}

TEST(SharedRing, AFullRingAsksItsReaderForANotification) {
  Ends ends;
  const auto first = ends.writer.Reserve(kBytes / 2);
  ASSERT_EQ(ends.writer.Reserve(kBytes / 2).outcome, RingWriter::Outcome::kReserved);
  EXPECT_EQ(ends.writer.Reserve(64).outcome, RingWriter::Outcome::kFull);
  ASSERT_TRUE(ends.reader.Take(first.position, kBytes / 2).has_value());
  EXPECT_TRUE(ends.reader.Release());
  EXPECT_EQ(ends.writer.Reserve(64).outcome, RingWriter::Outcome::kReserved);
}

TEST(SharedRing, AReaderDoesNotNotifyAWriterThatDoesNotWait) {
  Ends ends;
  const auto reserved = ends.writer.Reserve(64);
  ASSERT_TRUE(ends.reader.Take(reserved.position, 64).has_value());
  EXPECT_FALSE(ends.reader.Release());
}

TEST(SharedRing, RunsAreContiguousAtTheEndOfTheRing) {
  Ends ends;
  for (int i = 0; i < 100; ++i) {
    const size_t count = 1000 + static_cast<size_t>(i);
    const auto reserved = ends.writer.Reserve(count);
    ASSERT_EQ(reserved.outcome, RingWriter::Outcome::kReserved);
    EXPECT_LE(reserved.position % kBytes + count, kBytes);
    std::memset(reserved.data, i, count);
    const auto taken = ends.reader.Take(reserved.position, count);
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(std::count(taken->begin(), taken->end(), static_cast<char>(i)), static_cast<long>(count));
    ends.reader.Release();
  }
}

TEST(SharedRing, AReaderThatFreesMoreThanWasWrittenBreaksTheRing) {
  Ends ends;
  ASSERT_EQ(ends.writer.Reserve(kBytes / 2).outcome, RingWriter::Outcome::kReserved);
  void* const hostile = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ends.here->descriptor(), 0);
  ASSERT_NE(hostile, MAP_FAILED);
  const uint64_t nonsense = uint64_t{1} << 40;
  std::memcpy(hostile, &nonsense, sizeof nonsense);
  munmap(hostile, kBytes);
  EXPECT_EQ(ends.writer.Reserve(64).outcome, RingWriter::Outcome::kBroken);
}

TEST(SharedRing, PositionsThatWereNotReservedAreRefused) {
  Ends ends;
  EXPECT_FALSE(ends.reader.Take(kBytes - 64, 65).has_value()) << "across the end";
  EXPECT_FALSE(ends.reader.Take(0, kBytes + 1).has_value()) << "more than the ring";
  EXPECT_FALSE(ends.reader.Take(kBytes, 64).has_value()) << "a ring ahead";
  EXPECT_FALSE(ends.reader.Take(~uint64_t{0}, 64).has_value()) << "position overflows";
  EXPECT_FALSE(ends.reader.Take(0, ~size_t{0}).has_value()) << "count overflows";
  ASSERT_TRUE(ends.reader.Take(0, 128).has_value());
  ends.reader.Release();
  EXPECT_FALSE(ends.reader.Take(64, 64).has_value()) << "already freed";
}

TEST(SharedRing, UnsealedMemoryIsRefused) {
  FileDescriptor memory(memfd_create("test", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), 2 * 4096 + 2 * kBytes), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(SharedRings::Open(std::move(memory)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SharedRing, MemoryOfAnotherSizeIsRefused) {
  for (const off_t size : {0, 4096, 3 * 4096, 2 * 4096 + 2 * 5000, 1 << 30}) {
    FileDescriptor memory(memfd_create("test", MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(memory.get(), size), 0);
    ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    EXPECT_EQ(SharedRings::Open(std::move(memory)).status().code(), absl::StatusCode::kInvalidArgument)
        << size;
  }
}

TEST(SharedRing, ItsSizeIsSealed) {
  Ends ends;
  EXPECT_NE(ftruncate(ends.here->descriptor(), 0), 0);
}

}  // namespace
}  // namespace cairn::net
