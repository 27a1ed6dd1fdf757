#include "worker/inputs/generation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/core/tensor_view.h"
#include "common/memory/aligned_buffer.h"
#include "data/input_rows.h"
#include "kernels/cpu/device.h"
#include "nn/batch.h"
#include "nn/byte_inputs.h"
#include "nn/objective.h"
#include "nn/replica/replica.h"

namespace cairn::worker {
namespace {

absl::Status CheckGeneration(const GenerationRequest& request) {
  const auto refuse = [](const auto&... text) { return absl::InvalidArgumentError(absl::StrCat(text...)); };
  const nn::Model& model = request.model;
  const nn::ModelInput& input = model.inputs()[0];
  const Shape& output = model.outputs()[0].shape;
  if (model.inputs().size() != 1 || model.outputs().size() != 1 || !IsInteger(input.dtype) ||
      input.shape.rank() != 1 || input.ragged || output.rank() != 2 || output[0] != input.shape[0]) {
    return refuse(
        "the model does not continue tokens: its input must be integers [length] and its output [length, "
        "tokens], but they are ",
        NameOf(input.dtype), " ", input.shape.ToString(), " and ", output.ToString());
  }
  if (request.prompt.empty()) return refuse("the prompt is empty");
  const int64_t rows = nn::ByteInputsOf(model)[0].table_rows;
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int64_t token = request.prompt[i];
    if (token < 0 || (rows > 0 && token >= rows)) {
      return refuse("token ", i, " of the prompt is ", token, ", and the table of the model has ",
                    rows > 0 ? absl::StrCat("ids from 0 to ", rows - 1) : "no negative ids");
    }
    if (request.vocabulary > 0 && token >= request.vocabulary) {
      return refuse("token ", i, " of the prompt is ", token, ", and the vocabulary has ids from 0 to ",
                    request.vocabulary - 1);
    }
  }
  if (request.vocabulary > output[1]) {
    return refuse("the vocabulary has ", request.vocabulary, " tokens, but the model's output is ",
                  output.ToString());
  }
  return absl::OkStatus();
}

// The scores of the next token by a model that runs whole windows.
class WindowScores {
 public:
  static absl::StatusOr<std::unique_ptr<WindowScores>> Create(const GenerationRequest& request) {
    std::unique_ptr<WindowScores> scores(new WindowScores(request));
    CAIRN_ASSIGN_OR_RETURN(scores->device_, kernels::CreateCpuDevice(0, request.threads));
    CAIRN_ASSIGN_OR_RETURN(scores->replica_,
                           nn::Replica::Create(request.model, scores->objective_, *scores->device_));
    std::fill(scores->targets_.span().begin(), scores->targets_.span().end(), 0.0f);
    return scores;
  }

  // The rows of the table that looks the tokens up; 0: there is none.
  int64_t rows() const { return nn::ByteInputsOf(request_.model)[0].table_rows; }
  int64_t length() const { return request_.model.inputs()[0].shape[0]; }

  // The scores after the last of `tokens`, of which there are at most length(); valid until the next call. The rest of
  // the window is filled with `padding`.
  absl::StatusOr<absl::Span<const float>> After(absl::Span<const int64_t> tokens, int64_t padding) {
    const MutableTensorView window = window_.Row(0)[0];
    for (int64_t i = 0; i < length(); ++i) {
      const bool given = i < static_cast<int64_t>(tokens.size());
      const int64_t token = given ? tokens[static_cast<size_t>(i)] : padding;
      WithIntegerType(window.dtype, [&](auto zero) {
        static_cast<decltype(zero)*>(window.data)[i] = static_cast<decltype(zero)>(token);
      });
    }
    const nn::BatchView batch = {.examples = 1, .inputs = window_.First(1), .targets = targets_.span()};
    CAIRN_ASSIGN_OR_RETURN(const nn::BatchResult result, replica_->Evaluate(request_.parameters, batch));
    const auto width = static_cast<size_t>(request_.model.outputs()[0].shape[1]);
    return result.outputs.subspan((tokens.size() - 1) * width, width);
  }

