#include "data/batch_loader.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"

namespace cairn::data {

BatchLoader::BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, int depth,
                         TraceRecorder* trace, const LengthBuckets* buckets)
    : sampler_(sampler),
      dataset_(dataset),
      augmentation_(dataset.augmentation()),
      seed_(sampler.seed),
      batches_per_epoch_(sampler_.batches_per_epoch()),
      batch_size_(sampler.batch_size),
      depth_(depth),
      trace_(trace),
      buckets_(buckets) {
  CAIRN_CHECK(sampler.num_examples == dataset.size());
  CAIRN_CHECK(depth >= 1);
  const std::vector<InputSpec> specs = dataset.input_specs();
  const auto make_batch = [&] {
    Batch batch;
    try {
      batch.inputs = InputRows(specs, sampler.batch_size);
      batch.targets = AlignedBuffer(sampler.batch_size * dataset.num_targets());
      const int64_t weights = dataset.weights_per_example();
      if (weights > 0) batch.weights = AlignedBuffer(sampler.batch_size * weights);
    } catch (const OutOfMemory& error) {
      throw OutOfMemory(error.floats(),
                        absl::StrCat("one of ", depth + 1, " batches of ", sampler.batch_size, " examples"));
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].ragged) buffers_.push_back(batch.inputs.buffers()[i].span());
    }
    for (const AlignedBuffer* buffer : {&batch.targets, &batch.weights}) {
      if (buffer->size() > 0) buffers_.push_back(buffer->span());
    }
    return batch;
  };
  current_ = make_batch();
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < depth; ++i) spare_.push_back(make_batch());
  }
  thread_ = Thread("batch-loader", [this] { Prepare(); });
}

BatchLoader::~BatchLoader() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.NotifyOne();
  thread_.Join();
}

const Batch& BatchLoader::Next(int64_t position) {
  CAIRN_CHECK(position >= 0);
  std::vector<Piece> ahead;
  for (int i = 1; i <= depth_; ++i) ahead.push_back({.position = position + i});
  return Next({.position = position}, ahead);
}

const Batch& BatchLoader::Next(const data::Run& run, absl::Span<const data::Run> ahead) {
  std::vector<Piece> pieces;
  for (const data::Run& next : ahead) pieces.push_back({.run = next});
  return Next({.run = run}, pieces);
}

const Batch& BatchLoader::Next(const Piece& piece, absl::Span<const Piece> ahead) {
  MutexLock lock(mutex_);
  std::deque<Piece> plan(ahead.begin(), ahead.end());
  plan.push_front(piece);
  // Keep the ready batches that match the beginning of the plan, and the batch being filled if it comes next.
  size_t kept = 0;
  while (kept < ready_.size() && kept < plan.size() && ready_[kept].piece == plan[kept]) ++kept;
  const bool all_kept = kept == ready_.size();
  while (ready_.size() > kept) {
    spare_.push_back(std::move(ready_.back().batch));
    ready_.pop_back();
  }
  plan.erase(plan.begin(), plan.begin() + static_cast<std::ptrdiff_t>(kept));
  if (filling_.has_value() && all_kept && !plan.empty() && *filling_ == plan.front()) {
    plan.pop_front();
  } else {
    filling_.reset();
  }
  wanted_ = std::move(plan);
  work_.NotifyOne();
  while (ready_.empty()) batch_ready_.Wait(mutex_);
  spare_.push_back(std::exchange(current_, std::move(ready_.front().batch)));
  ready_.pop_front();
  work_.NotifyOne();
  return current_;
}

const Batch& BatchLoader::Ahead(int ahead) {
  const auto count = static_cast<size_t>(ahead);
  MutexLock lock(mutex_);
  CAIRN_CHECK(ahead >= 1 && ahead <= depth_);
  CAIRN_CHECK(count <= ready_.size() + (filling_.has_value() ? 1 : 0) + wanted_.size());
  while (ready_.size() < count) batch_ready_.Wait(mutex_);
  return ready_[count - 1].batch;
}

void BatchLoader::Prepare() {
  mutex_.Lock();
  for (;;) {
    while (!stopping_ && (wanted_.empty() || spare_.empty())) work_.Wait(mutex_);
    if (stopping_) break;
    Batch batch = std::move(spare_.back());
    spare_.pop_back();
    const Piece piece = wanted_.front();
    wanted_.pop_front();
    filling_ = piece;
    mutex_.Unlock();
    Fill(piece, batch);
    mutex_.Lock();
    if (filling_.has_value()) {
      filling_.reset();
      ready_.push_back({piece, std::move(batch)});
      batch_ready_.NotifyOne();
    } else {
      spare_.push_back(std::move(batch));
    }
  }
  mutex_.Unlock();
}

void BatchLoader::Fill(const Piece& piece, Batch& batch) {
  const TraceSpan span(trace_, TraceLane::kLoad, "load", {.step = 0});  // the step is not known yet
  std::vector<uint32_t>& examples = batch.rows;
  if (piece.run.has_value()) {
    batch.epoch = piece.run->epoch;
    batch.index = piece.run->first / batch_size_;
    examples = sampler_.Run(piece.run->epoch, piece.run->first, piece.run->count);
  } else {
    batch.epoch = piece.position / batches_per_epoch_;
    batch.index = piece.position % batches_per_epoch_;
    examples = sampler_.Batch(batch.epoch, batch.index);
  }
  batch.examples = static_cast<int64_t>(examples.size());
  dataset_.Prefetch(examples, Dataset::Fetch::kFromDisk);
  // An example of a large set is seldom in the processor's caches. Several fetches from memory overlap.
  constexpr size_t kAhead = 4;
  const auto num_targets = static_cast<size_t>(dataset_.num_targets());
  for (size_t row = 0; row < examples.size(); ++row) {
    if (row + kAhead < examples.size()) {
      dataset_.Prefetch({&examples[row + kAhead], 1}, Dataset::Fetch::kFromMemory);
    }
    const absl::Span<const MutableTensorView> inputs = batch.inputs.Row(static_cast<int64_t>(row));
    dataset_.Read(examples[row], inputs, batch.targets.span().subspan(row * num_targets, num_targets));
    if (!augmentation_.empty()) {
      Augment(augmentation_, dataset_.example_shape(), {seed_, batch.epoch, examples[row]},
              inputs[0].floats());
    }
    const absl::Span<const float> weights = dataset_.WeightsOf(examples[row]);
    std::copy(weights.begin(), weights.end(), batch.weights.data() + row * weights.size());
  }
  batch.num_targets = dataset_.num_targets();
  batch.num_weights = dataset_.weights_per_example();
  if (buckets_ != nullptr && !examples.empty()) CutToBucket(batch);
}

void BatchLoader::CutToBucket(Batch& batch) const {
  uint8_t longest = 0;
  for (const uint32_t example : batch.rows) longest = std::max(longest, buckets_->bucket_of[example]);
  if (longest + size_t{1} == buckets_->forms.size()) return;
  const BucketForm& form = buckets_->forms[longest];
  const auto first = [&](AlignedBuffer& all, int64_t each) {
    return all.span().first(batch.rows.size() * static_cast<size_t>(each));
  };
  Cut(form, batch.examples,
      {.inputs = batch.inputs,
       .targets = first(batch.targets, batch.num_targets),
       .weights = first(batch.weights, batch.num_weights)});
  batch.num_targets = form.num_targets();
  batch.num_weights = form.num_weights();
}

}  // namespace cairn::data
