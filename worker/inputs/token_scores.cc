#include "worker/inputs/token_scores.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "common/core/tensor_view.h"
#include "common/memory/aligned_buffer.h"
#include "data/input_rows.h"
#include "kernels/cpu/device.h"
#include "nn/batch.h"
#include "nn/byte_inputs.h"
#include "nn/decoding/decoder.h"
#include "nn/objective.h"
#include "nn/replica/replica.h"

namespace cairn::worker {
namespace {

using Tokens = TokenScores::Tokens;

void SetElement(const MutableTensorView& to, size_t index, int64_t value) {
  if (!IsInteger(to.dtype)) {
    static_cast<float*>(to.data)[index] = static_cast<float>(value);
    return;
  }
  WithIntegerType(to.dtype, [&](auto zero) {
    static_cast<decltype(zero)*>(to.data)[index] = static_cast<decltype(zero)>(value);
  });
}

// The inputs of the sequences.
class SequenceInputs {
 public:
  explicit SequenceInputs(const ScoredModel& scored)
      : scored_(scored), rows_(SpecsOf(scored.model), static_cast<int64_t>(scored.sequences)) {}

  void SetSource(Tokens source) {
    if (!scored_.inputs.source.has_value()) return;
    for (size_t row = 0; row < scored_.sequences; ++row) SetIds(row, *scored_.inputs.source, source, {});
  }
  // Writes the tokens of whole windows, and after them `rest`, as far as it goes, and zeros.
  void SetTokens(absl::Span<const Tokens> sequences, Tokens rest) {
    for (size_t row = 0; row < sequences.size(); ++row) {
      SetIds(row, scored_.inputs.tokens, sequences[row], rest);
      if (scored_.inputs.mask.has_value())
        SetIds(row, *scored_.inputs.mask, std::vector<int64_t>(sequences[row].size(), 1), {});
    }
  }
  TensorViews views() const { return rows_.First(static_cast<int64_t>(scored_.sequences)); }

 private:
  static std::vector<data::InputSpec> SpecsOf(const nn::Model& model) {
    std::vector<data::InputSpec> specs;
    for (const nn::ModelInput& input : model.inputs()) specs.push_back({input.dtype, input.shape});
    return specs;
  }
  void SetIds(size_t row, size_t input, Tokens ids, Tokens rest) {
    const MutableTensorView to = rows_.Row(static_cast<int64_t>(row))[input];
    for (size_t i = 0; i < static_cast<size_t>(to.shape[0]); ++i) {
      const size_t beyond = i - ids.size();
      SetElement(to, i, i < ids.size() ? ids[i] : beyond < rest.size() ? rest[beyond] : 0);
    }
  }

  const ScoredModel scored_;
  data::InputRows rows_;
};

// Runs whole windows. The rest of a window is filled with id 0.
class WindowScores final : public TokenScores {
 public:
  static absl::StatusOr<std::unique_ptr<WindowScores>> Create(const ScoredModel& scored) {
    std::unique_ptr<WindowScores> scores(new WindowScores(scored));
    CAIRN_ASSIGN_OR_RETURN(scores->device_, kernels::CreateCpuDevice(0, scored.threads));
    CAIRN_ASSIGN_OR_RETURN(scores->replica_,
                           nn::Replica::Create(scored.model, scores->objective_, *scores->device_));
    std::fill(scores->targets_.span().begin(), scores->targets_.span().end(), 0.0f);
    return scores;
  }

  absl::Status Begin(Tokens source) override {
    inputs_.SetSource(source);
    return absl::OkStatus();
  }
  absl::StatusOr<absl::Span<const float>> After(absl::Span<const Tokens> sequences) override {
    return After(sequences, /*rest=*/{});
  }
  absl::StatusOr<absl::Span<const float>> After(absl::Span<const Tokens> sequences, Tokens rest) {
    inputs_.SetTokens(sequences, rest);
    const nn::BatchView batch = {.examples = static_cast<int64_t>(sequences.size()),
                                 .inputs = inputs_.views(),
                                 .targets = targets_.span()};
    CAIRN_ASSIGN_OR_RETURN(const nn::BatchResult result, replica_->Evaluate(scored_.parameters, batch));
    const auto width = static_cast<size_t>(scored_.model.outputs()[0].shape[1]);
    const size_t window = result.outputs.size() / sequences.size();
    scores_.clear();
    for (size_t row = 0; row < sequences.size(); ++row) {
      const auto last = result.outputs.subspan(row * window + (sequences[row].size() - 1) * width, width);
      scores_.insert(scores_.end(), last.begin(), last.end());
    }
    return scores_;
  }
  absl::Status Reorder(absl::Span<const int64_t>) override { return absl::OkStatus(); }

 private:
  explicit WindowScores(const ScoredModel& scored)
      : scored_(scored),
        inputs_(scored),
        objective_(nn::Objective::ForAnyOutputs(scored.model)),
        targets_(objective_.TargetsPerExample(scored.model) * static_cast<int64_t>(scored.sequences)) {}

