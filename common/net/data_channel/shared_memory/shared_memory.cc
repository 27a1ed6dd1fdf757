#include "common/net/data_channel/shared_memory/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "common/net/data_channel/socket/socket.h"

namespace cairn::net {
namespace {

constexpr size_t kPage = size_t{4} << 10;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#ifdef MADV_COLLAPSE
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;  // Linux 6.1; older kernels refuse it
#endif

bool IsLarge(size_t bytes) {
  return bytes >= kHugePage;
}

size_t RoundedUp(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// As mmap(); a large mapping is aligned so that it can be on huge pages.
void* Map(size_t bytes, int protection, int flags, int descriptor) {
  if (!IsLarge(bytes)) return mmap(nullptr, bytes, protection, flags, descriptor, 0);
  const size_t reserved = bytes + kHugePage;
  void* const begin = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return MAP_FAILED;
  char* const first = static_cast<char*>(begin);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  void* const mapped = mmap(first + before, bytes, protection, flags | MAP_FIXED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    munmap(begin, reserved);
    return MAP_FAILED;
  }
  if (before > 0) munmap(first, before);
  if (before < kHugePage) munmap(first + before + bytes, kHugePage - before);
  return mapped;
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Create(size_t bytes, Access others) {
  const size_t size = RoundedUp(bytes);
  FileDescriptor memory(memfd_create("cairn", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // All pages are allocated now: if a page cannot be allocated later, the process that touches it is killed.
  if (!memory.valid() || fallocate(memory.get(), 0, 0, static_cast<off_t>(size)) != 0) {
    return SystemFailure("cannot allocate shared memory");
  }
  CAIRN_ASSIGN_OR_RETURN(SharedMemory mapped, MapAll(std::move(memory), size, Access::kWrite));
  const int seals = others == Access::kRead ? kSeals | F_SEAL_FUTURE_WRITE : kSeals;
  if (fcntl(mapped.descriptor().get(), F_ADD_SEALS, seals) != 0)
    return SystemFailure("sealing shared memory");
  // Asks explicitly, since shmem_enabled in /sys/kernel/mm/transparent_hugepage may be "advise". Best effort.
  if (IsLarge(size)) (void)madvise(mapped.data(), size, kCollapse);
  return mapped;
}

SharedMemory SharedMemory::Alone(size_t bytes) {
  const size_t size = RoundedUp(bytes);
  void* const data = Map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (data == MAP_FAILED) throw OutOfMemory(static_cast<int64_t>(bytes / sizeof(float)));
  if (IsLarge(size)) (void)madvise(data, size, MADV_HUGEPAGE);
  return SharedMemory(FileDescriptor(), static_cast<char*>(data), size);
}

absl::StatusOr<SharedMemory> SharedMemory::Open(FileDescriptor memory, Access access, size_t most_bytes) {
  struct stat about;
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  struct statfs of;
  // A seal does not protect hugetlbfs pages: reading a page that the system has reclaimed may fail.
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(memory.get(), &about) != 0 ||
      fstatfs(memory.get(), &of) != 0 || of.f_type == HUGETLBFS_MAGIC) {
    return absl::InvalidArgumentError("the shared memory is not sealed");
  }
  const auto size = static_cast<size_t>(about.st_size);
  if (size == 0 || size != RoundedUp(size) || size > most_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory cannot have ", size, " bytes"));
  }
  return MapAll(std::move(memory), size, access);
}

absl::StatusOr<SharedMemory> SharedMemory::MapAll(FileDescriptor memory, size_t size, Access access) {
  const bool writes = access == Access::kWrite;
  void* const data = Map(size, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                         writes ? MAP_SHARED | MAP_POPULATE : MAP_SHARED, memory.get());
  if (data == MAP_FAILED) return SystemFailure("mapping shared memory");
  return SharedMemory(std::move(memory), static_cast<char*>(data), size);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

void SharedMemory::MoveFrom(SharedMemory& other) {
  CAIRN_CHECK(size_ == other.size_ && size_ > 0);
  void* const moved = mremap(data_, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, other.data_);
  CAIRN_CHECK(moved == other.data_);
  data_ = std::exchange(other.data_, nullptr);
  other.size_ = 0;
}

}  // namespace cairn::net
