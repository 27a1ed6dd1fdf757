// The ids by which a model looks up the values of an input, as Keras' preprocessing layers compute them: from a
// vocabulary, from a hash, or from the bounds of intervals.
//
// A model owns the maps of its inputs (nn::ModelInput), and the reader of an example's values applies them.
// Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn {

// The kind of an input's values before they become ids.
enum class ValueKind { kText, kInteger, kFloat };

// The ids of a map as a table, for programs that have no hashes.
struct IdTable {
  // Stands for "no id" in `ids` and `other`; no layer has this id.
  static constexpr int64_t kNone = std::numeric_limits<int32_t>::max();

  ValueKind kind = ValueKind::kText;
  // [value] Distinct values of this kind, and their ids. Masked ones have kNone.
  std::vector<std::string> texts{};
  std::vector<int64_t> integers{};
  std::vector<int64_t> ids{};
  int64_t other = kNone;  // the id of all other values
  // For floats, in place of values and ids: the id is the number of bounds that are at most the value.
  std::vector<float> bounds{};
};

class IdMap {
 public:
  // The id of a value that the layer leaves out of what it counts.
  static constexpr int64_t kMasked = -1;

  virtual ~IdMap() = default;
  IdMap(const IdMap&) = delete;
  IdMap& operator=(const IdMap&) = delete;

  virtual bool Takes(ValueKind kind) const = 0;
  // The id of a value of a kind that the map takes; nullopt if it has none.
  virtual std::optional<int64_t> OfText(absl::string_view /*value*/) const { return std::nullopt; }
  virtual std::optional<int64_t> OfInteger(int64_t /*value*/) const { return std::nullopt; }
  virtual std::optional<int64_t> OfFloat(float /*value*/) const { return std::nullopt; }
  // For a map of texts that makes several ids of each: their number, or 0 if it differs from text to text. AppendIds()
  // adds them to `ids`, and OfText() has none. nullopt: the map makes one id of a value.
  virtual std::optional<int64_t> ids_per_text() const { return std::nullopt; }
  virtual void AppendIds(absl::string_view /*text*/, std::vector<int64_t>& /*ids*/) const {}
  // UNIMPLEMENTED, naming the reason, for a map that no table of values can stand for.
  virtual absl::StatusOr<IdTable> AsTable() const = 0;
  // "a vocabulary of 3 strings", for the log.
  virtual std::string Describe() const = 0;

  // The layer for messages: "layer 'city_ids' (StringLookup)".
  const std::string& layer() const { return layer_; }
  // Why `value`, as shown to the user, has no id for the input `input`.
  std::string WhyNoId(absl::string_view value, absl::string_view input) const;

 protected:
  explicit IdMap(std::string layer) : layer_(std::move(layer)) {}

 private:
  const std::string layer_;
};

// The hash by which a value becomes one of `buckets` numbers: the Fingerprint64() of its text or, with a salt, its
// SipHash24().
struct TextBuckets {
  int64_t buckets = 1;
  std::optional<std::array<uint64_t, 2>> salt{};

  int64_t Of(absl::string_view text) const;
};

// The ids of Keras' StringLookup and IntegerLookup.
struct VocabularyIds {
  std::string layer;
  int64_t first_token = 0;  // the id of the first token; the others follow
  int64_t first_other = 0;  // the first of the ids of values that are no tokens
  // Values that are no tokens have the id first_other + one of `others.buckets`; 0 buckets: they have none.
  TextBuckets others{};
  bool others_by_remainder = false;  // for integers: value modulo others.buckets instead of a hash
  int64_t masked = 0;                // the id of the mask's value
};
// `tokens` are distinct. `mask`: a value with the id `masked`.
std::shared_ptr<const IdMap> MakeTextVocabulary(VocabularyIds ids, const std::vector<std::string>& tokens,
                                                std::optional<std::string> mask);
std::shared_ptr<const IdMap> MakeIntegerVocabulary(VocabularyIds ids, const std::vector<int64_t>& tokens,
                                                   std::optional<int64_t> mask);

// The ids of Keras' Hashing, for texts and integers. A value that equals the mask has the id 0, and the other ids are
// one larger. An integer is hashed as its decimal text.
struct HashedIds {
  std::string layer;
  TextBuckets hash{};  // without the id of the mask
  std::optional<std::string> mask_text{};
  std::optional<int64_t> mask_integer{};
  bool has_mask() const { return mask_text.has_value() || mask_integer.has_value(); }
};
std::shared_ptr<const IdMap> MakeHashedIds(HashedIds ids);

// The ids of Keras' Discretization: the number of `bounds`, in ascending order, that are at most the value.
std::shared_ptr<const IdMap> MakeIntervals(std::string layer, std::vector<float> bounds);

}  // namespace cairn
