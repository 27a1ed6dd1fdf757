#include "common/ids/id_map.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/ids/text_hash.h"

namespace cairn {
namespace {

// The tokens with their ids, in the order of the ids.
template <typename Token>
std::vector<std::pair<Token, int64_t>> InOrder(const absl::flat_hash_map<Token, int64_t>& id_of) {
  std::vector<std::pair<Token, int64_t>> tokens(id_of.begin(), id_of.end());
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return tokens;
}

std::string DescribeOthers(const VocabularyIds& ids) {
  if (ids.others.buckets == 0) return "no id for other values";
  return absl::StrCat(ids.others.buckets, ids.others.buckets == 1 ? " id" : " ids", " for other values");
}

// The table of a vocabulary, still without its tokens: the mask's value comes first.
absl::StatusOr<IdTable> TableOf(const VocabularyIds& ids, ValueKind kind, bool has_mask) {
  if (ids.others.buckets > 1) {
    return absl::UnimplementedError(
        absl::StrCat("num_oov_indices is ", ids.others.buckets,
                     ": ONNX has no hash for the values that are not in the vocabulary"));
  }
  IdTable table = {.kind = kind};
  if (ids.others.buckets == 1) table.other = ids.first_other;
  if (has_mask) table.ids.push_back(ids.masked == IdMap::kMasked ? IdTable::kNone : ids.masked);
  return table;
}

class TextVocabulary final : public IdMap {
 public:
  TextVocabulary(VocabularyIds ids, const std::vector<std::string>& tokens, std::optional<std::string> mask)
      : IdMap(ids.layer), ids_(std::move(ids)), mask_(std::move(mask)) {
    id_of_.reserve(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i)
      id_of_.emplace(tokens[i], ids_.first_token + static_cast<int64_t>(i));
  }

  bool Takes(ValueKind kind) const override { return kind == ValueKind::kText; }
  std::optional<int64_t> OfText(absl::string_view value) const override {
    if (mask_ == value) return ids_.masked;
    const auto found = id_of_.find(value);
    if (found != id_of_.end()) return found->second;
    if (ids_.others.buckets == 0) return std::nullopt;
    return ids_.first_other + ids_.others.Of(value);
  }
  std::string Describe() const override {
    return absl::StrCat("a vocabulary of ", id_of_.size(), " strings, ", DescribeOthers(ids_));
  }
  absl::StatusOr<IdTable> AsTable() const override {
    auto table = TableOf(ids_, ValueKind::kText, mask_.has_value());
    if (!table.ok()) return table;
    if (mask_) table->texts.push_back(*mask_);
    for (const auto& [token, id] : InOrder(id_of_)) {
      table->texts.push_back(token);
      table->ids.push_back(id);
    }
    return table;
  }

 private:
  const VocabularyIds ids_;
  const std::optional<std::string> mask_;
  absl::flat_hash_map<std::string, int64_t> id_of_;
};

class IntegerVocabulary final : public IdMap {
 public:
  IntegerVocabulary(VocabularyIds ids, const std::vector<int64_t>& tokens, std::optional<int64_t> mask)
      : IdMap(ids.layer), ids_(std::move(ids)), mask_(mask) {
    id_of_.reserve(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i)
      id_of_.emplace(tokens[i], ids_.first_token + static_cast<int64_t>(i));
  }

  bool Takes(ValueKind kind) const override { return kind == ValueKind::kInteger; }
  std::optional<int64_t> OfInteger(int64_t value) const override {
    if (mask_ == value) return ids_.masked;
    const auto found = id_of_.find(value);
    if (found != id_of_.end()) return found->second;
    const int64_t buckets = ids_.others.buckets;
    if (buckets == 0) return std::nullopt;
    if (!ids_.others_by_remainder) return ids_.first_other + ids_.others.Of(absl::StrCat(value));
    return ids_.first_other + (value % buckets + buckets) % buckets;
  }
  std::string Describe() const override {
    return absl::StrCat("a vocabulary of ", id_of_.size(), " integers, ", DescribeOthers(ids_));
  }
  absl::StatusOr<IdTable> AsTable() const override {
    auto table = TableOf(ids_, ValueKind::kInteger, mask_.has_value());
    if (!table.ok()) return table;
    if (mask_) table->integers.push_back(*mask_);
    for (const auto& [token, id] : InOrder(id_of_)) {
      table->integers.push_back(token);
      table->ids.push_back(id);
    }
    return table;
  }

