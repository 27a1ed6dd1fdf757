// Parses serialized tf.Example messages (tensorflow/core/example/example.proto) in place. Supports only the
// subset of the protobuf encoding that this message needs.
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

// The features of one example, in the order of the file. The features borrow the bytes of `example`.
// INVALID_ARGUMENT if the bytes are not an Example.
absl::StatusOr<std::vector<NamedFeature>> ParseExample(absl::Span<const uint8_t> example);

// The number of values in a feature; for a bytes_list, which must contain one string, its number of bytes.
// INVALID_ARGUMENT if the list is malformed.
absl::StatusOr<int64_t> CountValues(const Feature& feature);

// Writes the values of a feature, bytes as numbers from 0 to 255. `to.size()` must be its CountValues(). If
// there are fewer values, the rest of `to` is unchanged.
void ReadValues(const Feature& feature, absl::Span<float> to);

// The string of a bytes_list that contains exactly one; nullopt for any other feature.
std::optional<absl::Span<const uint8_t>> OneString(const Feature& feature);

// The value of an int64_list that contains exactly one; nullopt for any other feature.
std::optional<int64_t> OneInteger(const Feature& feature);

}  // namespace cairn::data
