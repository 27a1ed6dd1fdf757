#include "data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "data/length_buckets.h"

namespace cairn::data {
namespace {

int64_t RoundedUpQuotient(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

int64_t PositionsOf(const SamplerOptions& options) {
  switch (options.tail) {
    case Tail::kExact:
      break;
    case Tail::kPad:
      return RoundedUpQuotient(options.num_examples, options.num_workers) * options.num_workers;
    case Tail::kDrop:
      return options.num_examples / options.num_workers * options.num_workers;
  }
  return options.num_examples;
}

}  // namespace

absl::Status Validate(const SamplerOptions& options) {
  const auto refuse = [](const auto&... text) { return absl::InvalidArgumentError(absl::StrCat(text...)); };
  if (options.num_examples < 1) return refuse("the data set holds no examples");
  if (options.num_examples > std::numeric_limits<int32_t>::max()) {
    return refuse("the data set holds ", options.num_examples, " examples, more than 2^31");
  }
  if (options.num_workers < 1)
    return refuse("cannot divide the data among ", options.num_workers, " workers");
  if (options.worker < 0 || options.worker >= options.num_workers) {
    return refuse("worker ", options.worker, " is not one of 0 to ", options.num_workers - 1);
  }
  // This bound ensures that positions fit into 64 bits with any flags.
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (options.num_workers > kMax)
    return refuse("cannot divide the data among ", options.num_workers, " workers");
  if (options.batch_size < 1 || options.batch_size > kMax) {
    return refuse("the batch size is ", options.batch_size, ", not 1 to ", kMax);
  }
  if (PositionsOf(options) == 0) {
    return refuse(options.num_examples, " examples do not give each of ", options.num_workers,
                  " workers one, and the tail is dropped");
  }
  return absl::OkStatus();
}

Sampler::Sampler(const SamplerOptions& options)
    : options_(options),
      positions_(PositionsOf(options)),
      batches_per_epoch_(
          RoundedUpQuotient(RoundedUpQuotient(positions_, options.num_workers), options.batch_size)) {
  CAIRN_CHECK(Validate(options).ok());
}

int64_t Sampler::batches_with_examples() const {
  // The worker's positions are worker, worker + num_workers, ... below positions_.
  const int64_t examples = positions_ > options_.worker
                               ? RoundedUpQuotient(positions_ - options_.worker, options_.num_workers)
                               : 0;
  return RoundedUpQuotient(examples, options_.batch_size);
}

int64_t Sampler::ExamplesBefore(int64_t position) const {
  const int64_t epoch = position / batches_per_epoch_, batch = position % batches_per_epoch_;
  return epoch * positions_ + std::min(positions_, batch * options_.batch_size * options_.num_workers);
}

void Sampler::Order(int64_t epoch) {
  if (epoch == cached_epoch_) return;
  if (options_.shuffle) {
    Random random(options_.seed, absl::StrCat("data/shuffle/", epoch));
    order_ = RandomPermutation(static_cast<uint32_t>(options_.num_examples), random);
  } else if (order_.empty()) {
    order_.resize(static_cast<size_t>(options_.num_examples));
    std::iota(order_.begin(), order_.end(), 0u);
  } else {
    cached_epoch_ = epoch;
    return;
  }
  if (!options_.bucket_of.empty())
    order_ = GroupByBucket(order_, options_.bucket_of, options_.batch_size * options_.num_workers);
  cached_epoch_ = epoch;
}

std::vector<uint32_t> Sampler::Run(int64_t epoch, int64_t first, int64_t count) {
  CAIRN_CHECK(epoch >= 0 && first >= 0 && count >= 0 && first <= options_.num_examples - count);
  Order(epoch);
  return {order_.begin() + first, order_.begin() + first + count};
}

std::vector<uint32_t> Sampler::Batch(int64_t epoch, int64_t batch) {
  CAIRN_CHECK(epoch >= 0 && batch >= 0 && batch < batches_per_epoch_);
  Order(epoch);
  std::vector<uint32_t> examples;
  const int64_t first = batch * options_.batch_size * options_.num_workers + options_.worker;
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const int64_t position = first + i * options_.num_workers;
    if (position >= positions_) break;
    examples.push_back(order_[static_cast<size_t>(position % options_.num_examples)]);
  }
  return examples;
}

}  // namespace cairn::data
