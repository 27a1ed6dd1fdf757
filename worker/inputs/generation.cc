#include "worker/inputs/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/inputs/beam_search.h"
#include "worker/inputs/token_scores.h"

namespace cairn::worker {
namespace {

template <typename... Text>
absl::Status Refuse(const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(text...));
}

// INVALID_ARGUMENT if an id is not below `rows`, those of the table that looks it up (0: any), or `vocabulary`.
absl::Status CheckIds(absl::Span<const int64_t> ids, const char* what, int64_t rows, int64_t vocabulary) {
  if (ids.empty()) return Refuse("the ", what, " is empty");
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t token = ids[i];
    if (token < 0 || (rows > 0 && token >= rows)) {
      return Refuse("token ", i, " of the ", what, " is ", token, ", and the table of the model has ",
                    rows > 0 ? absl::StrCat("ids from 0 to ", rows - 1) : "no negative ids");
    }
    if (vocabulary > 0 && token >= vocabulary) {
      return Refuse("token ", i, " of the ", what, " is ", token, ", and the vocabulary has ids from 0 to ",
                    vocabulary - 1);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSource(const GenerationRequest& request, const ScoredModel& model, size_t row) {
  const nn::ModelInput& input = request.model.inputs()[*model.inputs.source];
  const std::vector<int64_t>& source = request.sources[row];
  CAIRN_RETURN_IF_ERROR(CheckIds(source, "source", model.rows_of(*model.inputs.source), 0));
  if (static_cast<int64_t>(source.size()) <= input.shape[0]) return absl::OkStatus();
  return Refuse("the source has ", source.size(), " tokens, and the model's input '", input.name, "' has ",
                input.shape[0]);
}

absl::Status CheckGeneration(const GenerationRequest& request, const ScoredModel& model) {
  const Shape& output = request.model.outputs()[0].shape;
  if (request.vocabulary > output[1]) {
    return Refuse("the vocabulary has ", request.vocabulary, " tokens, but the model's output is ",
                  output.ToString());
  }
  constexpr int64_t kMaxBeams = 1000;
  if (request.beams < 1 || request.beams > kMaxBeams)
    return Refuse("cannot search with ", request.beams, " beams: expected 1 to ", kMaxBeams);
  if (request.drop < 1 || request.drop > model.length())
    return Refuse("cannot drop ", request.drop, " tokens of a window of ", model.length());
  if (request.end.has_value() && (*request.end < 0 || *request.end >= output[1])) {
    return Refuse("the end token ", *request.end, " is not one of the model's, from 0 to ", output[1] - 1);
  }
  if (model.inputs.source.has_value() != !request.sources.empty()) {
    return model.inputs.source.has_value()
               ? Refuse(
                     "the model has an encoder: give what it reads, with --source_vocabulary or --start_id")
               : Refuse("the model has no encoder that reads a source");
  }
  if (model.inputs.source.has_value()) {
    const int64_t rows = model.rows_of(*model.inputs.source);
    if (rows > 0 && request.source_vocabulary > rows) {
      return Refuse("the vocabulary of the sources has ", request.source_vocabulary,
                    " tokens, but the table of the model has ", rows, " rows");
    }
  }
  for (size_t row = 0; row < request.prompts.size(); ++row) {
    const bool several = request.prompts.size() > 1;
    const auto named = [&](const absl::Status& status) {
      const int64_t number = request.first_row + static_cast<int64_t>(row);
      return several ? Annotate(status, absl::StrCat(request.row_name, number)) : status;
    };
    CAIRN_RETURN_IF_ERROR(named(
        CheckIds(request.prompts[row], "prompt", model.rows_of(model.inputs.tokens), request.vocabulary)));
    if (!request.sources.empty()) CAIRN_RETURN_IF_ERROR(named(CheckSource(request, model, row)));
  }
  return absl::OkStatus();
}

bool AreProbabilities(absl::Span<const float> scores) {
  double sum = 0;
  for (const float score : scores) {
    if (!(score >= 0)) return false;
    sum += double{score};
  }
  return std::abs(sum - 1) < 1e-3;
}

// The last tokens that fit a window, of which `drop` leave at once.
class Window {
 public:
  Window(int64_t length, int64_t drop, size_t prompt)
      : length_(static_cast<size_t>(length)),
        drop_(static_cast<size_t>(drop)),
        begin_(prompt - std::min(prompt, length_)) {}

  // The window of `tokens`, which begin with the tokens of the last call.
  absl::Span<const int64_t> Of(absl::Span<const int64_t> tokens) {
    while (tokens.size() - begin_ > length_) begin_ += drop_;
    return tokens.subspan(begin_);
  }

 private:
  size_t length_, drop_;
  size_t begin_;
};

class Generator {
 public:
  Generator(const GenerationRequest& request, const ScoredModel& model, TokenScores& scores)
      : request_(request), model_(model), scores_(scores), window_(model.length(), request.drop, 0) {
    drawn_ = request.model.outputs()[0].shape[1];
    for (const int64_t limit : {request.vocabulary, model.rows_of(model.inputs.tokens)})
      drawn_ = limit > 0 ? std::min(drawn_, limit) : drawn_;
  }

  absl::Status Run(size_t row, absl::FunctionRef<void(size_t row, int64_t token)> on_token) {
    CAIRN_RETURN_IF_ERROR(scores_.Begin(
        request_.sources.empty() ? absl::Span<const int64_t>() : absl::MakeConstSpan(request_.sources[row])));
    window_ = Window(model_.length(), request_.drop, request_.prompts[row].size());
    return request_.beams > 1 ? Search(row, on_token) : Draw(row, on_token);
  }

 private:
  using OnToken = absl::FunctionRef<void(size_t row, int64_t token)>;

  absl::Status Draw(size_t row, OnToken on_token) {
    Random random(request_.sampling.seed, row == 0 ? "generate" : absl::StrCat("generate/", row));
    std::vector<int64_t> tokens = request_.prompts[row];
    for (int64_t i = 0; i < request_.count && !IsFull(tokens); ++i) {
      CAIRN_ASSIGN_OR_RETURN(const auto logits, LogitsAfter({window_.Of(tokens)}));
      tokens.push_back(DrawToken(logits[0], request_.sampling, random));
      if (tokens.back() == request_.end) break;
      on_token(row, tokens.back());
    }
    return absl::OkStatus();
  }

  absl::Status Search(size_t row, OnToken on_token) {
    const std::vector<int64_t>& prompt = request_.prompts[row];
    std::vector<Beam> beams = BeamsOf(prompt, request_.beams);
    const auto all_ended = [&] { return absl::c_all_of(beams, [](const Beam& beam) { return beam.ended; }); };
    for (int64_t i = 0; i < request_.count && !IsFull(beams[0].tokens) && !all_ended(); ++i) {
      std::vector<TokenScores::Tokens> windows;
      for (const Beam& beam : beams) windows.push_back(window_.Of(beam.tokens));
      CAIRN_ASSIGN_OR_RETURN(const auto logits, LogitsAfter(windows));
      CAIRN_RETURN_IF_ERROR(scores_.Reorder(ExtendBeams(logits, request_.end, beams)));
    }
    for (size_t i = prompt.size(); i < beams[0].tokens.size(); ++i) {
      if (beams[0].tokens[i] == request_.end) break;
      on_token(row, beams[0].tokens[i]);
    }
    return absl::OkStatus();
  }

  // A decoder with an encoder has no more positions than its window.
  bool IsFull(absl::Span<const int64_t> tokens) const {
    return !request_.sources.empty() && static_cast<int64_t>(tokens.size()) > model_.length();
  }

  // [sequence] Of the tokens that may be drawn.
  absl::StatusOr<std::vector<std::vector<float>>> LogitsAfter(
      absl::Span<const TokenScores::Tokens> sequences) {
    CAIRN_ASSIGN_OR_RETURN(const absl::Span<const float> outputs, scores_.After(sequences));
    std::vector<std::vector<float>> all;
    const size_t width = outputs.size() / sequences.size();
    for (size_t first = 0; first < outputs.size(); first += width) {
      const auto scores = outputs.subspan(first, width);
      const bool from_logits = request_.from_logits.value_or(!AreProbabilities(scores));
      std::vector<float>& logits = all.emplace_back(scores.begin(), scores.begin() + drawn_);
      for (float& logit : logits) {
        if (!from_logits) logit = std::log(logit);
        if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity())
          return absl::InvalidArgumentError("the model's outputs are not finite numbers");
      }
    }
    return all;
  }

  const GenerationRequest& request_;
  const ScoredModel& model_;
  TokenScores& scores_;
  int64_t drawn_;  // only ids below this one
  Window window_;
};

}  // namespace

int64_t DrawToken(absl::Span<const float> logits, const SamplingOptions& options, Random& random) {
  if (options.temperature == 0) return absl::c_max_element(logits) - logits.begin();
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto logit = [&](int64_t token) { return logits[static_cast<size_t>(token)]; };
  const auto is_before = [&](int64_t a, int64_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const int64_t all = static_cast<int64_t>(order.size());
  const int64_t kept = options.top_k > 0 ? std::min(options.top_k, all) : all;
  if (kept < all) std::nth_element(order.begin(), order.begin() + kept, order.end(), is_before);
  order.resize(static_cast<size_t>(kept));
  std::sort(order.begin(), order.end(), is_before);
  std::vector<double> shares;
  double total = 0;
  for (const int64_t token : order) {
    shares.push_back(std::exp(double{logit(token) - logit(order[0])} / options.temperature));
    total += shares.back();
  }
  if (options.top_p < 1) {
    const double wanted = options.top_p * total;
    size_t likely = 0;
    for (total = 0; likely == 0 || (total < wanted && likely < shares.size()); ++likely)
      total += shares[likely];
    shares.resize(likely);
  }
  double rest = double{random.NextUniform()} * total;
  size_t rank = 0;
  while (rank + 1 < shares.size() && rest >= shares[rank]) rest -= shares[rank++];
  return order[rank];
}

absl::Status Generate(const GenerationRequest& request,
                      absl::FunctionRef<void(size_t row, int64_t token)> on_token) {
  CAIRN_ASSIGN_OR_RETURN(const TokenInputs inputs, TokenInputsOf(request.model, request.decoder_input));
  const ScoredModel model = {.model = request.model,
                             .parameters = request.parameters,
                             .inputs = inputs,
                             .sequences = static_cast<size_t>(request.beams),
                             .threads = request.threads};
  CAIRN_RETURN_IF_ERROR(CheckGeneration(request, model));
  if (request.prompts.empty()) return absl::OkStatus();
  const auto source = request.sources.empty() ? absl::Span<const int64_t>() : request.sources[0];
  Window window(model.length(), request.drop, request.prompts[0].size());
  CAIRN_ASSIGN_OR_RETURN(const auto scores, MakeTokenScores(model, source, window.Of(request.prompts[0])));
  Generator generator(request, model, *scores);
  for (size_t row = 0; row < request.prompts.size(); ++row)
    CAIRN_RETURN_IF_ERROR(generator.Run(row, on_token));
  return absl::OkStatus();
}

}  // namespace cairn::worker
