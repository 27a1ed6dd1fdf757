#include "ps/variable_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cairn::ps {
namespace {

// Buffers kept for use again: one per worker that pushes at the same time, within reason, and two for
// versions.
constexpr size_t kIdleBuffers = 16;

int64_t TotalElements(absl::Span<const net::Slice> slices) {
  int64_t total = 0;
  for (const net::Slice& slice : slices) total += slice.elements();
  return total;
}

}  // namespace

VariableStore::VariableStore(std::vector<net::Slice> slices, const Optimizer* optimizer)
    : slices_(std::move(slices)), optimizer_(optimizer), pool_(TotalElements(slices_), kIdleBuffers) {
  if (optimizer_ != nullptr) {
    for (size_t slot = 0; slot < optimizer_->slot_names().size(); ++slot) {
      slots_.emplace_back(size());
      const float initial = optimizer_->initial_slot_value(static_cast<int>(slot));
      if (initial != 0) std::fill_n(slots_.back().data(), size(), initial);
    }
  }
  current_.data = std::make_shared<AlignedBuffer>(size());
}

Values VariableStore::current() const {
  MutexLock lock(mutex_);
  return current_;
}

void VariableStore::Publish(Values next) {
  MutexLock lock(mutex_);
  current_.version = next.version;
  current_.data.swap(next.data);  // the old version's memory is released outside the lock, with `next`
}

absl::Status VariableStore::ApplyMean(absl::Span<const WeightedGradient> gradients) {
  const Values old = current();
  std::shared_ptr<AlignedBuffer> data = pool_.Acquire();
  std::vector<float*> slots;
  for (AlignedBuffer& slot : slots_) slots.push_back(slot.data());
  const int64_t bad = cairn::ps::ApplyMean(
      *optimizer_, UpdateStep{.t = old.version + 1, .learning_rate = optimizer_->learning_rate()}, gradients,
      UpdateRange{
          .count = size(), .old_values = old.data->data(), .slots = slots, .new_values = data->data()});
  if (bad != kAllFinite) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the gradient of '", NameAt(bad), "' is not finite in the update to version ", old.version + 1));
  }
  Publish({.version = old.version + 1, .data = std::move(data)});
  return absl::OkStatus();
}

void VariableStore::Write(const AlignedBuffer& data, absl::Span<const Run> runs) {
  const Values old = current();
  std::shared_ptr<AlignedBuffer> next = pool_.Acquire();
  std::memcpy(next->data(), old.data->data(), static_cast<size_t>(size()) * sizeof(float));
  for (const Run& run : runs) {
    std::memcpy(next->data() + run.begin, data.data() + run.begin,
                static_cast<size_t>(run.end - run.begin) * sizeof(float));
  }
  Publish({.version = old.version, .data = std::move(next)});
}

std::string VariableStore::NameAt(int64_t offset) const {
  for (const net::Slice& slice : slices_) {
    if (offset >= slice.offset && offset < slice.offset + slice.elements()) return slice.name;
  }
  return "?";
}

}  // namespace cairn::ps
