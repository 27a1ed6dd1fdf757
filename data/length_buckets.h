// Batches of sequences of like lengths: an example belongs to a bucket, whose batches are padded to the bucket's length
// instead of that of the longest example.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "data/dataset.h"
#include "data/input_rows.h"

namespace cairn::data {

// The part of targets or weights that the examples of a bucket keep: the first `kept` of `count` numbers.
struct KeptPart {
  int64_t count = 0, kept = 0;
  // The number in the place of the others; nullopt: they may be any, since the model masks them.
  std::optional<float> padding{};
};

// The form of the examples of a bucket. The lengths of sequences are the first axes of their shapes.
struct BucketForm {
  std::vector<Shape> inputs{};      // [input]
  std::vector<KeptPart> targets{};  // the parts of an example's targets, one after another
  std::vector<KeptPart> weights{};  // the same of its weights; empty if it has none

  int64_t num_targets() const;
  int64_t num_weights() const;
};

// The buckets of a data set.
struct LengthBuckets {
  std::vector<BucketForm> forms;   // [bucket] from short to long; the last has whole examples
  std::vector<uint8_t> bucket_of;  // [example] the first bucket that drops nothing but padding: zeros
};

inline constexpr size_t kMaxBuckets = 256;

// Reads all examples. `forms`: at most kMaxBuckets. Blocks on the disk. The data set's error if it cannot be read.
absl::StatusOr<LengthBuckets> SortIntoBuckets(const Dataset& dataset, std::vector<BucketForm> forms);

// The memory of examples, [rows], with all that they have.
struct WholeExamples {
  InputRows& inputs;
  absl::Span<float> targets, weights;
};
// Cuts the first `rows` examples to the form, in place, so that they lie one after another.
void Cut(const BucketForm& form, int64_t rows, const WholeExamples& examples);

// Rearranges the examples of an epoch so that each run of `run` positions has examples of one bucket, as far as there
// are that many, in the order in which the runs become complete. The others follow, from short to long.
std::vector<uint32_t> GroupByBucket(absl::Span<const uint32_t> order, absl::Span<const uint8_t> bucket_of,
                                    int64_t run);

}  // namespace cairn::data
