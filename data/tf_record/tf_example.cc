#include "data/tf_record/tf_example.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::data {
namespace {

using Span = absl::Span<const uint8_t>;

// A field of a message: its number, and its value as a varint, or as four, eight or more bytes.
struct Field {
  enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint64_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t varint = 0;
  Span bytes;  // the value, unless it is a varint
};

bool TakeVarint(Span& rest, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const uint8_t byte = rest.front();
    rest.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool TakeBytes(Span& rest, uint64_t count, Span& bytes) {
  if (count > rest.size()) return false;
  bytes = rest.subspan(0, count);
  rest.remove_prefix(count);
  return true;
}

// Removes the next field from `rest`. Returns false if it is malformed.
bool TakeField(Span& rest, Field& field) {
  uint64_t tag = 0, length = 0;
  if (!TakeVarint(rest, tag)) return false;
  field.number = tag >> 3;
  field.wire = static_cast<Field::Wire>(tag & 7);
  switch (field.wire) {
    case Field::Wire::kVarint:
      return TakeVarint(rest, field.varint);
    case Field::Wire::kFixed64:
      return TakeBytes(rest, 8, field.bytes);
    case Field::Wire::kFixed32:
      return TakeBytes(rest, 4, field.bytes);
    case Field::Wire::kBytes:
      return TakeVarint(rest, length) && TakeBytes(rest, length, field.bytes);
  }
  return false;
}

// Calls `visit(field)` for every field of `message`. Returns false if `visit` does, or if the message is
// malformed.
template <typename Visit>
bool ForEachField(Span message, Visit visit) {
  while (!message.empty()) {
    Field field;
    if (!TakeField(message, field) || !visit(field)) return false;
  }
  return true;
}

bool IsMessage(const Field& field, uint64_t number) {
  return field.number == number && field.wire == Field::Wire::kBytes;
}

bool ParseFeature(Span message, Feature& feature) {
  return ForEachField(message, [&](const Field& field) {
    if (field.wire != Field::Wire::kBytes || field.number < 1 || field.number > 3) return true;
    feature = {static_cast<Feature::Kind>(field.number), field.bytes};
    return true;
  });
}

bool ParseEntry(Span message, NamedFeature& entry) {
  return ForEachField(message, [&](const Field& field) {
    if (IsMessage(field, 1)) {
      entry.name = {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()};
    }
    return !IsMessage(field, 2) || ParseFeature(field.bytes, entry.feature);
  });
}

float FloatOf(const uint8_t* bytes) {
  return std::bit_cast<float>(uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
                              uint32_t{bytes[3]} << 24);
}

// Calls `visit(value)` for each float, packed or not. Returns false if the list is malformed.
template <typename Visit>
bool ForEachFloat(Span list, Visit visit) {
  return ForEachField(list, [&](const Field& field) {
    const bool floats = field.wire == Field::Wire::kFixed32 || field.wire == Field::Wire::kBytes;
    if (field.number != 1 || !floats || field.bytes.size() % 4 != 0) return false;
    for (size_t i = 0; i < field.bytes.size(); i += 4) visit(FloatOf(field.bytes.data() + i));
    return true;
  });
}

// Calls `visit(value)` for each integer, packed or not. Returns false if the list is malformed.
template <typename Visit>
bool ForEachInteger(Span list, Visit visit) {
  return ForEachField(list, [&](const Field& field) {
    if (field.number != 1) return false;
    if (field.wire == Field::Wire::kVarint) {
      visit(static_cast<int64_t>(field.varint));
      return true;
    }
    for (Span rest = field.bytes; !rest.empty();) {
      uint64_t value = 0;
      if (field.wire != Field::Wire::kBytes || !TakeVarint(rest, value)) return false;
      visit(static_cast<int64_t>(value));
    }
    return true;
  });
}

// Calls `visit(bytes)` for each string. Returns false if the list is malformed.
template <typename Visit>
bool ForEachString(Span list, Visit visit) {
  return ForEachField(list, [&](const Field& field) {
    if (!IsMessage(field, 1)) return false;
    visit(field.bytes);
    return true;
  });
}

}  // namespace

absl::string_view NameOf(Feature::Kind kind) {
  switch (kind) {
    case Feature::Kind::kNone:
      return "nothing";
    case Feature::Kind::kBytes:
      return "bytes_list";
    case Feature::Kind::kFloats:
      return "float_list";
    case Feature::Kind::kIntegers:
      return "int64_list";
  }
  return "unknown";
}

absl::StatusOr<std::vector<NamedFeature>> ParseExample(absl::Span<const uint8_t> example) {
  std::vector<NamedFeature> features;
  const bool sound = ForEachField(example, [&](const Field& field) {
    return !IsMessage(field, 1) || ForEachField(field.bytes, [&](const Field& entry) {
      return !IsMessage(entry, 1) || ParseEntry(entry.bytes, features.emplace_back());
    });
  });
  if (!sound) return absl::InvalidArgumentError("is not a tf.Example: its protobuf encoding is malformed");
  return features;
}

absl::StatusOr<int64_t> CountValues(const Feature& feature) {
  int64_t count = 0, strings = 0;
  bool sound = true;
  switch (feature.kind) {
    case Feature::Kind::kNone:
      break;
    case Feature::Kind::kBytes:
      sound = ForEachString(feature.list, [&](Span bytes) {
        count += static_cast<int64_t>(bytes.size());
        ++strings;
      });
      if (sound && strings != 1) {
        return absl::InvalidArgumentError(absl::StrCat("holds ", strings, " strings of bytes, not one"));
      }
      break;
    case Feature::Kind::kFloats:
      sound = ForEachFloat(feature.list, [&](float) { ++count; });
      break;
    case Feature::Kind::kIntegers:
      sound = ForEachInteger(feature.list, [&](int64_t) { ++count; });
  }
  if (!sound) return absl::InvalidArgumentError(absl::StrCat("holds a malformed ", NameOf(feature.kind)));
  return count;
}

void ReadValues(const Feature& feature, absl::Span<float> to) {
  const auto put = [&](auto value) {
    if (to.empty()) return;
    to.front() = static_cast<float>(value);
    to.remove_prefix(1);
  };
  switch (feature.kind) {
    case Feature::Kind::kNone:
      break;
    case Feature::Kind::kBytes:
      ForEachString(feature.list, [&](Span bytes) {
        std::copy_n(bytes.begin(), std::min(bytes.size(), to.size()), to.begin());
      });
      break;
    case Feature::Kind::kFloats:
      ForEachFloat(feature.list, put);
      break;
    case Feature::Kind::kIntegers:
      ForEachInteger(feature.list, put);
  }
}

std::vector<int64_t> ReadIntegers(const Feature& feature) {
  std::vector<int64_t> integers;
  if (feature.kind == Feature::Kind::kIntegers) {
    ForEachInteger(feature.list, [&](int64_t value) { integers.push_back(value); });
  }
  return integers;
}

std::optional<absl::Span<const uint8_t>> OneString(const Feature& feature) {
  int64_t count = 0;
  Span last;
  if (feature.kind != Feature::Kind::kBytes) return std::nullopt;
  const bool sound = ForEachString(feature.list, [&](Span bytes) {
    ++count;
    last = bytes;
  });
  return sound && count == 1 ? std::optional(last) : std::nullopt;
}

absl::StatusOr<std::vector<absl::string_view>> ReadStrings(const Feature& feature) {
  std::vector<absl::string_view> strings;
  if (feature.kind != Feature::Kind::kBytes) return strings;
  const bool sound = ForEachString(feature.list, [&](Span bytes) {
    strings.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  if (!sound) return absl::InvalidArgumentError("holds a malformed bytes_list");
  return strings;
}

std::optional<int64_t> OneInteger(const Feature& feature) {
  int64_t count = 0, last = 0;
  if (feature.kind != Feature::Kind::kIntegers) return std::nullopt;
  const bool sound = ForEachInteger(feature.list, [&](int64_t value) {
    ++count;
    last = value;
  });
  return sound && count == 1 ? std::optional(last) : std::nullopt;
}

}  // namespace cairn::data
