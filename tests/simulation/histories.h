// A checker for each history of a job. A history begins whenever all servers are rolled back together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/members/incarnation.h"
#include "tests/simulation/checker.h"

namespace cairn::simulation {

class Histories {
 public:
  explicit Histories(const Rules& rules) : rules_(rules) {}

  // The servers learn of this generation of the job. Does nothing if they already have.
  void Begin(int64_t generation, const Start& start) {
    if (checkers_.count(generation) > 0) return;
    if (!checkers_.empty()) newest().RollBack(start);
    checkers_[generation] = std::make_unique<Checker>(rules_, start);
  }
  bool begun() const { return !checkers_.empty(); }
  int64_t generation() const { return checkers_.rbegin()->first; }
  Checker& newest() { return *checkers_.rbegin()->second; }
  Checker& Of(int64_t generation) { return *checkers_.at(generation); }
  Checker& OfIncarnation(uint64_t incarnation) { return Of(ps::GenerationOf(incarnation)); }

  std::vector<std::string> violations() const {
    std::vector<std::string> all;
    for (const auto& [generation, checker] : checkers_) {
      all.insert(all.end(), checker->violations().begin(), checker->violations().end());
    }
    return all;
  }
  bool sound() const {
    for (const auto& [generation, checker] : checkers_) {
      if (!checker->violations().empty()) return false;
    }
    return true;
  }
  Checker::Coverage coverage() const {
    Checker::Coverage all;
    for (const auto& [generation, checker] : checkers_) all += checker->coverage();
    return all;
  }

 private:
  const Rules rules_;
  std::map<int64_t, std::unique_ptr<Checker>> checkers_;  // [generation]
};

}  // namespace cairn::simulation
