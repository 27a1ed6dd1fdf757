#include "cli/commands/generation.h"

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/array.h"
#include "data/array/array_file.h"
#include "data/byte_order_mark.h"
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
                               const data::TokensJson& tokens) {
  const bool given = !flags.prompt.empty();
  if (!given && absl::EndsWith(file, ".npy")) return RowsOfIds(file);
  const std::string name = given ? "--prompt" : file;
  if (tokens.vocabulary.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": a text needs a vocabulary, and there is no ", data::kTokensFile,
                     " with one beside the model: give --vocabulary, or ids in a .npy file"));
  }
  std::string text = flags.prompt;
  if (!given) {
    CAIRN_ASSIGN_OR_RETURN(text, ReadFile(file));
  }
  auto ids = data::TokensOf(given ? text : data::WithoutByteOrderMark(text), tokens);
  if (!ids.ok()) return Annotate(ids.status(), name);
  return Rows{*std::move(ids)};
}

// Sets the sources, which the encoder reads: rows of ids, or the lines of a text.
absl::Status ReadSources(const GenerationFlags& flags, const std::string& file,
                         worker::GenerationRequest& request) {
  const bool given = !flags.prompt.empty();
  if (!given && absl::EndsWith(file, ".npy")) {
    CAIRN_ASSIGN_OR_RETURN(request.sources, RowsOfIds(file));
    return absl::OkStatus();
  }
  if (flags.source_vocabulary.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(given ? "--prompt" : file,
                     ": a text for the encoder needs --source_vocabulary; else give ids in a .npy file"));
  }
  CAIRN_ASSIGN_OR_RETURN(const data::TokensJson tokens, data::ReadVocabulary(flags.source_vocabulary));
  request.source_vocabulary = static_cast<int64_t>(tokens.vocabulary.size());
  request.row_name = given ? "--prompt: line " : absl::StrCat(file, ": line ");
  request.first_row = 1;
  std::string text = flags.prompt;
  if (!given) {
    CAIRN_ASSIGN_OR_RETURN(text, ReadFile(file));
  }
  absl::string_view lines = data::WithoutByteOrderMark(text);
  absl::ConsumeSuffix(&lines, "\n");
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    auto ids = data::TokensOf(line, tokens);
    if (!ids.ok()) {
      return Annotate(ids.status(), absl::StrCat(request.row_name, request.sources.size() + 1));
    }
    request.sources.push_back(*std::move(ids));
  }
  return absl::OkStatus();
}

// Sets the prompts and, for a model with an encoder, the sources and the end.
absl::Status ReadRows(const GenerationFlags& flags, const std::string& file, const data::TokensJson& tokens,
                      worker::GenerationRequest& request) {
  if (flags.end >= 0) request.end = flags.end;
  if (flags.start < 0 && flags.source_vocabulary.empty()) {
    CAIRN_ASSIGN_OR_RETURN(request.prompts, PromptsOf(flags, file, tokens));
    return absl::OkStatus();
  }
  std::optional<int64_t> start = flags.start;
  if (flags.start < 0) start = data::IdOf(tokens, {"[START]", "[start]"});
  if (!start.has_value())
    return absl::InvalidArgumentError("give --start_id: there is no vocabulary with the token [START]");
  if (flags.end < 0) request.end = data::IdOf(tokens, {"[END]", "[end]"});
  CAIRN_RETURN_IF_ERROR(ReadSources(flags, file, request));
  if (request.sources.empty()) return absl::InvalidArgumentError(absl::StrCat(file, ": has no rows"));
  request.prompts.assign(request.sources.size(), {*start});
  return absl::OkStatus();
}

// Prints rows as they are generated.
class Printer {
 public:
  // `prompts`: printed before what is added to them.
  Printer(const data::TokensJson& tokens, Rows prompts) : tokens_(tokens), prompts_(std::move(prompts)) {}

  void Print(size_t row, int64_t token) {
    Begin(row + 1);
    Print(token);
  }
  // Begins rows until `rows` have begun.
  void Begin(size_t rows) {
    for (; begun_ < rows; ++begun_) {
      if (begun_ > 0) std::printf("\n");
      printed_ = 0;
      for (const int64_t token : prompts_[begun_]) Print(token);
    }
  }
  void End() const {
    if (begun_ > 0) std::printf("\n");
  }

 private:
  void Print(int64_t token) {
    std::string text = absl::StrCat(token, " ");
    if (!tokens_.vocabulary.empty())
      text = absl::StrCat(tokens_.words && printed_ > 0 ? " " : "",
                          tokens_.vocabulary[static_cast<size_t>(token)]);
    ++printed_;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const data::TokensJson& tokens_;
  const Rows prompts_;
  size_t begun_ = 0;    // rows
  size_t printed_ = 0;  // tokens of the row
};

}  // namespace

absl::Status PrintGenerated(const worker::TrainedModel& trained, const worker::TrainOptions& options,
                            const GenerationFlags& flags, const std::string& file, int threads) {
  if (trained.tables.has_value()) {
    return absl::UnimplementedError("--generate: the model's embedding tables take any id");
  }
  data::TokensJson tokens = trained.data.tokens.value_or(data::TokensJson());
  if (!flags.vocabulary.empty()) {
    CAIRN_ASSIGN_OR_RETURN(tokens, data::ReadVocabulary(flags.vocabulary));
  }
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
                                       .vocabulary = static_cast<int64_t>(tokens.vocabulary.size()),
                                       .drop = flags.drop,
                                       .from_logits = from_logits,
                                       .sampling = flags.sampling,
                                       .beams = flags.beams,
                                       .threads = threads};
  CAIRN_RETURN_IF_ERROR(ReadRows(flags, file, tokens, request));
  const Shape& scores = trained.model.outputs()[0].shape;  // [steps, tokens], which Generate() checks
  if (!flags.vocabulary.empty() && scores.rank() == 2 && request.vocabulary < scores[1]) {
    std::fprintf(
        stderr,
        "cairn predict: warning: %s has %lld tokens, and the model's output %lld: no others are drawn\n",
        flags.vocabulary.c_str(), static_cast<long long>(request.vocabulary),
        static_cast<long long>(scores[1]));
  }
  const bool encodes = !request.sources.empty();
  Printer printer(tokens, encodes ? Rows(request.prompts.size()) : request.prompts);
  const absl::Status status =
      worker::Generate(request, [&](size_t row, int64_t token) { printer.Print(row, token); });
  if (status.ok()) printer.Begin(request.prompts.size());
  printer.End();
  return status;
}

}  // namespace cairn::cli