 private:
  const VocabularyIds ids_;
  const std::optional<int64_t> mask_;
  absl::flat_hash_map<int64_t, int64_t> id_of_;
};

class Hashes final : public IdMap {
 public:
  explicit Hashes(HashedIds ids) : IdMap(ids.layer), ids_(std::move(ids)) {}

  bool Takes(ValueKind kind) const override {
    return kind == ValueKind::kText ? !ids_.mask_integer : kind == ValueKind::kInteger && !ids_.mask_text;
  }
  std::optional<int64_t> OfText(absl::string_view value) const override {
    return ids_.mask_text == value ? 0 : IdOf(value);
  }
  std::optional<int64_t> OfInteger(int64_t value) const override {
    return ids_.mask_integer == value ? 0 : IdOf(absl::StrCat(value));
  }
  absl::StatusOr<IdTable> AsTable() const override {
    return absl::UnimplementedError("ONNX has no operation for its hash");
  }
  std::string Describe() const override {
    return absl::StrCat("a hash to ", ids_.hash.buckets + (ids_.has_mask() ? 1 : 0), " ids");
  }

 private:
  int64_t IdOf(absl::string_view text) const { return ids_.hash.Of(text) + (ids_.has_mask() ? 1 : 0); }

  const HashedIds ids_;
};

class Intervals final : public IdMap {
 public:
  Intervals(std::string layer, std::vector<float> bounds)
      : IdMap(std::move(layer)), bounds_(std::move(bounds)) {}

  bool Takes(ValueKind kind) const override { return kind == ValueKind::kFloat; }
  std::optional<int64_t> OfFloat(float value) const override {
    return std::upper_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  }
  absl::StatusOr<IdTable> AsTable() const override {
    return IdTable{.kind = ValueKind::kFloat, .bounds = bounds_};
  }
  std::string Describe() const override { return absl::StrCat(bounds_.size() + 1, " intervals"); }

 private:
  const std::vector<float> bounds_;
};

}  // namespace

std::string IdMap::WhyNoId(absl::string_view value, absl::string_view input) const {
  return absl::StrCat("input '", input, "': ", layer_, " has no id for ", value,
                      ", which is not in its vocabulary: num_oov_indices is 0; 1 gives such values an id");
}

int64_t TextBuckets::Of(absl::string_view text) const {
  if (buckets == 1) return 0;
  return static_cast<int64_t>((salt ? SipHash24(text, *salt) : Fingerprint64(text)) %
                              static_cast<uint64_t>(buckets));
}

std::shared_ptr<const IdMap> MakeTextVocabulary(VocabularyIds ids, const std::vector<std::string>& tokens,
                                                std::optional<std::string> mask) {
  return std::make_shared<TextVocabulary>(std::move(ids), tokens, std::move(mask));
}

std::shared_ptr<const IdMap> MakeIntegerVocabulary(VocabularyIds ids, const std::vector<int64_t>& tokens,
                                                   std::optional<int64_t> mask) {
  return std::make_shared<IntegerVocabulary>(std::move(ids), tokens, mask);
}

std::shared_ptr<const IdMap> MakeHashedIds(HashedIds ids) {
  return std::make_shared<Hashes>(std::move(ids));
}

std::shared_ptr<const IdMap> MakeIntervals(std::string layer, std::vector<float> bounds) {
  return std::make_shared<Intervals>(std::move(layer), std::move(bounds));
}

}  // namespace cairn
