#include "nn/metrics/score_counts.h"

#include <bit>
#include <cmath>

namespace cairn::nn {
namespace {

// Entries that are added between two compactions, at least.
constexpr size_t kMinRecent = 1 << 16;

// The rank of `score` among all floats; 0 for NaN.
uint32_t RankOf(float score) {
  if (std::isnan(score)) return 0;
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes 0
  constexpr uint32_t kSign = uint32_t{1} << 31;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

}  // namespace

void ScoreCounts::Add(float score, bool positive, double weight) {
  entries_.push_back({Rounded(RankOf(score)) << 1 | (positive ? 1u : 0u), weight});
  if (entries_.size() - sorted_ >= std::max(kMinRecent, sorted_ / 4)) Compact();
}

void ScoreCounts::Reset() {
  dropped_bits_ = 0;
  sorted_ = 0;
  entries_.clear();
}

void ScoreCounts::Sort(Entries& entries, size_t first) {
  std::sort(entries.begin() + static_cast<std::ptrdiff_t>(first), entries.end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
}

void ScoreCounts::Combine(Entries& entries) {
  size_t kept = 0;
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].key == entries[kept].key) {
      entries[kept].weight += entries[i].weight;
    } else {
      entries[++kept] = entries[i];
    }
  }
  if (!entries.empty()) entries.resize(kept + 1);
}

void ScoreCounts::Compact() {
  Sort(entries_, sorted_);
  std::inplace_merge(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(sorted_),
                     entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
  Combine(entries_);
  while (entries_.size() > max_entries_) {
    ++dropped_bits_;
    for (Entry& entry : entries_) entry.key = Rounded(entry.score()) << 1 | (entry.key & 1);
    Sort(entries_, 0);
    Combine(entries_);
  }
  sorted_ = entries_.size();
}

}  // namespace cairn::nn
