// How a gradient is cut for the ring. Depends only on the size of the gradient and the number of workers, so
// that all workers cut it in the same way.
//
//   gradient   |        bucket 1         |        bucket 0         |     buckets from the end: backward
//   chunks     | of w/0 | of w/1 | of w/2| of w/0 | of w/1 | of w/2|     announces the last layer first
//
// The sum of a chunk begins on its owner, passes to the right, and is complete on the owner's left-hand
// neighbour. Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::allreduce {

// At most 256 KiB, so that a chunk is one fragment of a data channel (net::DataStream::kFragmentFloats).
inline constexpr int64_t kMaxChunkFloats = int64_t{64} << 10;

struct Chunk {
  int64_t begin = 0, end = 0;  // elements; an empty chunk is never sent
  int owner = 0;               // the worker where its sum begins
  int bucket = 0;

  int64_t size() const { return end - begin; }
};

struct ChunkPlan {
  int workers = 1;
  int64_t size = 0;           // elements of the gradient
  std::vector<Chunk> chunks;  // [bucket * workers + owner]

  // `most_chunk`: the largest size of a chunk, in elements.
  static ChunkPlan Make(int64_t size, int workers, int64_t most_chunk = kMaxChunkFloats);

  int buckets() const { return static_cast<int>(chunks.size()) / workers; }
  int64_t bucket_begin(int bucket) const { return chunks[static_cast<size_t>(bucket * workers)].begin; }
  int64_t bucket_end(int bucket) const { return chunks[static_cast<size_t>((bucket + 1) * workers - 1)].end; }
};

}  // namespace cairn::allreduce
