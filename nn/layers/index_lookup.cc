// StringLookup, IntegerLookup and TextVectorization: ids of tokens by a vocabulary. The rules are those of Keras'
// IndexLookup.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/ids/id_map.h"
#include "common/ids/text_ids.h"
#include "nn/layers/id_layer.h"
#include "nn/layers/layers.h"
#include "nn/layers/salt.h"
#include "nn/layers/text_division.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

constexpr int64_t kMaxOthers = int64_t{1} << 31;

std::optional<std::string> TokenOf(const json& value, std::string* /*type*/) {
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}
std::optional<int64_t> TokenOf(const json& value, int64_t* /*type*/) {
  const bool fits =
      !value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()};
  return value.is_number_integer() && fits ? std::optional(value.get<int64_t>()) : std::nullopt;
}

// `Token`: std::string or int64_t.
template <typename Token>
class LookupReader {
 public:
  LookupReader(std::string name, const char* class_name, ConfigReader& config)
      : name_(std::move(name)), class_name_(class_name), config_(config) {}

  // For a layer that divides texts: tokens are the pieces of texts, and an empty piece is the mask.
  void DivideTexts(TextDivision division) { division_ = std::move(division); }

  std::unique_ptr<Layer> Read() {
    config_.Refuse("invert", false);
    config_.Bool("sparse", false);  // how Keras stores the same numbers
    config_.Ignore({"has_input_vocabulary"});
    mode_ = ReadOutputMode("int", /*allows_int=*/true, /*allows_tf_idf=*/true, config_);
    if (division_) {
      CheckDivision();
    } else {
      mask_ = OptionalToken("mask_token", std::nullopt);
    }
    ReadOthers();
    ReadVocabulary();
    std::optional<IdEncoding> encoding;
    if (mode_ != "int") encoding = ReadEncoding();
    config_.Ignore({"idf_weights", "max_tokens", "pad_to_max_tokens", "vocabulary_size"});
    if (!config_.status().ok()) tokens_.clear();
    return std::make_unique<IdLayer>(IdLayer::Parts{name_, class_name_, MakeMap(), std::move(encoding)});
  }

 private:
  static constexpr bool kText = std::is_same_v<Token, std::string>;
  static constexpr const char* kTokenName = kText ? "a string" : "an integer";

  std::optional<Token> OptionalToken(absl::string_view field, std::optional<Token> absent) {
    const json& value = config_.Raw(field);
    if (value.is_null()) return absent;
    const auto token = TokenOf(value, static_cast<Token*>(nullptr));
    if (!token) config_.Fail(field, absl::StrCat("expected ", kTokenName, ", got ", value.dump()));
    return token;
  }

  // The number of ids of a text must be known, or ids have no order.
  void CheckDivision() {
    if constexpr (kText) {
      mask_ = "";
    }
    const bool ragged = config_.Bool("ragged", false), fixed = division_->length > 0;
    if (mode_ == "one_hot") config_.Fail("output_mode", "\"one_hot\" is not a mode of this layer");
    if (mode_ == "int" && fixed == ragged) {
      config_.Fail("output_sequence_length",
                   fixed ? "is given, but ragged is true" : "required, unless ragged is true");
    }
    if (mode_ != "int" && (fixed || ragged)) {
      config_.Fail(fixed ? "output_sequence_length" : "ragged", "needs the output_mode \"int\"");
    }
  }

  bool HasMaskId() const { return mask_.has_value() && mode_ == "int"; }
  int64_t FirstOther() const { return HasMaskId() ? 1 : 0; }
  int64_t FirstToken() const { return FirstOther() + others_.buckets; }

  // How values that are no tokens get ids.
  void ReadOthers() {
    const json& number = config_.Raw("num_oov_indices");
    others_.buckets = 1;
    if (number.is_number_integer() && number >= 0 && number <= kMaxOthers) {
      others_.buckets = number.get<int64_t>();
    } else if (!number.is_null()) {
      config_.Fail("num_oov_indices", absl::StrCat("expected a whole number from 0 on, got ", number.dump()));
    }
    const std::string method = config_.Choice("oov_method", {"floormod", "farmhash"}, "floormod");
    by_remainder_ = !kText && method == "floormod";
    others_.salt = ReadSalt(config_);
    if (by_remainder_ && others_.salt) config_.Fail("salt", "needs the oov_method \"farmhash\"");
  }

  void ReadVocabulary() {
    const json& vocabulary = config_.Raw("vocabulary");
    if (vocabulary.is_null()) {
      return config_.Fail(
          "vocabulary",
          "the layer has none: call adapt(), or give `vocabulary`, and save the model as a "
          ".keras file, which holds it; or run `cairn model adapt`, which finds it in a training set");
    }
    if (!vocabulary.is_array()) {
      return config_.Fail("vocabulary", absl::StrCat("expected a list of tokens, got ", vocabulary.dump()));
    }
    for (const json& entry : vocabulary) {
      const auto token = TokenOf(entry, static_cast<Token*>(nullptr));
      if (!token) {
        return config_.Fail("vocabulary",
                            absl::StrCat("token ", tokens_.size(), " is ", entry.dump(),
                                         ", but the layer takes ", kText ? "strings" : "integers"));
      }
      tokens_.push_back(*token);
    }
    given_ = tokens_.size();
    DropSpecialTokens();
    if (tokens_.empty()) return config_.Fail("vocabulary", "has no tokens");
    absl::flat_hash_set<Token> seen;
    for (const Token& token : tokens_) {
      if (!seen.insert(token).second)
        return config_.Fail("vocabulary", absl::StrCat(json(token).dump(), " occurs twice"));
    }
    if (mask_ && seen.contains(*mask_)) {
      return config_.Fail("vocabulary", absl::StrCat(json(*mask_).dump(),
                                                     " is the mask_token, which may only "
                                                     "be the first token, before those of "
                                                     "num_oov_indices"));
    }
    CheckSize();
  }

