// Rows of a job's embedding tables (Job::tables), as the calls of Session take them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cairn/export.h"

namespace cairn {

// Rows to be read, and where to.
struct RowsToRead {
  int table = 0;  // index in Job::tables
  std::span<const int64_t> ids{};
  std::span<float> rows{};  // [id][element of a row]
};

struct RowGradients {
  int table = 0;
  std::span<const int64_t> ids{};
  std::span<const float> gradients{};  // [id][element of a row]
};

// The distinct ids of a batch, in the order of their first appearance. Reuses its memory. Not thread-safe.
class CAIRN_EXPORT UniqueIds {
 public:
  UniqueIds();
  ~UniqueIds();
  UniqueIds(const UniqueIds&) = delete;
  UniqueIds& operator=(const UniqueIds&) = delete;

  // Computes ids() and positions() of less than 2^31 ids.
  void Compute(std::span<const int64_t> batch);
  // Both are valid until the next Compute().
  std::span<const int64_t> ids() const;
  // [index in the batch] The index in ids() of each id.
  std::span<const int32_t> positions() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
