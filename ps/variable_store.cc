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

// Neighbours that change by one rule are updated in one go, unless the optimizer wants each variable's norms.
std::vector<UpdatePart> PartsOf(absl::Span<const net::Slice> slices, const Optimizer* optimizer) {
  const bool one_by_one = optimizer != nullptr && optimizer->norms() != Norms::kNone;
  std::vector<UpdatePart> parts;
  for (const net::Slice& slice : slices) {
    const auto& momentum = slice.moving_average_momentum;
    const int64_t end = slice.offset + slice.elements();
    const bool trained_alone = one_by_one && !momentum.has_value();
    if (!parts.empty() && parts.back().moving_average_momentum == momentum && !trained_alone) {
      parts.back().end = end;
    } else {
      parts.push_back({slice.offset, end, momentum});
    }
  }
  return parts;
}

}  // namespace

VariableStore::VariableStore(std::vector<net::Slice> slices, const Optimizer* optimizer)
    : slices_(std::move(slices)),
      optimizer_(optimizer),
      parts_(PartsOf(slices_, optimizer)),
      pool_(TotalElements(slices_), kIdleBuffers) {
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

absl::Status VariableStore::ApplyMean(absl::Span<const WeightedGradient> gradients, bool last) {
  const Values old = current();
  std::shared_ptr<AlignedBuffer> data = pool_.Acquire();
  std::vector<float*> slots;
  for (AlignedBuffer& slot : slots_) slots.push_back(slot.data());
  const UpdateStep step = {
      .t = old.version + 1, .learning_rate = optimizer_->learning_rate(old.version), .last = last};
  const UpdateRange all = {
      .count = size(), .old_values = old.data->data(), .slots = slots, .new_values = data->data()};
  const int64_t bad = UpdateParts(*optimizer_, step, gradients, parts_, all);
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
