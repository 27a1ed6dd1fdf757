#include "data/hashed_id.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace cairn::data {

absl::StatusOr<bool> HashesIds(const DataOptions& options, absl::string_view format) {
  const bool trained = options.trained_columns && options.trained_columns->format == format;
  if (trained && options.hash_ids && !options.trained_columns->hashed_ids) {
    return absl::InvalidArgumentError("--hash_ids: ids are hashed, but in training they were not");
  }
  if (!options.hash_ids && !(trained && options.trained_columns->hashed_ids)) return false;
  for (size_t i = 0; i < options.input_types.size(); ++i) {
    if (!IsInteger(options.input_types[i]) || (i < options.id_maps.size() && options.id_maps[i] != nullptr) ||
        (i < options.table_rows.size() && options.table_rows[i] > 0))
      continue;
    return absl::InvalidArgumentError(absl::StrCat("--hash_ids: no Embedding looks up the values of input '",
                                                   options.input_names[i],
                                                   "', so its number of ids is unknown"));
  }
  return true;
}

}  // namespace cairn::data
