// Reads one JSON object field by field, such as a layer's config. Every field has a type, a range and, where
// Keras has one, a default. The first error is kept, and later reads return their defaults, so a caller can
// read all fields and check the status once. A field that is never read is an error too: nothing in a model
// file is ignored silently.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nn/layer/initializer.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

class ConfigReader {
 public:
  // `config` must outlive the reader.
  explicit ConfigReader(const nlohmann::json& config);

  // The field is required unless `absent`, its default, is given. A null counts as an absent field.
  int64_t PositiveInt(absl::string_view field, std::optional<int64_t> absent = std::nullopt);
  // Keras' pairs: 3 means [3, 3].
  std::array<int64_t, 2> PositivePair(absl::string_view field,
                                      std::optional<std::array<int64_t, 2>> absent = std::nullopt);
  // Keras' tuples with an integer for each of `count` axes: 3 means [3, 3, 3].
  std::vector<int64_t> PositiveInts(absl::string_view field, size_t count,
                                    std::optional<std::vector<int64_t>> absent = std::nullopt);
  // Keras' tuples of one: [3] and 3 are the same.
  int64_t PositiveSingle(absl::string_view field, std::optional<int64_t> absent = std::nullopt);
  // Integers of any sign. A single number is a list of one.
  std::vector<int64_t> Ints(absl::string_view field,
                            std::optional<std::vector<int64_t>> absent = std::nullopt);
  double Number(absl::string_view field, std::optional<double> absent = std::nullopt);
  // A single number is a list of one. Nested lists are flattened.
  std::vector<double> Numbers(absl::string_view field,
                              std::optional<std::vector<double>> absent = std::nullopt);
  bool Bool(absl::string_view field, bool absent);
  std::string String(absl::string_view field, absl::string_view absent);
  // One of `allowed`, in upper or lower case.
  std::string Choice(absl::string_view field, std::initializer_list<absl::string_view> allowed,
                     absl::string_view absent);
  InitializerSpec Initializer(absl::string_view field, absl::string_view absent);
  // Keras' L1, L2, L1L2 and OrthogonalRegularizer, or null.
  RegularizerSpec Regularizer(absl::string_view field);
  // Keras' NonNeg, MaxNorm, UnitNorm and MinMaxNorm, or null. Axes are as in VariableSpec.
  std::optional<Constraint> ReadConstraint(absl::string_view field);

  // For a feature of Keras that this program lacks: the field must be absent, null or `harmless`.
  void Refuse(absl::string_view field, const nlohmann::json& harmless);
  void RefuseUnlessNull(std::initializer_list<absl::string_view> fields);
  // Accepts fields that do not affect the computation.
  void Ignore(std::initializer_list<absl::string_view> fields);

  // Whether the config has the field, which may be null.
  bool Has(absl::string_view field) const;
  // The raw value, null when absent.
  const nlohmann::json& Raw(absl::string_view field);
  void Fail(absl::string_view field, absl::string_view fault);

  // The first error as INVALID_ARGUMENT "field: what is wrong", or OK.
  absl::Status status() const;
  // Like status(), but also fails if a field has never been read.
  absl::Status Finish() const;

 private:
  const nlohmann::json& config_;
  std::set<std::string> asked_;
  absl::Status status_;
};

}  // namespace cairn::nn
