// The weights of positive and negative predictions by score: a histogram with a bin for each different float.
// Two such histograms could be merged without loss.
//
// Memory: up to `max_entries` pairs of a score and a class, of 16 bytes each, and a quarter more between two
// compactions. If there are more pairs, scores are rounded to one bit less, repeatedly, until the pairs are few
// enough; scores that have become equal share a bin. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::nn {

class ScoreCounts {
 public:
  // 268 MB of entries.
  static constexpr size_t kMaxEntries = size_t{1} << 24;

  explicit ScoreCounts(size_t max_entries = kMaxEntries) : max_entries_(max_entries) {}

  // A NaN counts as less than all numbers, and -0 equals 0.
  void Add(float score, bool positive, double weight);
  // Calls visit(positives, negatives), with the sums of weights, for each different score from the highest to
  // the lowest.
  template <typename Visit>
  void ForEachScoreFromAbove(const Visit& visit) const;
  void Reset();

  // The number of low bits by which scores are rounded.
  int dropped_bits() const { return dropped_bits_; }

 private:
  // Sorted by `key`, entries have the order of their scores, negatives before positives.
  struct Entry {
    uint64_t key;  // 2 * (the rank of the score among all floats) + (1 if positive)
    double weight;
    uint64_t score() const { return key >> 1; }
  };
  using Entries = std::vector<Entry>;

  // Sorts entries from `first` on.
  static void Sort(Entries& entries, size_t first);
  // Adds up the weights of adjacent entries with equal keys, and removes all but one of them.
  static void Combine(Entries& entries);
  // Makes all entries one sorted range without duplicates.
  void Compact();
  uint64_t Rounded(uint64_t score) const { return score >> dropped_bits_ << dropped_bits_; }

  const size_t max_entries_;
  int dropped_bits_ = 0;
  size_t sorted_ = 0;  // entries before this index are sorted and have different keys
  Entries entries_;
};

template <typename Visit>
void ScoreCounts::ForEachScoreFromAbove(const Visit& visit) const {
  Entries recent(entries_.begin() + static_cast<std::ptrdiff_t>(sorted_), entries_.end());
  Sort(recent, 0);
  size_t old_left = sorted_, recent_left = recent.size();
  while (old_left > 0 || recent_left > 0) {
    uint64_t score = 0;
    if (old_left > 0) score = entries_[old_left - 1].score();
    if (recent_left > 0) score = std::max(score, recent[recent_left - 1].score());
    double sums[2] = {0, 0};
    const auto take = [&](const Entries& from, size_t& left) {
      for (; left > 0 && from[left - 1].score() == score; --left)
        sums[from[left - 1].key & 1] += from[left - 1].weight;
    };
    take(entries_, old_left);
    take(recent, recent_left);
    visit(sums[1], sums[0]);
  }
}

}  // namespace cairn::nn
