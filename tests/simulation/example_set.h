// A set of examples, numbered through all epochs and stored as runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "cairn/v1/job.pb.h"

namespace cairn::simulation {

class ExampleSet {
 public:
  ExampleSet() = default;
  // The examples before a position.
  explicit ExampleSet(const v1::DataPosition& position) {
    int64_t begin = 0;
    for (const v1::DataPosition::Run& open : position.open()) {
      Add(begin, open.begin());
      begin = open.begin() + open.count();
    }
    Add(begin, position.next());
  }

  // Adds [begin, end). False: some of them were already in the set.
  bool Add(int64_t begin, int64_t end) {
    if (begin >= end) return true;
    auto next = runs_.lower_bound(begin);
    bool fresh = next == runs_.end() || next->first >= end;
    if (next != runs_.begin()) {
      const auto before = std::prev(next);
      fresh &= before->second <= begin;
      if (before->second >= begin) {  // they meet
        begin = before->first;
        end = std::max(end, before->second);
        runs_.erase(before);
      }
    }
    while (next != runs_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = runs_.erase(next);
    }
    runs_[begin] = end;
    return fresh;
  }
  bool Holds(int64_t begin, int64_t end) const {
    if (begin >= end) return true;
    const auto next = runs_.upper_bound(begin);
    return next != runs_.begin() && std::prev(next)->second >= end;
  }
  int64_t size() const {
    int64_t count = 0;
    for (const auto& [begin, end] : runs_) count += end - begin;
    return count;
  }
  friend bool operator==(const ExampleSet&, const ExampleSet&) = default;

 private:
  std::map<int64_t, int64_t> runs_;  // begin to end; none meets another
};

}  // namespace cairn::simulation
