// Reads the numbers of a config: each optimizer or schedule takes the keys that it knows, and any other key is an
// error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::optim {

enum class Domain {
  kFinite,        // (-inf, inf)
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

// Must not outlive `numbers`. Not thread-safe.
class HyperparameterReader {
 public:
  // `whose` begins every error message: "optimizer SGD".
  HyperparameterReader(std::string whose, const std::map<std::string, double>& numbers);

  // The value of `name`, or `absent` if the key is missing; without `absent` the key is required. If a
  // required key is missing, or a value is outside `domain`, Finish() reports it, and Take() returns `absent`
  // or, without `absent`, 1.
  double Take(absl::string_view name, std::optional<double> absent, Domain domain);
  // For a feature that Cairn lacks: the key may be missing or equal `off`; Finish() reports any other value.
  void RefuseUnless(absl::string_view name, double off);
  // Accepts a key that does not affect the arithmetic.
  void Ignore(absl::string_view name);
  // Reports an error that concerns several numbers.
  void Report(absl::string_view fault);

  // The first error, if there is one. A key that has not been taken is an error.
  absl::Status Finish() const;

 private:
  // Null when `name` is absent.
  const double* Find(absl::string_view name) const;

  const std::string whose_;
  const std::map<std::string, double>& numbers_;
  std::vector<std::string> taken_;
  std::vector<std::string> passed_over_;  // keys that were refused or ignored
  absl::Status first_fault_;
};

}  // namespace cairn::optim
