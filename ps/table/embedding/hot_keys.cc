#include "ps/table/embedding/hot_keys.h"

#include <algorithm>

namespace cairn::ps {

size_t HotKeys::NextGap() {
  // Numerical Recipes' linear congruential generator, whose upper bits are random enough to choose a sample.
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  return (random_ >> 33) % (2 * kStride - 1);
}

void HotKeys::Add(absl::Span<const int64_t> keys) {
  size_t at = skip_;
  for (; at < keys.size(); at += 1 + NextGap()) CountOne(keys[at]);
  skip_ = at - keys.size();
}

void HotKeys::CountOne(int64_t key) {
  constexpr auto kWeight = static_cast<int64_t>(kStride);
  total_ += kWeight;
  if (const auto found = counters_.find(key); found != counters_.end()) {
    counts_[found->second] += kWeight;
    return;
  }
  if (keys_.size() < kCounters) {
    counters_[key] = keys_.size();
    keys_.push_back(key);
    counts_.push_back(kWeight);
    errors_.push_back(0);
    return;
  }
  const size_t least = Least();
  counters_.erase(keys_[least]);
  counters_[key] = least;
  keys_[least] = key;
  errors_[least] = counts_[least];
  counts_[least] += kWeight;
}

size_t HotKeys::Least() {
  for (;;) {
    for (size_t i = 0; i < counts_.size(); ++i) {
      const size_t at = next_++ % counts_.size();
      if (counts_[at] == least_count_) return at;
    }
    least_count_ = *std::min_element(counts_.begin(), counts_.end());
  }
}

std::vector<HotKeys::Count> HotKeys::Top(size_t most) const {
  std::vector<Count> top;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const int64_t count = counts_[i] - errors_[i];
    if (count >= 2 * static_cast<int64_t>(kStride)) top.push_back({keys_[i], count});
  }
  most = std::min(most, top.size());
  std::partial_sort(
      top.begin(), top.begin() + static_cast<std::ptrdiff_t>(most), top.end(),
      [](const Count& a, const Count& b) { return a.count != b.count ? a.count > b.count : a.key < b.key; });
  top.resize(most);
  return top;
}

}  // namespace cairn::ps
