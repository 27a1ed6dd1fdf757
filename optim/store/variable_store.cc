#include "optim/store/variable_store.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/system/entropy.h"

namespace cairn::optim {
namespace {

// Number of idle buffers to keep: one per worker that pushes at the same time, within reason, and two
// for versions.
constexpr size_t kIdleBuffers = 16;

// The minimum number of elements of an update that writes past the caches. The caches could hardly hold both
// its new values and the old ones.
constexpr int64_t kStreamedFrom = int64_t{2} << 20;

// Odd numbers, starting from a random one for each process; never 0.
uint64_t DrawEdition() {
  static std::atomic<uint64_t> next{DrawRandomBits() | 1};
  return next.fetch_add(2, std::memory_order_relaxed);
}

int64_t NumSlots(const Optimizer* optimizer) {
  return optimizer == nullptr ? 0 : static_cast<int64_t>(optimizer->slot_names().size());
}

int64_t TotalElements(absl::Span<const net::Slice> slices) {
  int64_t total = 0;
  for (const net::Slice& slice : slices) total += slice.elements();
  return total;
}

}  // namespace

VariableStore::VariableStore(std::vector<net::Slice> slices, const Optimizer* optimizer,
                             int64_t initial_version, int64_t memory_limit, ThreadPool* thread_pool)
    : slices_(std::move(slices)),
      optimizer_(optimizer),
      thread_pool_(thread_pool),
      plan_(MakePlan({slices_, optimizer, {}}, {}, {}).value()),
      budget_(std::make_shared<MemoryBudget>(memory_limit)),
      pool_(TotalElements(slices_), kIdleBuffers, budget_),
      state_pool_(size() * (1 + NumSlots(optimizer)), /*max_idle=*/0, budget_),
      slots_pool_(size() * NumSlots(optimizer), /*max_idle=*/0, budget_),
      encoded_(std::make_shared<EncodedValues>(size(), budget_)) {
  if (optimizer_ != nullptr) {
    for (size_t slot = 0; slot < optimizer_->slot_names().size(); ++slot) {
      budget_->Take(pool_.buffer_bytes());
      slots_.emplace_back(size());
      const float initial = optimizer_->initial_slot_value(static_cast<int>(slot));
      if (initial != 0) std::fill_n(slots_.back().data(), size(), initial);
    }
  }
  Publish({.version = initial_version, .data = pool_.Acquire()});  // new buffers are zeroed
}

Values VariableStore::current() const {
  MutexLock lock(mutex_);
  return current_;
}

absl::Status VariableStore::CheckRoomForReader() const {
  return pool_.HasRoom() ? absl::OkStatus() : pool_.Refusal("a version in addition to the one to be read");
}

void VariableStore::Publish(Values next) {
  MutexLock lock(mutex_);
  current_.version = next.version;
  current_.edition = DrawEdition();
  current_.data.swap(next.data);  // `next` releases the old version's memory outside the lock
}

AlignedBuffer& VariableStore::Next() {
  if (next_ == nullptr) next_ = pool_.Acquire();
  return *next_;
}

template <typename Body>
auto VariableStore::WithUpdate(const Values& old, const Mean& mean, const Target& target, Body body) const {
  absl::InlinedVector<Slot, 4> slot_data;
  for (size_t i = 0; i < slots_.size(); ++i) {
    slot_data.push_back({slots_[i].data(), target.slots[i].data()});
  }
  KnownSquares known = {.of_slice = {}, .all_gradients = AllGradients(mean.known)};
  if (!optimizer_->norms().empty()) {  // then each UpdateSlice is one net::Slice
    for (const net::Slice& slice : slices_) {
      const auto found = mean.known.find(slice.name);
      known.of_slice.push_back(found == mean.known.end() ? Squares() : found->second);
    }
  }
  return body(Update{.optimizer = *optimizer_,
                     .step = {.t = old.version + 1 - skipped_.empty,
                              .learning_rate = learning_rate() / mean.rate_divisor,
                              .last = mean.last},
                     .gradients = mean.gradients,
                     .slices = target.plan.slices,
                     .all = {.count = size(),
                             .old_values = old.data->data(),
                             .slots = slot_data,
                             .new_values = target.values.data(),
                             .streams = size() >= kStreamedFrom},
                     .known = known,
                     .rate_divisor = mean.rate_divisor,
                     .thread_pool = thread_pool_});
}

absl::Status VariableStore::NotFinite(int64_t offset, int64_t version) const {
  const auto holds = [&](const net::Slice& slice) {
    return offset >= slice.offset && offset < slice.offset + slice.elements();
  };
  const auto slice = std::find_if(slices_.begin(), slices_.end(), holds);
  return absl::InvalidArgumentError(absl::StrCat("the gradient of '",
                                                 slice == slices_.end() ? "?" : slice->name,
                                                 "' is not finite in the update to version ", version));
}

absl::StatusOr<std::vector<SliceSquares>> VariableStore::Measure(Norms norms, const Mean& mean) {
  const Values old = current();
  const MeasuredSlices measured =
      Skips(mean) ? NothingMeasured() : WithUpdate(old, mean, Current(), [norms](const Update& update) {
        return MeasureSlices(norms, update);
      });
  if (measured.non_finite != kAllFinite) return NotFinite(measured.non_finite, old.version + 1);
  std::vector<SliceSquares> sums;
  for (size_t i = 0; i < slices_.size(); ++i) {
    const net::Slice& slice = slices_[i];
    if (slice.moving_average_momentum.has_value()) continue;
    const std::vector<Squares>& bands = measured.of_slice[i];
    sums.push_back({slice.name, slice.row_begin, slice.whole() ? std::vector{Total(bands)} : bands});
  }
  return sums;
}

bool VariableStore::Skips(const Mean& mean) const {
  return skips_empty_updates_ &&
         std::all_of(mean.gradients.begin(), mean.gradients.end(),
                     [](const ContributedGradient& gradient) { return gradient.examples() == 0; });
}

MeasuredSlices VariableStore::NothingMeasured() const {
  MeasuredSlices measured;
  for (const UpdateSlice& slice : plan_.slices) {
    const int64_t elements = slice.end - slice.begin;
    measured.of_slice.emplace_back(
        static_cast<size_t>(elements == 0 ? 0 : (elements + slice.band - 1) / slice.band));
  }
  return measured;
}

absl::Status VariableStore::ApplyMean(const Mean& mean) {
  const Values old = current();
  if (Skips(mean)) {
    ++skipped_.empty;
    Publish({.version = old.version + 1, .data = old.data});
    if (mean.last) EndHere();
    return absl::OkStatus();
  }
  const int64_t bad =
      WithUpdate(old, mean, Current(), [](const Update& update) { return UpdateSlices(update); });
  if (bad != kAllFinite) return NotFinite(bad, old.version + 1);
  CountUntouched();
  Publish({.version = old.version + 1, .data = std::exchange(next_, nullptr)});
  return absl::OkStatus();
}

// The plan keeps its counts: those of a group that is untouched matter when it has other settings.
void VariableStore::CountUntouched() {
  for (size_t group = 0; group < groups_.size(); ++group) {
    if (!groups_[group].untouched) continue;
    if (skipped_.untouched.size() < groups_.size()) skipped_.untouched.resize(groups_.size());
    ++skipped_.untouched[group];
  }
}

void VariableStore::BeginSpeculative() {
  speculative_ = pool_.Acquire();
  speculative_plan_ = plan_;
  while (speculative_slots_.size() < slots_.size()) {
    budget_->Take(pool_.buffer_bytes());
    speculative_slots_.emplace_back(size());
  }
}

absl::Status VariableStore::SetSpeculativeGroups(const std::vector<GroupSettings>& groups) {
  CAIRN_ASSIGN_OR_RETURN(speculative_plan_, PlanWith(groups));
  return absl::OkStatus();
}

std::shared_ptr<const AlignedBuffer> VariableStore::ApplySpeculatively(const Mean& mean, int64_t begin,
                                                                       int64_t end) {
  const int64_t bad = WithUpdate(current(), mean, {*speculative_, speculative_slots_, speculative_plan_},
                                 [&](const Update& update) { return UpdatePiece(update, begin, end); });
  return bad == kAllFinite ? speculative_ : nullptr;
}

void VariableStore::PublishSpeculative() {
  slots_.swap(speculative_slots_);
  CountUntouched();
  Publish({.version = current().version + 1, .data = std::exchange(speculative_, nullptr)});
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

void VariableStore::WriteState(const AlignedBuffer& state) {
  const Run everything = {0, size()};
  Write(state, {&everything, 1});
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    std::copy_n(state.data() + static_cast<int64_t>(slot + 1) * size(), size(), slots_[slot].data());
  }
}

absl::StatusOr<std::shared_ptr<const AlignedBuffer>> VariableStore::CopySlots() {
  if (slots_.empty()) return nullptr;
  std::shared_ptr<AlignedBuffer> copy = slots_pool_.TryAcquire();
  if (copy == nullptr) {  // idle buffers may occupy the memory
    pool_.DropIdle();
    copy = slots_pool_.TryAcquire();
  }
  if (copy == nullptr) return slots_pool_.Refusal("the slots of a snapshot");
  FillSlotsCopy(*copy);
  return copy;
}

std::shared_ptr<const AlignedBuffer> VariableStore::CopySlotsBeyondBudget() {
  if (slots_.empty()) return nullptr;
  std::shared_ptr<AlignedBuffer> copy = slots_pool_.Acquire();
  FillSlotsCopy(*copy);
  return copy;
}

void VariableStore::FillSlotsCopy(AlignedBuffer& copy) const {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    std::copy_n(slots_[slot].data(), size(), copy.data() + static_cast<int64_t>(slot) * size());
  }
}

