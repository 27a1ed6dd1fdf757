// Reads an OptimizerConfig: each optimizer takes the keys it knows, and what nobody took is an error.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ps/optim/optimizer.h"

namespace cairn::ps {

enum class Domain {
  kNonNegative,  // [0, inf)
  kPositive,     // (0, inf)
  kUnit,         // [0, 1]
  kBelowOne,     // [0, 1)
  kFlag,         // 0 or 1
};

// Lives as long as `config`. Not thread-safe.
class HyperparameterReader {
 public:
  // `optimizer` is Keras' class name, for messages.
  HyperparameterReader(absl::string_view optimizer, const OptimizerConfig& config);

  // The value of `name`, or `default_value` when it is absent. A value outside `domain` is reported by
  // Finish().
  double Take(absl::string_view name, double default_value, Domain domain);
  // A feature that Cairn lacks: absent or equal to `off` is accepted, anything else is reported by Finish().
  void RefuseUnless(absl::string_view name, double off);
  // Also accepts the switches of Keras' base class where they are off. The first error, if there was any.
  absl::Status Finish();

 private:
  void Report(absl::string_view what);

  const std::string optimizer_;
  const OptimizerConfig& config_;
  std::vector<std::string> known_;  // names taken so far
  absl::Status first_error_;
};

}  // namespace cairn::ps
