#include "worker/adapt/learners.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "nn/layer/config_reader.h"
#include "nn/layers/text_division.h"
#include "worker/adapt/bin_boundaries.h"
#include "worker/adapt/moments.h"
#include "worker/adapt/text_keys.h"
#include "worker/adapt/token_counts.h"
#include "worker/adapt/unadapted_layers.h"

namespace cairn::worker {
namespace {

using nlohmann::json;

json ValueOf(const json& config, const char* field) {
  return config.value(field, json());
}

// The vocabulary of a lookup layer. `Token` is std::string or int64_t.
template <typename Token>
class VocabularyLearner : public Learner {
 public:
  void Add(const TensorView& values) override {
    keys_.clear();
    for (int64_t i = 0; i < values.shape.num_elements(); ++i) keys_.push_back(values.Integer(i));
    counts_.Add(keys_);
  }

 protected:
  // `special`: the tokens that are never part of the vocabulary. `reserved`: the ids before those of the vocabulary.
  template <typename TokenOf>
  absl::StatusOr<std::string> Write(const std::vector<json>& special, int64_t reserved, TokenOf token_of,
                                    json& config) const {
    const json most = ValueOf(config, "max_tokens");
    std::optional<size_t> limit;
    if (most.is_number_integer()) {
      if (most <= reserved) {
        return absl::InvalidArgumentError(absl::StrCat("max_tokens: ", most.dump(), ", and ", reserved,
                                                       " of the ids are not those of tokens"));
      }
      limit = static_cast<size_t>(most.get<int64_t>() - reserved);
    }
    const auto tokens = counts_.MostFrequent(limit, token_of, [&special](const Token& token) {
      return absl::c_any_of(special, [&token](const json& other) { return other == token; });
    });
    if (tokens.empty()) return absl::InvalidArgumentError("there are no tokens in the training set");
    json vocabulary = json::array(), weights = json::array();
    for (const TokenCounts::Count& token : tokens) {
      vocabulary.push_back(token_of(token.key));
      weights.push_back(counts_.InverseDocumentFrequency(token));
    }
    config["vocabulary"] = std::move(vocabulary);
    if (WeighsTokens(config)) config["idf_weights"] = std::move(weights);
    return absl::StrCat(tokens.size(), tokens.size() == 1 ? " token" : " tokens");
  }

  // The ids that stand for no token of the vocabulary.
  static int64_t Reserved(const json& config, bool has_mask) {
    const json others = ValueOf(config, "num_oov_indices");
    const json mode = ValueOf(config, "output_mode");
    const bool ids = mode.is_null() || absl::AsciiStrToLower(mode.get<std::string>()) == "int";
    return (others.is_null() ? 1 : others.get<int64_t>()) + (has_mask && ids ? 1 : 0);
  }

 private:
  TokenCounts counts_;
  std::vector<int64_t> keys_;  // of an example
};

class TextLearner final : public VocabularyLearner<std::string> {
 public:
  // `division`: how texts are divided into tokens; nullopt: they are tokens.
  TextLearner(std::string layer, std::optional<TextDivision> division)
      : divided_(division.has_value()),
        keys_(std::make_shared<TextKeys>(std::move(layer), std::move(division))) {}

  void TakeValues(size_t input, data::DataOptions& options) override {
    options.id_maps[input] = keys_;
    if (!divided_) return;
    options.ragged_inputs[input] = true;
    options.input_shapes[input] = {1};
  }
  absl::StatusOr<std::string> Finish(json& config) const override {
    json mask = ValueOf(config, "mask_token");
    const json other = config.contains("oov_token") ? config["oov_token"] : json("[UNK]");
    if (divided_) mask = "";
    for (const std::string& text : keys_->texts()) {
      if (!IsUtf8(text)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the token '", absl::CHexEscape(text), "' is not UTF-8, as JSON needs"));
      }
    }
    return Write(
        {mask, other}, Reserved(config, !mask.is_null()),
        [this](int64_t key) -> const std::string& { return keys_->texts()[static_cast<size_t>(key)]; },
        config);
  }

 private:
  static bool IsUtf8(const std::string& text) {
    try {
      static_cast<void>(json(text).dump());
      return true;
    } catch (const json::type_error&) {
      return false;
    }
  }

