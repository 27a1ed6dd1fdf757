// tf.Example on the wire (tensorflow/core/example/example.proto), read where it lies: no more of protobuf's
// format than this message needs.
//
//   Example { Features { map<string, Feature> } },  Feature = bytes_list | float_list | int64_list
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::data {

struct Feature {
  enum class Kind { kNone, kBytes, kFloats, kIntegers };
  Kind kind = Kind::kNone;
  absl::Span<const uint8_t> list;  // the encoded list
};

struct NamedFeature {
  absl::string_view name;
  Feature feature;
};

absl::string_view NameOf(Feature::Kind kind);  // "float_list"

// The features of one example, in the order of the file; they borrow from `example`. INVALID_ARGUMENT where
// the bytes are no Example.
absl::StatusOr<std::vector<NamedFeature>> ParseExample(absl::Span<const uint8_t> example);

// How many numbers a feature holds; of a bytes_list, which must hold one string, its bytes. INVALID_ARGUMENT
// where the list is malformed.
absl::StatusOr<int64_t> CountValues(const Feature& feature);

// Writes the values of a feature for which CountValues() is `to.size()`; bytes as numbers from 0 to 255.
// Where there are fewer after all, the rest is left as it is.
void ReadValues(const Feature& feature, absl::Span<float> to);

// The string of a bytes_list that holds just one; nullopt of any other feature.
std::optional<absl::Span<const uint8_t>> OneString(const Feature& feature);

// The value of an int64_list that holds just one; nullopt of any other feature.
std::optional<int64_t> OneInteger(const Feature& feature);

}  // namespace cairn::data
