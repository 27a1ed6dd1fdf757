// Folders of text files (.txt), one for each class (class_folders.h), for a model whose only input is a string. A file
// is an example: the layer that reads the input makes ids of the whole of it, when the set is loaded.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"
#include "common/ids/id_map.h"
#include "data/array.h"
#include "data/array/array_rows.h"
#include "data/class_folders.h"
#include "data/file/byte_reader.h"
#include "data/formats.h"

namespace cairn::data {
namespace {

bool IsTextName(const std::filesystem::path& path) {
  return path.extension() == ".txt";
}

// The ids of a file's text, appended to `ids`.
absl::Status AppendIds(const std::string& path, const DataOptions& options, std::vector<int64_t>& ids) {
  CAIRN_ASSIGN_OR_RETURN(const SharedBytes bytes, ReadFileBytes(path));
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const IdMap& map = *options.TextMapOf(0);
  if (map.ids_per_text()) {
    map.AppendIds(text, ids);
    return absl::OkStatus();
  }
  const auto id = map.OfText(text);
  if (!id) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", map.WhyNoId("its text", options.input_names[0])));
  }
  ids.push_back(*id);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RowSource>> MakeTextRows(std::vector<std::string> paths,
                                                        const DataOptions& options) {
  const auto ids = std::make_shared<std::vector<int64_t>>();
  std::vector<int64_t> row_splits = {0};
  for (const std::string& path : paths) {
    CAIRN_RETURN_IF_ERROR(AppendIds(path, options, *ids));
    row_splits.push_back(static_cast<int64_t>(ids->size()));
  }
  const auto values = static_cast<int64_t>(ids->size()), rows = static_cast<int64_t>(paths.size());
  const SharedBytes bytes({reinterpret_cast<const uint8_t*>(ids->data()), ids->size() * sizeof(int64_t)},
                          ids);
  if (options.IsRagged(0))
    return MakeRaggedRows({ElementType::kInt64, {values}, bytes}, std::move(row_splits), paths[0]);
  return MakeArrayRows({ElementType::kInt64, {rows, values / rows}, bytes}, paths[0], options.ScaleOf(0));
}

constexpr FileKind kTexts = {
    .one = "text", .several = "texts", .is_example = &IsTextName, .make_rows = &MakeTextRows, .bytes = false};

bool TakesText(const DataOptions& options) {
  return options.input_names.size() == 1 && options.TextMapOf(0) != nullptr;
}

}  // namespace

LoadedSplits LoadTextDirectory(const DataOptions& options) {
  if (!TakesText(options)) return std::nullopt;
  return LoadClassFolders(kTexts, options);
}

LoadedExamples LoadTextExamples(const DataOptions& options) {
  if (!TakesText(options)) return std::nullopt;
  return LoadClassFolderExamples(kTexts, options);
}

}  // namespace cairn::data
