#include "common/net/data_channel/shared_memory/shared_ring.h"

#include <bit>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::net {
namespace {

constexpr size_t kHeaderBytes =
    4096;  // one page for each header, so that the two directions share no cache line
constexpr size_t kAlignment = 64;

size_t SizeWith(size_t bytes) {
  return 2 * kHeaderBytes + 2 * bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedRings>> SharedRings::Create(size_t bytes) {
  CAIRN_CHECK(std::has_single_bit(bytes) && bytes >= kHeaderBytes && bytes <= kMaxBytes);
  CAIRN_ASSIGN_OR_RETURN(SharedMemory memory,
                         SharedMemory::Create(SizeWith(bytes), SharedMemory::Access::kWrite));
  return std::unique_ptr<SharedRings>(new SharedRings(std::move(memory), bytes));
}

absl::StatusOr<std::unique_ptr<SharedRings>> SharedRings::Open(FileDescriptor passed) {
  CAIRN_ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Open(std::move(passed), SharedMemory::Access::kWrite, SizeWith(kMaxBytes)));
  const size_t size = memory.size();
  const size_t bytes = size > 2 * kHeaderBytes ? (size - 2 * kHeaderBytes) / 2 : 0;
  if (!std::has_single_bit(bytes) || bytes < kHeaderBytes || bytes > kMaxBytes || SizeWith(bytes) != size) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory cannot have ", size, " bytes"));
  }
  return std::unique_ptr<SharedRings>(new SharedRings(std::move(memory), bytes));
}

// New memory is zero, which is the initial value of both atomics. They are objects of implicit lifetime,
// which exist without being constructed: objects that two processes share cannot be created in another way.
SharedRings::Header& SharedRings::header(int ring) const {
  return *std::launder(reinterpret_cast<Header*>(memory_.data() + static_cast<size_t>(ring) * kHeaderBytes));
}

char* SharedRings::data(int ring) const {
  return memory_.data() + 2 * kHeaderBytes + static_cast<size_t>(ring) * bytes_;
}

std::optional<uint64_t> RingWriter::Free() {
  const uint64_t consumed = header_.consumed.load(std::memory_order_acquire);
  if (consumed < consumed_ || consumed > produced_) return std::nullopt;
  consumed_ = consumed;
  return bytes_ - (produced_ - consumed_);
}

RingWriter::Reserved RingWriter::Reserve(size_t count) {
  count = (count + kAlignment - 1) / kAlignment * kAlignment;
  CAIRN_CHECK(count <= bytes_ / 2);
  const uint64_t place = produced_ % bytes_;
  const uint64_t skipped = place + count > bytes_ ? bytes_ - place : 0;  // a run does not wrap around
  for (bool asked = false;; asked = true) {
    const std::optional<uint64_t> free = Free();
    if (!free.has_value()) return {Outcome::kBroken};
    if (*free >= skipped + count) break;
    if (asked) return {Outcome::kFull};
    // Release() writes `consumed` and then reads `writer_waits`. So at least one side sees the other's write.
    header_.writer_waits.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  const uint64_t position = produced_ + skipped;
  produced_ = position + count;
  return {Outcome::kReserved, position, data_ + position % bytes_};
}

std::optional<absl::Span<const char>> RingReader::Take(uint64_t position, size_t count) {
  const uint64_t rounded = (uint64_t{count} + kAlignment - 1) / kAlignment * kAlignment;
  if (position < consumed_ || position - consumed_ > bytes_ || count > bytes_) return std::nullopt;
  if (position % bytes_ + rounded > bytes_ || position + rounded - consumed_ > bytes_) return std::nullopt;
  taken_end_ = position + rounded;
  return absl::Span<const char>(data_ + position % bytes_, count);
}

bool RingReader::Release() {
  consumed_ = taken_end_;
  header_.consumed.store(consumed_, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return header_.writer_waits.load(std::memory_order_seq_cst) != 0 &&
         header_.writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace cairn::net
