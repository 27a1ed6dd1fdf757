#include "worker/peer/chunks.h"

#include <algorithm>

#include "common/core/status.h"

namespace cairn::allreduce {
namespace {

// A small gradient is also cut into chunks, so that all links carry parts of it at once. Chunks are not made
// so small that the overhead of messages dominates.
constexpr int64_t kMinChunk = int64_t{4} << 10;
constexpr int64_t kBucketsOfSmall = 4;

}  // namespace

ChunkPlan ChunkPlan::Make(int64_t size, int workers, int64_t most_chunk) {
  CAIRN_CHECK(size >= 0 && workers > 0 && most_chunk > 0);
  ChunkPlan plan = {.workers = workers, .size = size, .chunks = {}};
  const int64_t wanted = size / (workers * kBucketsOfSmall);
  const int64_t chunk = std::clamp(wanted, std::min(kMinChunk, most_chunk), most_chunk);
  for (int64_t end = size; end > 0;) {
    const int64_t begin = std::max<int64_t>(0, end - chunk * workers);
    const int bucket = static_cast<int>(plan.chunks.size()) / workers;
    for (int owner = 0; owner < workers; ++owner) {
      plan.chunks.push_back({.begin = begin + (end - begin) * owner / workers,
                             .end = begin + (end - begin) * (owner + 1) / workers,
                             .owner = owner,
                             .bucket = bucket});
    }
    end = begin;
  }
  return plan;
}

}  // namespace cairn::allreduce