 private:
  explicit WindowScores(const GenerationRequest& request)
      : request_(request),
        window_({{request.model.inputs()[0].dtype, request.model.inputs()[0].shape}}, 1),
        objective_(nn::Objective::ForAnyOutputs(request.model)),
        targets_(objective_.TargetsPerExample(request.model)) {}

  const GenerationRequest& request_;
  data::InputRows window_;
  const nn::Objective objective_;  // the replica needs one
  AlignedBuffer targets_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<nn::Replica> replica_;
};

// INVALID_ARGUMENT if what fills up the window changes the scores.
absl::Status CheckCausal(WindowScores& scores, absl::Span<const int64_t> tokens) {
  // A table of one row has no other id to fill up with.
  if (static_cast<int64_t>(tokens.size()) >= scores.length() || scores.rows() == 1) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(absl::Span<const float> first, scores.After(tokens, 0));
  const std::vector<float> with_zeros(first.begin(), first.end());
  CAIRN_ASSIGN_OR_RETURN(const absl::Span<const float> second, scores.After(tokens, 1));
  for (size_t i = 0; i < second.size(); ++i) {
    const float difference = std::abs(second[i] - with_zeros[i]);
    if (difference > 1e-4f * (1 + std::abs(second[i]))) {
      return absl::InvalidArgumentError(
          "the model is not causal: its output at a position depends on later tokens, as attention does "
          "without "
          "use_causal_mask");
    }
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

}  // namespace

int64_t DrawToken(absl::Span<const float> logits, const SamplingOptions& options, Random& random) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto logit = [&](int64_t token) { return logits[static_cast<size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> shares;
  double total = 0;
  for (const int64_t token : order) {
    shares.push_back(std::exp(double{logit(token) - logit(order[0])} / options.temperature));
    total += shares.back();
  }
  if (options.top_p < 1) {
    const double wanted = options.top_p * total;
    size_t kept = 0;
    for (total = 0; kept == 0 || (total < wanted && kept < shares.size()); ++kept) total += shares[kept];
    shares.resize(kept);
  }
  double rest = double{random.NextUniform()} * total;
  size_t rank = 0;
  while (rank + 1 < shares.size() && rest >= shares[rank]) rest -= shares[rank++];
  return order[rank];
}

absl::Status Generate(const GenerationRequest& request, absl::FunctionRef<void(int64_t token)> on_token) {
  CAIRN_RETURN_IF_ERROR(CheckGeneration(request));
  CAIRN_ASSIGN_OR_RETURN(const auto scores, WindowScores::Create(request));
  std::vector<int64_t> tokens = request.prompt;
  const auto window = [&] {
    const auto fits = std::min(tokens.size(), static_cast<size_t>(scores->length()));
    return absl::MakeConstSpan(tokens).last(fits);
  };
  CAIRN_RETURN_IF_ERROR(CheckCausal(*scores, window()));
  const int64_t rows = nn::ByteInputsOf(request.model)[0].table_rows;
  int64_t drawn = request.model.outputs()[0].shape[1];  // only ids below this one
  for (const int64_t limit : {request.vocabulary, rows}) drawn = limit > 0 ? std::min(drawn, limit) : drawn;
  Random random(request.sampling.seed, "generate");
  for (int64_t i = 0; i < request.count; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const absl::Span<const float> outputs, scores->After(window(), 0));
    std::vector<float> logits(outputs.begin(), outputs.end());
    const bool from_logits = request.from_logits.value_or(!AreProbabilities(outputs));
    logits.resize(static_cast<size_t>(drawn));
    for (float& logit : logits) {
      if (!from_logits) logit = std::log(logit);
      if (std::isnan(logit)) return absl::InvalidArgumentError("the model's outputs are not numbers (NaN)");
    }
    tokens.push_back(DrawToken(logits, request.sampling, random));
    on_token(tokens.back());
  }
  return absl::OkStatus();
}

}  // namespace cairn::worker