void VariableStore::Restore(int64_t version, const AlignedBuffer* state) {
  if (state != nullptr) WriteState(*state);
  Publish({.version = version, .data = current().data});
}

std::optional<float> VariableStore::changed_learning_rate() const {
  MutexLock lock(mutex_);
  return learning_rate_;
}

void VariableStore::SetLearningRate(float rate) {
  MutexLock lock(mutex_);
  learning_rate_ = rate;
}

void VariableStore::AssignGroups(std::vector<int> group_of_slice) {
  group_of_slice_ = std::move(group_of_slice);
}

absl::StatusOr<UpdatePlan> VariableStore::PlanWith(const std::vector<GroupSettings>& groups) const {
  return MakePlan({slices_, optimizer_, group_of_slice_}, groups, skipped_);
}

absl::Status VariableStore::SetGroups(std::vector<GroupSettings> groups) {
  CAIRN_ASSIGN_OR_RETURN(plan_, PlanWith(groups));
  groups_ = std::move(groups);
  return absl::OkStatus();
}

void VariableStore::SetSkipped(SkippedUpdates skipped) {
  const int64_t version = current().version;
  skipped.empty = std::min(skipped.empty, version);
  for (int64_t& untouched : skipped.untouched) untouched = std::min(untouched, version - skipped.empty);
  skipped_ = std::move(skipped);
  plan_ = PlanWith(groups_).value();  // SetGroups() has made a plan with these groups
}

float VariableStore::learning_rate() const {
  if (optimizer_ == nullptr) return 0;
  MutexLock lock(mutex_);
  return learning_rate_.value_or(optimizer_->learning_rate(current_.version));
}

void VariableStore::EndHere() {
  if (optimizer_ == nullptr || !optimizer_->options().use_ema || current().version == 0) return;
  std::vector<Run> trained;
  for (const UpdateSlice& update_slice : plan_.slices) {
    if (!update_slice.moving_average_momentum.has_value() && !update_slice.untouched)
      trained.push_back({update_slice.begin, update_slice.end});
  }
  Write(slots_.back(), trained);
}

}  // namespace cairn::optim
