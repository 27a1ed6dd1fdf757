#include "common/net/direct/peer_memory.h"

#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/direct/socket.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

// Of this process, in which both ends are.
class PeerMemoryTest : public testing::Test {
 protected:
  std::pair<FileDescriptor, FileDescriptor> ends_ = SocketPair().value();
  const uint64_t probe_ = 42;
  const std::unique_ptr<PeerMemory> memory_ =
      PeerMemory::Open(ends_.first.get(), {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_});
};

TEST_F(PeerMemoryTest, ThatIsGoneWithItsEndIsNoFault) {
  ASSERT_NE(memory_, nullptr);
  const LentRun gone = {.address = 64, .bytes = 8};
  char to[8];
  const absl::Span<char> place = to;
  EXPECT_EQ(memory_->Read({&gone, 1}, 0, {&place, 1}).code(), absl::StatusCode::kInvalidArgument);
  shutdown(ends_.second.get(), SHUT_RDWR);
  EXPECT_EQ(memory_->Read({&gone, 1}, 0, {&place, 1}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PeerMemoryTest, ManyRunsAreReadToManyPlaces) {
  ASSERT_NE(memory_, nullptr);
  std::vector<char> lent(10'000);
  for (size_t i = 0; i < lent.size(); ++i) lent[i] = static_cast<char>(i % 101);
  const auto address = reinterpret_cast<uint64_t>(lent.data());
  const LentRun runs[] = {{address + 5'000, 5'000}, {address, 5'000}};
  std::vector<char> read(9'990);
  std::vector<absl::Span<char>> places;  // more than the system takes at once
  for (size_t begin = 0; begin < read.size(); begin += 3) places.push_back({read.data() + begin, 3});
  ASSERT_EQ(memory_->Read(runs, 7, places), absl::OkStatus());
  EXPECT_TRUE(std::equal(read.begin(), read.begin() + 4'993, lent.begin() + 5'007));
  EXPECT_TRUE(std::equal(read.begin() + 4'993, read.end(), lent.begin()));
  places.push_back({read.data(), 4});
  EXPECT_EQ(memory_->Read(runs, 7, places).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::net
