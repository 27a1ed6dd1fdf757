#include "cli/commands/generation.h"

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/array.h"
#include "data/tokens/token_array.h"
#include "data/tokens_json.h"
#include "worker/options/job.h"

namespace cairn::cli {
namespace {

absl::StatusOr<std::vector<int64_t>> PromptOfIds(const std::string& file) {
  CAIRN_ASSIGN_OR_RETURN(const data::Array array, data::ReadTokens(file, data::ElementType::kUint16));
  const auto largest = data::LargestToken(array);
  if (!largest.ok()) return Annotate(largest.status(), file);
  std::vector<int64_t> tokens(static_cast<size_t>(array.shape[0]));
  data::WithType(array.type, [&](auto zero) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] =
          static_cast<int64_t>(data::ElementAt<decltype(zero)>(array.bytes.data(), static_cast<int64_t>(i)));
    }
  });
  return tokens;
}

absl::StatusOr<std::vector<int64_t>> PromptOf(const GenerationFlags& flags, const std::string& file,
                                              absl::Span<const std::string> vocabulary) {
  const bool given = !flags.prompt.empty();
  if (!given && absl::EndsWith(file, ".npy")) return PromptOfIds(file);
  const std::string name = given ? "--prompt" : file;
  if (vocabulary.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": a text needs a vocabulary, and there is no ",
                                                   data::kTokensFile,
                                                   " with one beside the model: give ids in a .npy file"));
  }
  std::string text = flags.prompt;
  if (!given) {
    CAIRN_ASSIGN_OR_RETURN(text, ReadFile(file));
  }
  auto tokens = data::TokensOf(text, vocabulary);
  if (!tokens.ok()) return Annotate(tokens.status(), name);
  return tokens;
}

}  // namespace

absl::Status PrintGenerated(const worker::TrainedModel& trained, const worker::TrainOptions& options,
                            const GenerationFlags& flags, const std::string& file, int threads) {
  if (trained.tables.has_value()) {
    return absl::UnimplementedError("--generate: the model's embedding tables take any id");
  }
  const std::vector<std::string> vocabulary =
      trained.data.tokens ? trained.data.tokens->vocabulary : std::vector<std::string>();
  CAIRN_ASSIGN_OR_RETURN(std::vector<int64_t> prompt, PromptOf(flags, file, vocabulary));
  // A model that is not compiled has no loss.
  std::optional<bool> from_logits;
  if (!options.loss.empty() || !trained.model.compile_config().losses.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const nn::Objective objective, worker::MakeObjective(options, trained.model));
    from_logits = objective.losses()[0].loss.from_logits;
  }
  const auto print = [&](int64_t token) {
    const auto id = static_cast<size_t>(token);
    const std::string text = vocabulary.empty() ? absl::StrCat(token, " ") : vocabulary[id];
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  const worker::GenerationRequest request = {.model = trained.model,
                                             .parameters = trained.parameters,
                                             .prompt = std::move(prompt),
                                             .count = flags.count,
                                             .vocabulary = static_cast<int64_t>(vocabulary.size()),
                                             .from_logits = from_logits,
                                             .sampling = flags.sampling,
                                             .threads = threads};
  bool begun = false;
  const absl::Status status = worker::Generate(request, [&](int64_t token) {
    if (!std::exchange(begun, true)) {
      for (const int64_t given : request.prompt) print(given);
    }
    print(token);
  });
  if (begun) std::printf("\n");
  return status;
}

}  // namespace cairn::cli
