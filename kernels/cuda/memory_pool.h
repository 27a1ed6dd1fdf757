// The memory of one device: slabs taken from the driver, blocks handed out of them. Taking a slab stalls the
// device; handing out a block costs a search. One thread, the device's.
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
  static constexpr int64_t kAlignment = 256;  // of every block, in bytes
  // What is asked is rounded up to whole vectors, which kernels read and write.
  static constexpr int64_t kPadding = 16;

  // Where slabs come from: cudaMalloc, or a test.
  class Source {
   public:
    virtual ~Source() = default;
    // Aligned to kAlignment. Null: there is no more.
    virtual void* Take(int64_t bytes) = 0;
    virtual void Return(void* slab) = 0;
  };
  struct Options {
    std::string device;       // "/gpu:0", for messages
    int64_t limit_bytes = 0;  // the most that is taken from the source
    // Slabs double from kFirstSlab on; false: each is as large as what is asked, in pieces of kSlabGrain.
    bool growth = false;
  };
  static constexpr int64_t kSlabGrain = int64_t{2} << 20;
  static constexpr int64_t kFirstSlab = int64_t{64} << 20;

  // `source` outlives the pool, which gives all slabs back.
  MemoryPool(Source& source, Options options);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // RESOURCE_EXHAUSTED names `what` ("layer 'conv2d': output"), the bytes asked, in use, and the limit; slabs
  // in which nothing is used have been given back by then. `bytes` is at least 0, and 0 takes a block too.
  absl::StatusOr<void*> Allocate(int64_t bytes, absl::string_view what);
  // Of Allocate().
  void Free(void* block);

  int64_t bytes_in_use() const { return in_use_; }  // whole blocks
  int64_t bytes_taken() const { return taken_; }

 private:
  struct Block {
    char* begin = nullptr;
    int64_t bytes = 0;
    bool free = true;
    bool first_of_slab = false;
  };
  using Blocks = std::list<Block>;  // in the order of addresses within a slab, slab after slab

  // A slab that holds `bytes`; false: there is none to be had.
  bool TakeSlab(int64_t bytes);
  bool ReturnIdleSlabs();
  absl::Status Exhausted(int64_t bytes, absl::string_view what) const;
  void AddFree(Blocks::iterator block) { free_.emplace(block->bytes, block); }
  void RemoveFree(Blocks::iterator block);
  // `block` takes in the one behind it.
  void Absorb(Blocks::iterator block, Blocks::iterator behind);

  Source& source_;
  const Options options_;
  Blocks blocks_;
  std::multimap<int64_t, Blocks::iterator> free_;  // [bytes]
  std::map<void*, Blocks::iterator> used_;
  int64_t in_use_ = 0, taken_ = 0, last_slab_ = 0;
};

}  // namespace cairn::kernels::cuda
