// Reads one JSON object field by field, the way a layer's config is read: every field has a type, a range
// and, where Keras has one, a default. The first fault is kept, and later reads return their defaults, so a
// reader asks for everything and then once for the status. A field that nobody asked for is a fault too:
// nothing in a model file is ignored in silence.
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
#include "worker/nn/initializer.h"
#include "worker/nn/layer.h"

namespace cairn::nn {

class ConfigReader {
 public:
  // `config` must outlive the reader.
  explicit ConfigReader(const nlohmann::json& config);

  // Without `absent` the field is required. A null reads as absent.
  int64_t PositiveInt(absl::string_view field, std::optional<int64_t> absent = std::nullopt);
  // Keras' pairs: 3 means [3, 3].
  std::array<int64_t, 2> PositivePair(absl::string_view field,
                                      std::optional<std::array<int64_t, 2>> absent = std::nullopt);
  // Keras' tuples of one: [3] and 3 are the same.
  int64_t PositiveSingle(absl::string_view field, std::optional<int64_t> absent = std::nullopt);
  // Of any sign; a single one is a list of one.
  std::vector<int64_t> Ints(absl::string_view field,
                            std::optional<std::vector<int64_t>> absent = std::nullopt);
  double Number(absl::string_view field, std::optional<double> absent = std::nullopt);
  // A single number is a list of one; lists within lists are taken as one.
  std::vector<double> Numbers(absl::string_view field,
                              std::optional<std::vector<double>> absent = std::nullopt);
  bool Bool(absl::string_view field, bool absent);
  std::string String(absl::string_view field, absl::string_view absent);
  // One of `allowed`, written in any case.
  std::string Choice(absl::string_view field, std::initializer_list<absl::string_view> allowed,
                     absl::string_view absent);
  InitializerSpec Initializer(absl::string_view field, absl::string_view absent);
  // Keras' L1, L2 and L1L2, or null.
  RegularizerSpec Regularizer(absl::string_view field);

  // For what Keras has and this program does not: the field must be absent, null or `harmless`.
  void Refuse(absl::string_view field, const nlohmann::json& harmless);
  void RefuseUnlessNull(std::initializer_list<absl::string_view> fields);
  // A field that says nothing about the computation.
  void Ignore(std::initializer_list<absl::string_view> fields);

  // The raw value, null when absent.
  const nlohmann::json& Raw(absl::string_view field);
  void Fail(absl::string_view field, absl::string_view fault);

  // The first fault as INVALID_ARGUMENT "field: what is wrong", or OK.
  absl::Status status() const;
  // The same, and fields that were never asked for.
  absl::Status Finish() const;

 private:
  const nlohmann::json& config_;
  std::set<std::string> asked_;
  absl::Status status_;
};

}  // namespace cairn::nn
