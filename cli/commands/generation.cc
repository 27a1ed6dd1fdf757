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
#include "data/array/array_file.h"
#include "data/tokens/token_array.h"
#include "data/tokens_json.h"
#include "worker/options/job.h"

namespace cairn::cli {
namespace {

using Rows = std::vector<std::vector<int64_t>>;

// Ids [length], or [rows, length].
absl::StatusOr<Rows> RowsOfIds(const std::string& file) {
  CAIRN_ASSIGN_OR_RETURN(const data::Array array, data::ReadArrayFile(file));
  const Shape& shape = array.shape;
  if (shape.rank() < 1 || shape.rank() > 2 || !data::IsInteger(array.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": is ", data::NameOf(array.type), " ", shape.ToString(),
                     ", but ids are integers along one axis, or two with rows"));
  }
  const auto largest = data::LargestToken(array);
  if (!largest.ok()) return Annotate(largest.status(), file);
  const int64_t length = shape[shape.rank() - 1];
  Rows rows(static_cast<size_t>(shape.rank() == 1 ? 1 : shape[0]));
  data::WithType(array.type, [&](auto zero) {
    int64_t next = 0;
    for (std::vector<int64_t>& row : rows) {
      for (int64_t i = 0; i < length; ++i, ++next)
        row.push_back(static_cast<int64_t>(data::ElementAt<decltype(zero)>(array.bytes.data(), next)));
    }
  });
  return rows;
}

absl::StatusOr<Rows> PromptsOf(const GenerationFlags& flags, const std::string& file,
                               absl::Span<const std::string> vocabulary) {
  const bool given = !flags.prompt.empty();
  if (!given && absl::EndsWith(file, ".npy")) return RowsOfIds(file);
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
  return Rows{*std::move(tokens)};
}

// Sets the prompts and, for a model with an encoder, the sources.
absl::Status ReadRows(const GenerationFlags& flags, const std::string& file,
                      absl::Span<const std::string> vocabulary, worker::GenerationRequest& request) {
  if (flags.start < 0) {
    CAIRN_ASSIGN_OR_RETURN(request.prompts, PromptsOf(flags, file, vocabulary));
    return absl::OkStatus();
  }
  if (!absl::EndsWith(file, ".npy"))
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": --start_id takes a .npy file of ids as its source"));
  CAIRN_ASSIGN_OR_RETURN(request.sources, RowsOfIds(file));
  request.prompts.assign(request.sources.size(), {flags.start});
  return absl::OkStatus();
}

// Prints rows as they are generated.
class Printer {
 public:
  // `prompts`: printed before what is added to them.
  Printer(absl::Span<const std::string> vocabulary, Rows prompts)
      : vocabulary_(vocabulary), prompts_(std::move(prompts)) {}

  void Print(size_t row, int64_t token) {
    Begin(row + 1);
    Print(token);
  }
  // Begins rows until `rows` have begun.
  void Begin(size_t rows) {
    for (; begun_ < rows; ++begun_) {
      if (begun_ > 0) std::printf("\n");
      for (const int64_t token : prompts_[begun_]) Print(token);
    }
  }
  void End() const {
    if (begun_ > 0) std::printf("\n");
  }

 private:
  void Print(int64_t token) const {
    const auto id = static_cast<size_t>(token);
    const std::string text = vocabulary_.empty() ? absl::StrCat(token, " ") : vocabulary_[id];
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const absl::Span<const std::string> vocabulary_;
  const Rows prompts_;
  size_t begun_ = 0;
};

}  // namespace

absl::Status PrintGenerated(const worker::TrainedModel& trained, const worker::TrainOptions& options,
                            const GenerationFlags& flags, const std::string& file, int threads) {
  if (trained.tables.has_value()) {
    return absl::UnimplementedError("--generate: the model's embedding tables take any id");
  }
  const std::vector<std::string> vocabulary =
      trained.data.tokens ? trained.data.tokens->vocabulary : std::vector<std::string>();
  // A model that is not compiled has no loss.
  std::optional<bool> from_logits;
  if (!options.loss.empty() || !trained.model.compile_config().losses.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const nn::Objective objective, worker::MakeObjective(options, trained.model));
    from_logits = objective.losses()[0].loss.from_logits;
  }
  worker::GenerationRequest request = {.model = trained.model,
                                       .parameters = trained.parameters,
                                       .prompts = {},
                                       .decoder_input = flags.decoder_input,
                                       .count = flags.count,
                                       .vocabulary = static_cast<int64_t>(vocabulary.size()),
                                       .drop = flags.drop,
                                       .from_logits = from_logits,
                                       .sampling = flags.sampling,
                                       .beams = flags.beams,
                                       .threads = threads};
  if (flags.end >= 0) request.end = flags.end;
  CAIRN_RETURN_IF_ERROR(ReadRows(flags, file, vocabulary, request));
  const bool encodes = !request.sources.empty();
  Printer printer(vocabulary, encodes ? Rows(request.prompts.size()) : request.prompts);
  const absl::Status status =
      worker::Generate(request, [&](size_t row, int64_t token) { printer.Print(row, token); });
  if (status.ok()) printer.Begin(request.prompts.size());
  printer.End();
  return status;
}

}  // namespace cairn::cli