  const ScoredModel scored_;
  SequenceInputs inputs_;
  const nn::Objective objective_;  // the replica needs one
  AlignedBuffer targets_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<nn::Replica> replica_;
  std::vector<float> scores_;
};

// Runs each position once.
class DecodedScores final : public TokenScores {
 public:
  static absl::StatusOr<std::unique_ptr<TokenScores>> Create(const ScoredModel& scored) {
    std::unique_ptr<DecodedScores> scores(new DecodedScores(scored));
    CAIRN_ASSIGN_OR_RETURN(scores->device_, kernels::CreateCpuDevice(0, scored.threads));
    std::vector<nn::DecodedInput> kinds(scored.model.inputs().size(), nn::DecodedInput::kWhole);
    if (scored.inputs.mask.has_value()) kinds[*scored.inputs.mask] = nn::DecodedInput::kOnes;
    CAIRN_ASSIGN_OR_RETURN(scores->decoder_,
                           nn::Decoder::Create({.model = scored.model,
                                                .parameters = scored.parameters,
                                                .sequence = static_cast<int>(scored.inputs.tokens),
                                                .inputs = kinds,
                                                .batch = static_cast<int64_t>(scored.sequences)},
                                               *scores->device_));
    return scores;
  }

  absl::Status Begin(Tokens source) override {
    source_.assign(source.begin(), source.end());
    inputs_.SetSource(source_);
    done_.clear();
    return absl::OkStatus();
  }

  absl::StatusOr<absl::Span<const float>> After(absl::Span<const Tokens> sequences) override {
    const auto has_zero = [](Tokens tokens) { return absl::c_linear_search(tokens, 0); };
    if (decoder_->masks_zero() && absl::c_any_of(sequences, has_zero)) return AfterMasked(sequences);
    if (!ContinuesDone(sequences)) {
      CAIRN_RETURN_IF_ERROR(decoder_->Begin(inputs_.views()));
      done_.assign(sequences.size(), {});
    }
    const size_t begin = done_[0].size(), count = sequences[0].size() - begin;
    const DType type = scored_.model.inputs()[scored_.inputs.tokens].dtype;
    std::vector<int64_t> memory(sequences.size() * count);  // enough for any type
    const TensorView ids = {.dtype = type,
                            .shape = {static_cast<int64_t>(sequences.size()), static_cast<int64_t>(count)},
                            .data = memory.data()};
    for (size_t i = 0; i < memory.size(); ++i) {
      SetElement({.dtype = type, .shape = {}, .data = memory.data()}, i,
                 sequences[i / count][begin + i % count]);
    }
    done_.clear();  // in case of an error
    CAIRN_ASSIGN_OR_RETURN(const auto scores, decoder_->Append(ids));
    for (const Tokens tokens : sequences) done_.emplace_back(tokens.begin(), tokens.end());
    return scores;
  }

  absl::Status Reorder(absl::Span<const int64_t> from) override {
    if (done_.empty()) return absl::OkStatus();
    std::vector<std::vector<int64_t>> reordered;
    for (const int64_t sequence : from) reordered.push_back(done_[static_cast<size_t>(sequence)]);
    done_ = std::move(reordered);
    return decoder_->Reorder(from);
  }

 private:
  explicit DecodedScores(const ScoredModel& scored) : scored_(scored), inputs_(scored) {}

  // Whether the sequences are those that the decoder has, and more tokens.
  bool ContinuesDone(absl::Span<const Tokens> sequences) const {
    if (done_.empty()) return false;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].size() <= done_[i].size() ||
          !std::equal(done_[i].begin(), done_[i].end(), sequences[i].begin()))
        return false;
    }
    return true;
  }

  // A decoder takes no step that a layer masks.
  absl::StatusOr<absl::Span<const float>> AfterMasked(absl::Span<const Tokens> sequences) {
    if (windows_ == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(windows_, WindowScores::Create(scored_));
    }
    CAIRN_RETURN_IF_ERROR(windows_->Begin(source_));
    return windows_->After(sequences);
  }

  const ScoredModel scored_;
  SequenceInputs inputs_;  // of what is not decoded
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<nn::Decoder> decoder_;
  std::vector<int64_t> source_;
  std::vector<std::vector<int64_t>>
      done_;                              // [sequence] the tokens that the decoder has; empty: it must begin
  std::unique_ptr<TokenScores> windows_;  // null until it is needed
};

