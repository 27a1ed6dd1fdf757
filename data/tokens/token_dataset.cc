// Files of tokens for language models: train.bin and test.bin or val.bin, as nanoGPT writes them, or train.npy and its
// like. They are read for a model with one input of integers along one axis, whose length is that of the windows.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "data/array.h"
#include "data/file_sets.h"
#include "data/formats.h"
#include "data/tokens/token_array.h"
#include "data/tokens/token_windows.h"
#include "data/tokens_json.h"

namespace cairn::data {
namespace {

// Whether the model reads windows of tokens.
bool TakesTokens(const DataOptions& options) {
  return options.input_types.size() == 1 && IsInteger(options.input_types[0]) && !options.IsRagged(0) &&
         options.input_shapes[0].rank() == 1 && (options.id_maps.empty() || options.id_maps[0] == nullptr);
}

// The sets of a directory, or of a single file. Files of both suffixes are not mixed.
absl::StatusOr<SetFiles> FindTokenFiles(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    SetFiles sets;
    if (absl::EndsWith(path, ".bin") || absl::EndsWith(path, ".npy")) sets.train = {path};
    return sets;
  }
  for (const char* suffix : {".bin", ".npy"}) {
    CAIRN_ASSIGN_OR_RETURN(SetFiles sets, FindSets(path, {suffix}));
    if (!sets.train.empty()) return sets;
  }
  return SetFiles();
}

// The error for the first of `tokens` that is not below `rows`. One is not.
absl::Status NoRowFor(const std::string& path, const Array& tokens, int64_t rows) {
  return WithType(tokens.type, [&](auto zero) {
    int64_t at = 0;
    const auto token = [&] {
      return static_cast<int64_t>(ElementAt<decltype(zero)>(tokens.bytes.data(), at));
    };
    while (token() < rows) ++at;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": token ", at, " is ", token(), ", and the table of the model has ids from 0 to ", rows - 1));
  });
}

absl::StatusOr<Split> LoadTokenSplit(const std::vector<std::string>& paths, const TokensJson& how,
                                     const DataOptions& options) {
  const int64_t length = options.input_shapes[0][0];
  const int64_t rows = options.table_rows.empty() ? 0 : options.table_rows[0];
  std::vector<Array> files;
  Split split;
  int64_t windows = 0, largest = 0;
  for (const std::string& path : paths) {
    CAIRN_ASSIGN_OR_RETURN(files.emplace_back(), ReadTokens(path, how.dtype));
    const auto in_file = LargestToken(files.back());
    if (!in_file.ok()) return Annotate(in_file.status(), path);
    if (rows > 0 && *in_file >= rows) return NoRowFor(path, files.back(), rows);
    const auto texts = static_cast<int64_t>(how.vocabulary.size());
    if (texts > 0 && *in_file >= texts) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has the token ", *in_file,
                                                     ", but the vocabulary of ", kTokensFile, " has ", texts,
                                                     " texts"));
    }
    largest = std::max(largest, *in_file);
    split.parts.push_back({path, windows});
    windows += CountWindows(files.back().shape[0], length);
  }
  if (windows == 0 || windows > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths.front(), ": has ", windows, " windows of ", length,
                     " tokens and their next one, but 1 to 2^31 - 1 are supported"));
  }
  split.inputs_name = split.targets_name = paths.front();
  split.targets = {.per_example = length, .shape = {length}};
  (length == 1 ? split.targets.num_classes : split.targets.position_classes) = largest + 1;
  split.inputs = MakeTokenWindows(files, length, 0);
  split.target_rows = MakeTokenWindows(std::move(files), length, 1);
  return split;
}

}  // namespace

LoadedSplits LoadTokens(const DataOptions& options) {
  if (!TakesTokens(options)) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(SetFiles sets, FindTokenFiles(options.path));
  if (sets.train.empty()) return std::nullopt;
  const std::string directory = std::filesystem::path(sets.train.front()).parent_path().string();
  CAIRN_ASSIGN_OR_RETURN(TokensJson how, ReadTokensJson(directory.empty() ? "." : directory));
  Splits splits;
  splits.remarks = std::move(sets.remarks);
  CAIRN_ASSIGN_OR_RETURN(splits.train, LoadTokenSplit(sets.train, how, options));
  splits.notes.push_back(
      {absl::StrCat(splits.train.inputs_name, ": tokens, in windows of ", options.input_shapes[0][0],
                    "; ids of .bin files are ", NameOf(how.dtype))});
  if (!sets.validation.empty()) {
    CAIRN_ASSIGN_OR_RETURN(splits.validation, LoadTokenSplit(sets.validation, how, options));
  }
  splits.tokens = std::move(how);
  return splits;
}

}  // namespace cairn::data
