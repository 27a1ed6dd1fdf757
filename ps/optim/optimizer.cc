#include "ps/optim/optimizer.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ps/optim/adagrad.h"
#include "ps/optim/adam.h"
#include "ps/optim/sgd.h"

namespace cairn::ps {
namespace {

struct Row {
  absl::string_view name;  // Keras' class name
  absl::StatusOr<std::unique_ptr<Optimizer>> (*make)(const OptimizerConfig&, Isa);
};
constexpr Row kOptimizers[] = {
    {"SGD", MakeSgd},
    {"Adam", MakeAdam},
    {"Adagrad", MakeAdagrad},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config, Isa isa) {
  for (const Row& row : kOptimizers) {
    if (absl::EqualsIgnoreCase(config.name, row.name)) return row.make(config, isa);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown optimizer '", config.name,
                   "'; supported: ", absl::StrJoin(kOptimizers, ", ", [](std::string* out, const Row& row) {
                     absl::StrAppend(out, row.name);
                   })));
}

}  // namespace cairn::ps
