// Keras' initializers for the rows of a table: their names, parameters and checks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::embedding {

// A Keras initializer: its class name in any case, or its short name ("random_uniform", "uniform"), and the numbers
// and words of its config under Keras' names. A null is a missing key.
struct InitializerConfig {
  std::string name;
  std::map<std::string, double> numbers{};
  std::map<std::string, std::string> words{};  // "mode" and "distribution" of VarianceScaling
};

// The shape of a table, for the initializers whose spread depends on it.
struct TableShape {
  int64_t vocabulary_size = 0;  // 0: a dynamic table, which has no fixed number of rows
  int dim = 0;
};

// How each element of a row is distributed.
struct RowDistribution {
  enum class Kind {
    kConstant,         // `center`
    kUniform,          // [center - spread, center + spread)
    kNormal,           // mean `center`, standard deviation `spread`
    kTruncatedNormal,  // kNormal, restricted to two standard deviations
  };
  Kind kind = Kind::kConstant;
  double center = 0;
  double spread = 0;
};

// The fans of a table are those of Keras' variable [vocabulary_size, dim]. INVALID_ARGUMENT for an unknown name (lists
// the supported ones), for a number or word that is unknown or out of range, and for an initializer that depends on
// the number of rows of a dynamic table. What is missing has Keras' default; a "seed" is an unknown number.
absl::StatusOr<RowDistribution> ResolveInitializer(const InitializerConfig& config, const TableShape& shape);

}  // namespace cairn::embedding