  const bool divided_;
  const std::shared_ptr<TextKeys> keys_;  // shared with the reader of the data
};

class IntegerLearner final : public VocabularyLearner<int64_t> {
 public:
  void TakeValues(size_t input, data::DataOptions& options) override { options.id_maps[input] = nullptr; }
  absl::StatusOr<std::string> Finish(json& config) const override {
    const json mask = ValueOf(config, "mask_token");
    const json other = config.contains("oov_token") ? config["oov_token"] : json(-1);
    return Write({mask, other}, Reserved(config, !mask.is_null()), [](int64_t key) { return key; }, config);
  }
};

class MomentsLearner final : public Learner {
 public:
  MomentsLearner(const Shape& input, const std::vector<int64_t>& axes) : moments_(input, axes) {}

  void TakeValues(size_t input, data::DataOptions& options) override {
    options.input_types[input] = DType::kFloat32;
  }
  void Add(const TensorView& values) override { moments_.Add(values.floats()); }
  absl::StatusOr<std::string> Finish(json& config) const override {
    const std::vector<double>& means = moments_.means();
    const std::vector<double> variances = moments_.Variances();
    if (absl::c_any_of(variances, [](double variance) { return !std::isfinite(variance); }))
      return absl::InvalidArgumentError("the training set has values that are infinite or no numbers");
    config["mean"] = NestedList(means, moments_.shape().dims());
    config["variance"] = NestedList(variances, moments_.shape().dims());
    return absl::StrCat("mean and variance of ", means.size(), means.size() == 1 ? " feature" : " features");
  }

 private:
  Moments moments_;
};

class IntervalsLearner final : public Learner {
 public:
  void TakeValues(size_t input, data::DataOptions& options) override {
    options.id_maps[input] = nullptr;
    options.input_types[input] = DType::kFloat32;
  }
  void Add(const TensorView& values) override {
    values_.insert(values_.end(), values.floats().begin(), values.floats().end());
  }
  absl::StatusOr<std::string> Finish(json& config) const override {
    const json bins = ValueOf(config, "num_bins"), epsilon = config.value("epsilon", json(0.01));
    if (!bins.is_number_integer() || bins < 1 || bins > kMaxBins)
      return absl::InvalidArgumentError(
          absl::StrCat("num_bins: expected an integer from 1 to ", kMaxBins, ", got ", bins.dump()));
    if (!epsilon.is_number() || epsilon < 1e-6 || epsilon > 1)
      return absl::InvalidArgumentError(absl::StrCat("epsilon: expected 1e-6 to 1, got ", epsilon.dump()));
    if (absl::c_any_of(values_, [](float value) { return !std::isfinite(value); }))
      return absl::InvalidArgumentError("the training set has values that are infinite or no numbers");
    const std::vector<float> boundaries = BinBoundaries(values_, bins.get<int64_t>(), epsilon.get<double>());
    if (boundaries.empty()) return absl::InvalidArgumentError("num_bins leaves no boundary");
    config["bin_boundaries"] = boundaries;
    return absl::StrCat(boundaries.size(), boundaries.size() == 1 ? " boundary" : " boundaries");
  }

 private:
  std::vector<float> values_;
};

}  // namespace

json NestedList(absl::Span<const double> numbers, absl::Span<const int64_t> shape) {
  if (shape.empty()) return static_cast<float>(numbers[0]);
  json list = json::array();
  const size_t each = numbers.size() / static_cast<size_t>(shape[0]);
  for (size_t begin = 0; begin < numbers.size(); begin += each)
    list.push_back(NestedList(numbers.subspan(begin, each), shape.subspan(1)));
  return list;
}

std::unique_ptr<Learner> MakeLearner(const UnadaptedLayer& layer, const Shape& input) {
  if (layer.class_name == "IntegerLookup") return std::make_unique<IntegerLearner>();
  if (layer.class_name == "Discretization") return std::make_unique<IntervalsLearner>();
  nn::ConfigReader config(*layer.config);
  if (layer.class_name == "Normalization") {
    return std::make_unique<MomentsLearner>(input, config.Ints("axis", {{-1}}));
  }
  std::optional<TextDivision> division;
  if (layer.class_name == "TextVectorization") division = nn::ReadTextDivision(config);
  return std::make_unique<TextLearner>(layer.Describe(), std::move(division));
}

}  // namespace cairn::worker