// INVALID_ARGUMENT if what fills up the window changes the scores. Tries every id of a small table, because the model
// may look for any of them, and the first and the last ids of a large one.
absl::Status CheckCausal(WindowScores& scores, const ScoredModel& scored, Tokens tokens) {
  constexpr int64_t kMaxWindows = 64;
  const std::vector<Tokens> sequences(scored.sequences, tokens);
  const int64_t rest = scored.length() - static_cast<int64_t>(tokens.size());
  const int64_t rows = scored.rows_of(scored.inputs.tokens);
  const int64_t ids = rows > 0 ? rows : scored.model.outputs()[0].shape[1];
  // A table of one row has no other id to fill up with.
  if (rest <= 0 || ids == 1) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const absl::Span<const float> first, scores.After(sequences));
  const std::vector<float> with_zeros(first.begin(), first.end());
  const int64_t windows = std::min((ids + rest - 1) / rest, kMaxWindows);
  for (int64_t window = 0; window < windows; ++window) {
    std::vector<int64_t> filling;
    for (int64_t i = 0; i < rest; ++i) {
      const int64_t id = (window / 2 * rest + i) % ids;
      filling.push_back(window % 2 == 0 ? id : ids - 1 - id);
    }
    CAIRN_ASSIGN_OR_RETURN(const absl::Span<const float> filled, scores.After(sequences, filling));
    for (size_t i = 0; i < filled.size(); ++i) {
      const float difference = std::abs(filled[i] - with_zeros[i]);
      if (difference > 1e-4f * (1 + std::abs(filled[i]))) {
        return absl::InvalidArgumentError(
            "the model is not causal: its output at a position depends on later tokens, as attention does "
            "without use_causal_mask");
      }
    }
  }
  return absl::OkStatus();
}

std::string NamesOf(const nn::Model& model) {
  return absl::StrJoin(model.inputs(), ", ", [](std::string* out, const nn::ModelInput& input) {
    absl::StrAppend(out, "'", input.name, "'");
  });
}

absl::StatusOr<TokenInputs> FindInputs(const nn::Model& model, absl::string_view decoder_input) {
  const auto find = [&](absl::string_view name) -> std::optional<size_t> {
    const auto found =
        absl::c_find_if(model.inputs(), [&](const nn::ModelInput& input) { return input.name == name; });
    if (found == model.inputs().end()) return std::nullopt;
    return static_cast<size_t>(found - model.inputs().begin());
  };
  if (model.inputs().size() == 1 && decoder_input.empty()) return TokenInputs{};
  if (model.inputs().size() == 2) {
    const auto mask = find("padding_mask");
    if (const auto ids = find("token_ids"); ids.has_value() && mask.has_value() && decoder_input.empty())
      return TokenInputs{.tokens = *ids, .mask = mask};
    if (const auto decoder = find(decoder_input.empty() ? "decoder_inputs" : decoder_input))
      return TokenInputs{.tokens = *decoder, .source = 1 - *decoder};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the model does not continue tokens: its inputs are ", NamesOf(model),
      decoder_input.empty()
          ? ", and expected are one, 'token_ids' and 'padding_mask', or two of which --decoder_input names "
            "that of the tokens ['decoder_inputs']"
          : absl::StrCat(", and expected are two, one of which is '", decoder_input, "', --decoder_input")));
}

bool IsIds(const nn::ModelInput& input) {
  return IsInteger(input.dtype) && input.shape.rank() == 1 && !input.ragged;
}

}  // namespace

int64_t ScoredModel::rows_of(size_t input) const {
  return nn::ByteInputsOf(model)[input].table_rows;
}

absl::StatusOr<TokenInputs> TokenInputsOf(const nn::Model& model, absl::string_view decoder_input) {
  CAIRN_ASSIGN_OR_RETURN(const TokenInputs inputs, FindInputs(model, decoder_input));
  const nn::ModelInput& tokens = model.inputs()[inputs.tokens];
  const Shape& output = model.outputs()[0].shape;
  if (model.outputs().size() != 1 || !IsIds(tokens) || output.rank() != 2 || output[0] != tokens.shape[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model does not continue tokens: its input '", tokens.name,
                     "' must be integers [length] and its output [length, tokens], but they are ",
                     NameOf(tokens.dtype), " ", tokens.shape.ToString(), " and ", output.ToString()));
  }
  if (inputs.mask.has_value() && model.inputs()[*inputs.mask].shape != tokens.shape) {
    return absl::InvalidArgumentError(absl::StrCat("the model's input 'padding_mask' is ",
                                                   model.inputs()[*inputs.mask].shape.ToString(),
                                                   ", and its tokens are ", tokens.shape.ToString()));
  }
  if (inputs.source.has_value() && !IsIds(model.inputs()[*inputs.source])) {
    const nn::ModelInput& source = model.inputs()[*inputs.source];
    return absl::InvalidArgumentError(absl::StrCat("the model's input '", source.name,
                                                   "' must be integers [length], but is ",
                                                   NameOf(source.dtype), " ", source.shape.ToString()));
  }
  return inputs;
}

absl::StatusOr<std::unique_ptr<TokenScores>> MakeTokenScores(const ScoredModel& model,
                                                             absl::Span<const int64_t> source,
                                                             absl::Span<const int64_t> tokens) {
  auto decoded = DecodedScores::Create(model);
  if (!absl::IsUnimplemented(decoded.status())) return decoded;
  CAIRN_ASSIGN_OR_RETURN(auto windows, WindowScores::Create(model));
  CAIRN_RETURN_IF_ERROR(windows->Begin(source));
  CAIRN_RETURN_IF_ERROR(CheckCausal(*windows, model, tokens));
  return windows;
}

}  // namespace cairn::worker
