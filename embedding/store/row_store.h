// The rows of one embedding table, or of some of its buckets: by key, values followed by optimizer slots.
//
// Calls take batches and fetch the lines of memory of later keys while they work on earlier ones: a lookup costs about
// as much as two independent random reads. The store grows in small steps, and its rows never move. Every int64 is a
// legal key. docs/design/embedding-tables.md describes the structure.
//
// Owned by one server thread. Const calls may run concurrently with each other, other calls with none. Servers use
// several threads by several stores, each with buckets of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/memory_source.h"
#include "embedding/store/page_pool.h"
#include "embedding/store/row_arena.h"
#include "embedding/store/row_index.h"

namespace cairn::embedding {

// The floats of a row: `dim` values, then `slots` floats of optimizer state.
struct RowShape {
  int dim = 1;
  int slots = 0;

  int floats() const { return dim + slots; }
};

class RowStore {
 public:
  static constexpr int kMaxDim = 1024;

  struct Options {
    std::string table;  // its name, for messages
    RowShape shape;     // dim: 1 to kMaxDim; in all at most RowArena::kMaxFloats
    BucketRange buckets;
    MemorySource* memory = nullptr;  // outlives the store; null: unlimited
  };
  explicit RowStore(Options options);

  // Sets rows[i] to the row of keys[i], or to null. Keys may repeat. A pointer is valid until Erase() of its key.
  void Find(absl::Span<const int64_t> keys, absl::Span<float*> rows) const;

  // As Find(), but adds the missing rows, all zeros. `inserted` becomes the rising indices into `keys` of these, of
  // repeated keys the first. RESOURCE_EXHAUSTED, naming the table, if there is no memory for all of them: then the
  // store has the rows that it had before. All keys belong to the buckets of the store.
  absl::Status FindOrInsert(absl::Span<const int64_t> keys, absl::Span<float*> rows,
                            std::vector<int32_t>* inserted);

  // Removes the rows of these keys, if they exist, and returns their number. Their memory is used for new rows.
  int64_t Erase(absl::Span<const int64_t> keys);

  // Calls visit(keys, rows) until it has seen all rows of `range`, in the order of (bucket, key), which does not depend
  // on the order of insertion. Each call has all rows of some buckets, usually up to thirty thousand rows; the
  // arguments are valid during the call. `range` lies in the buckets of the store.
  using Visit = absl::FunctionRef<void(absl::Span<const int64_t> keys, absl::Span<const float* const> rows)>;
  void VisitSorted(BucketRange range, Visit visit) const;

  int64_t size() const { return index_.size(); }

  // Bytes allocated, as charged to the memory source.
  struct MemoryUse {
    int64_t rows = 0;
    int64_t index = 0;
  };
  MemoryUse memory() const { return {arena_.bytes(), index_.bytes()}; }
  // The bytes of the index for each row of a large store, at its mean load.
  static double IndexBytesPerRow(const RowShape& shape);
  // The bytes that one server of `servers` needs for its part of a table of `rows`.
  static double BytesOfPart(const RowShape& shape, int64_t rows, int servers);
  // INVALID_ARGUMENT unless a store can have rows of so many elements.
  static absl::Status CheckDim(int64_t dim);

  const std::string& table() const { return options_.table; }
  const RowShape& shape() const { return options_.shape; }
  BucketRange buckets() const { return options_.buckets; }

 private:
  absl::Status Insert(int64_t key, float** row);

  const Options options_;
  PagePool pool_;
  RowArena arena_;
  RowIndex index_;
};

}  // namespace cairn::embedding
