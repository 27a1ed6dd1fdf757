#include "common/net/data_channel/shared_memory/shared_buffer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "common/core/mutex.h"
#include "common/memory/out_of_memory.h"

namespace cairn::net {
namespace {

SharedMemory MemoryOf(size_t bytes, bool shared) {
  if (shared) {
    auto memory = SharedMemory::Create(bytes, SharedMemory::Access::kRead);
    if (memory.ok()) return *std::move(memory);
  }
  return SharedMemory::Alone(bytes);
}

size_t BytesOf(int64_t count) {
  constexpr int64_t kMaxFloats = int64_t{1} << 60;
  if (count < 0 || count > kMaxFloats) throw OutOfMemory(count);
  return std::max<size_t>(1, static_cast<size_t>(count) * sizeof(float));
}

// The buffers of this process and their regions.
class Registry {
 public:
  static Registry& Get() {
    static auto* const registry = new Registry;
    return *registry;
  }

  void Add(SharedMemory* buffer) {
    MutexLock lock(mutex_);
    entries_[reinterpret_cast<uint64_t>(buffer->data())] = {buffer, NewRegion(*buffer)};
  }
  void Remove(const SharedMemory& buffer) {
    MutexLock lock(mutex_);
    entries_.erase(reinterpret_cast<uint64_t>(buffer.data()));
  }
  std::shared_ptr<const SharedRegion> RegionOf(FloatSpans runs) {
    if (runs.empty()) return nullptr;
    MutexLock lock(mutex_);
    Entry* const entry = Find(runs[0]);
    if (entry == nullptr) return nullptr;
    for (const auto& run : runs) {
      if (Find(run) != entry) return nullptr;
    }
    return entry->region;
  }
  void Renew(absl::Span<const float> memory) {
    MutexLock lock(mutex_);
    Entry* const entry = Find(memory);
    if (entry == nullptr || entry->region == nullptr) return;
    SharedMemory& old = *entry->buffer;
    SharedMemory next = MemoryOf(old.size(), /*shared=*/true);
    std::memcpy(next.data(), old.data(), old.size());
    next.MoveFrom(old);
    old = std::move(next);
    entry->region = NewRegion(old);
  }

 private:
  struct Entry {
    SharedMemory* buffer = nullptr;
    std::shared_ptr<const SharedRegion> region;  // null: not shared
  };

  std::shared_ptr<const SharedRegion> NewRegion(SharedMemory& buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    FileDescriptor memory = buffer.TakeDescriptor();
    if (!memory.valid()) return nullptr;
    return std::make_shared<const SharedRegion>(
        SharedRegion{.number = ++last_number_,
                     .address = reinterpret_cast<uint64_t>(buffer.data()),
                     .bytes = buffer.size(),
                     .memory = std::move(memory)});
  }
  // The buffer that contains all of `run`.
  Entry* Find(absl::Span<const float> run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto begin = reinterpret_cast<uint64_t>(run.data());
    const auto after = entries_.upper_bound(begin);
    if (after == entries_.begin()) return nullptr;
    auto& [address, entry] = *std::prev(after);
    return begin - address + run.size() * sizeof(float) <= entry.buffer->size() ? &entry : nullptr;
  }

  Mutex mutex_;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // [address]
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

SharedBuffer::SharedBuffer(int64_t count, bool shared)
    : memory_(MemoryOf(BytesOf(count), shared)), size_(count) {
  Registry::Get().Add(&memory_);
}

SharedBuffer::~SharedBuffer() {
  Registry::Get().Remove(memory_);
}

std::shared_ptr<const SharedRegion> SharedBuffer::RegionOf(FloatSpans runs) {
  return Registry::Get().RegionOf(runs);
}

void SharedBuffer::Renew(absl::Span<const float> memory) {
  Registry::Get().Renew(memory);
}

}  // namespace cairn::net
