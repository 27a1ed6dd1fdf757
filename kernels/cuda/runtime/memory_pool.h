// The memory of one device: slabs from the driver, which are split into blocks. Allocating a slab stalls the
// device; allocating a block only costs a search. Used by the device's thread only.
//
// cudaMallocAsync() with a cudaMemPool would be shorter, but cannot keep these promises: the limit
// counts all memory that was taken (maxSize needs CUDA 12.2; 12.0 is supported), --allow_growth chooses the
// sizes of slabs, and where a request fails depends on the requests alone, which a test without a GPU checks.
// A device may also lack memory pools (cudaDevAttrMemoryPoolsSupported).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::kernels::cuda {

class MemoryPool {
 public:
  static constexpr int64_t kAlignment = 256;  // alignment of every block, in bytes
  // Sizes are rounded up to whole vectors, which kernels read and write.
  static constexpr int64_t kPadding = 16;

  // The source of slabs: cudaMalloc, or a test.
  class Source {
   public:
    virtual ~Source() = default;
    // Aligned to kAlignment. Null: out of memory.
    virtual void* Take(int64_t bytes) = 0;
    virtual void Return(void* slab) = 0;
  };
  struct Options {
    std::string device;       // "/gpu:0", for messages
    int64_t limit_bytes = 0;  // the limit of all slabs together
    // true: each slab is twice as large as the previous one, from kFirstSlab up. false: a slab has the
    // requested size, rounded up to a multiple of kSlabGrain.
    bool growth = false;
  };
  static constexpr int64_t kSlabGrain = int64_t{2} << 20;
  static constexpr int64_t kFirstSlab = int64_t{64} << 20;

  // `source` must outlive the pool, whose destructor returns all slabs.
  MemoryPool(Source& source, Options options);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // RESOURCE_EXHAUSTED names `what` ("layer 'conv2d': output"), the bytes requested, in use, and the limit;
  // before it fails, unused slabs are returned to the source. `bytes` is at least 0; a request of 0 bytes
  // also gets a block.
  absl::StatusOr<void*> Allocate(int64_t bytes, absl::string_view what);
  // `block` comes from Allocate().
  void Free(void* block);

  int64_t bytes_in_use() const { return in_use_; }  // the blocks' sizes, padding included
  int64_t bytes_taken() const { return taken_; }

 private:
  struct Block {
    char* begin = nullptr;
    int64_t bytes = 0;
    bool free = true;
    bool first_of_slab = false;
  };
  using Blocks = std::list<Block>;  // slab after slab, each slab's blocks by address

  // Takes a slab for at least `bytes` from the source; false: out of memory.
  bool TakeSlab(int64_t bytes);
  bool ReturnIdleSlabs();
  absl::Status Exhausted(int64_t bytes, absl::string_view what) const;
  void AddFree(Blocks::iterator block) { free_.emplace(block->bytes, block); }
  void RemoveFree(Blocks::iterator block);
  // Merges the block that follows `block` into it.
  void Absorb(Blocks::iterator block, Blocks::iterator behind);

  Source& source_;
  const Options options_;
  Blocks blocks_;
  std::multimap<int64_t, Blocks::iterator> free_;  // the free blocks, by size in bytes
  std::map<void*, Blocks::iterator> used_;
  int64_t in_use_ = 0, taken_ = 0, last_slab_ = 0;
};

}  // namespace cairn::kernels::cuda
