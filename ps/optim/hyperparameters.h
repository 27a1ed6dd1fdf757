// Reads the numbers of a Keras config: each optimizer, or schedule, takes the keys it knows, and what nobody
// took is an error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::ps {

enum class Domain {
  kNonNegative,   // [0, inf)
  kPositive,      // (0, inf)
  kNonPositive,   // (-inf, 0]
  kAtLeastOne,    // [1, inf)
  kUnit,          // [0, 1]
  kPositiveUnit,  // (0, 1]
  kBelowOne,      // [0, 1)
  kCount,         // 0, 1, 2, ...
  kFlag,          // 0 or 1
};

// Lives as long as `numbers`. Not thread-safe.
class HyperparameterReader {
 public:
  // `whose` begins every message: "optimizer SGD".
  HyperparameterReader(std::string whose, const std::map<std::string, double>& numbers);

  // The value of `name`, or `absent` when it is absent; without one it is required. What is missing, or
  // outside `domain`, is reported by Finish() and reads as `absent`, or 1.
  double Take(absl::string_view name, std::optional<double> absent, Domain domain);
  // A feature that Cairn lacks: absent or equal to `off` is accepted, anything else is reported by Finish().
  void RefuseUnless(absl::string_view name, double off);
  // A key that says nothing about the arithmetic.
  void Ignore(absl::string_view name);
  // A fault that no single number shows.
  void Report(absl::string_view fault);

  // The first fault, if there was any; keys that nobody took are one.
  absl::Status Finish() const;

 private:
  // Null when `name` is absent.
  const double* Find(absl::string_view name) const;

  const std::string whose_;
  const std::map<std::string, double>& numbers_;
  std::vector<std::string> taken_;
  std::vector<std::string> passed_over_;  // refused or ignored
  absl::Status first_fault_;
};

}  // namespace cairn::ps
