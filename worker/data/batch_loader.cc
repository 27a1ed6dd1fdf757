#include "worker/data/batch_loader.h"

#include <utility>

#include "common/core/status.h"

namespace cairn::data {

BatchLoader::BatchLoader(const Dataset& dataset, const SamplerOptions& sampler, int depth)
    : sampler_(sampler),
      dataset_(dataset),
      augmentation_(dataset.augmentation()),
      seed_(sampler.seed),
      example_elements_(dataset.example_shape().num_elements()),
      batches_per_epoch_(sampler_.batches_per_epoch()) {
  CAIRN_CHECK(sampler.num_examples == dataset.size());
  CAIRN_CHECK(depth >= 1);
  const auto make_batch = [&] {
    Batch batch;
    batch.inputs = AlignedBuffer(sampler.batch_size * example_elements_);
    batch.targets = AlignedBuffer(sampler.batch_size * dataset.num_targets());
    if (dataset.weighted()) batch.weights = AlignedBuffer(sampler.batch_size);
    for (const AlignedBuffer* buffer : {&batch.inputs, &batch.targets, &batch.weights}) {
      if (buffer->size() > 0) buffers_.push_back(buffer->span());
    }
    return batch;
  };
  current_ = make_batch();
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < depth; ++i) spare_.push_back(make_batch());
  }
  thread_ = Thread("batch-loader", [this] { Run(); });
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
  MutexLock lock(mutex_);
  if (position != ready_position_) {
    for (Batch& batch : ready_) spare_.push_back(std::move(batch));
    ready_.clear();
    ready_position_ = fill_position_ = position;
    ++restarts_;
    work_.NotifyOne();
  }
  while (ready_.empty()) batch_ready_.Wait(mutex_);
  spare_.push_back(std::exchange(current_, std::move(ready_.front())));
  ready_.pop_front();
  ++ready_position_;
  work_.NotifyOne();
  return current_;
}

void BatchLoader::Run() {
  mutex_.Lock();
  for (;;) {
    while (!stopping_ && (fill_position_ < 0 || spare_.empty())) work_.Wait(mutex_);
    if (stopping_) break;
    Batch batch = std::move(spare_.back());
    spare_.pop_back();
    const int64_t position = fill_position_++;
    const int64_t begun_at = restarts_;
    mutex_.Unlock();
    Fill(position, batch);
    mutex_.Lock();
    if (begun_at == restarts_) {
      ready_.push_back(std::move(batch));
      batch_ready_.NotifyOne();
    } else {
      spare_.push_back(std::move(batch));
    }
  }
  mutex_.Unlock();
}

void BatchLoader::Fill(int64_t position, Batch& batch) {
  batch.epoch = position / batches_per_epoch_;
  batch.index = position % batches_per_epoch_;
  const std::vector<uint32_t> examples = sampler_.Batch(batch.epoch, batch.index);
  batch.examples = static_cast<int64_t>(examples.size());
  dataset_.Prefetch(examples);
  const auto elements = static_cast<size_t>(example_elements_);
  const auto num_targets = static_cast<size_t>(dataset_.num_targets());
  for (size_t row = 0; row < examples.size(); ++row) {
    const absl::Span<float> inputs = batch.inputs.span().subspan(row * elements, elements);
    const float weight =
        dataset_.Read(examples[row], inputs, batch.targets.span().subspan(row * num_targets, num_targets));
    if (!augmentation_.empty()) {
      Augment(augmentation_, dataset_.example_shape(), seed_, batch.epoch, examples[row], inputs);
    }
    if (dataset_.weighted()) batch.weights.data()[row] = weight;
  }
}

}  // namespace cairn::data