  // Keras accepts a vocabulary that begins with the mask's token and the others' tokens.
  void DropSpecialTokens() {
    const auto first = static_cast<size_t>(FirstToken());
    const std::optional<Token> other = OptionalToken("oov_token", DefaultOther());
    if (tokens_.size() < first) return;
    for (size_t i = 0; i < first; ++i) {
      if (tokens_[i] != (i < static_cast<size_t>(FirstOther()) ? mask_ : other)) return;
    }
    has_special_ = true;
    tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(first));
  }
  static std::optional<Token> DefaultOther() {
    if constexpr (kText) {
      return "[UNK]";
    } else {
      return -1;
    }
  }

  int64_t Size() const { return FirstToken() + static_cast<int64_t>(tokens_.size()); }
  std::optional<int64_t> MaxTokens() {
    if (config_.Raw("max_tokens").is_null()) return std::nullopt;
    return config_.PositiveInt("max_tokens");
  }

  void CheckSize() {
    const json& written = config_.Raw("vocabulary_size");
    if (written.is_number_integer() && written != Size()) {
      return config_.Fail(
          "vocabulary_size",
          absl::StrCat(written.dump(), ", but the vocabulary has ", Size(),
                       " ids: a token may contain a line break, which .keras files do not keep"));
    }
    if (const auto most = MaxTokens(); most && Size() > *most)
      config_.Fail("max_tokens", absl::StrCat(*most, ", but the vocabulary has ", Size(), " ids"));
  }

  IdEncoding ReadEncoding() {
    IdEncoding encoding = {.mode = ModeOf(mode_), .depth = std::max<int64_t>(Size(), 1), .masked = true};
    const auto most = MaxTokens();
    const bool padded = config_.Bool("pad_to_max_tokens", false);
    if (padded && !most) config_.Fail("pad_to_max_tokens", "needs max_tokens");
    if (padded && most) encoding.depth = *most;
    CheckDepth("max_tokens", encoding.depth, config_);
    if (!config_.status().ok()) return encoding;
    if (mode_ == "tf_idf") encoding.factors = ReadFactors(encoding.depth);
    return encoding;
  }

  // The inverse document frequencies of all ids. Values that are no tokens have the mean, and padding has 0.
  std::vector<float> ReadFactors(int64_t depth) {
    const json& given = config_.Raw("idf_weights");
    if (given.is_null()) {
      config_.Fail("idf_weights",
                   "the layer has none: call adapt(), or give `idf_weights`, and save the model as a .keras "
                   "file, which holds them; or run `cairn model adapt`, which finds them in a training set");
      return {};
    }
    const std::vector<double> weights = config_.Numbers("idf_weights");
    std::vector<float> factors(static_cast<size_t>(depth));
    const bool whole = weights.size() == factors.size() && has_special_;
    if (weights.size() != given_ && !whole) {
      config_.Fail("idf_weights", absl::StrCat(weights.size(), " weights for ", given_, " tokens"));
      return {};
    }
    const size_t first = has_special_ ? 0 : static_cast<size_t>(FirstToken());
    const double mean =
        std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
    std::fill_n(factors.begin(), std::min(first, factors.size()), static_cast<float>(mean));
    for (size_t i = 0; i < weights.size() && first + i < factors.size(); ++i)
      factors[first + i] = static_cast<float>(weights[i]);
    return factors;
  }

  std::shared_ptr<const IdMap> MakeMap() {
    VocabularyIds ids = {.layer = IdLayer::What(name_, class_name_),
                         .first_token = FirstToken(),
                         .first_other = FirstOther(),
                         .others = others_,
                         .others_by_remainder = by_remainder_,
                         .masked = mode_ == "int" ? 0 : IdMap::kMasked};
    if constexpr (kText) {
      auto vocabulary = MakeTextVocabulary(std::move(ids), tokens_, mask_);
      return division_ ? MakeTextIds(*division_, std::move(vocabulary)) : vocabulary;
    } else {
      return MakeIntegerVocabulary(std::move(ids), tokens_, mask_);
    }
  }

  const std::string name_;
  const char* const class_name_;
  ConfigReader& config_;
  std::string mode_;  // output_mode
  std::optional<Token> mask_;
  std::optional<TextDivision> division_;
  TextBuckets others_;
  bool by_remainder_ = false;
  std::vector<Token> tokens_;
  size_t given_ = 0;          // tokens in the file, with special ones
  bool has_special_ = false;  // the file has the special ones
};

}  // namespace

std::unique_ptr<Layer> MakeTextVectorization(std::string name, ConfigReader& config) {
  config.Refuse("encoding", "utf-8");
  LookupReader<std::string> reader(std::move(name), "TextVectorization", config);
  reader.DivideTexts(ReadTextDivision(config));
  return reader.Read();
}

std::unique_ptr<Layer> MakeStringLookup(std::string name, ConfigReader& config) {
  config.Refuse("encoding", "utf-8");
  config.Ignore({"vocabulary_dtype"});
  return LookupReader<std::string>(std::move(name), "StringLookup", config).Read();
}

std::unique_ptr<Layer> MakeIntegerLookup(std::string name, ConfigReader& config) {
  config.Choice("vocabulary_dtype", {"int64", "int32"}, "int64");
  return LookupReader<int64_t>(std::move(name), "IntegerLookup", config).Read();
}

}  // namespace cairn::nn
