// Ids for the values of categorical fields, which may be any text: a hash of the field's name and the value.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/dataset.h"
#include "embedding/keys/key_hash.h"

namespace cairn::data {

// Whether the ids of a file of this format (columns.h) are hashed: by options.hash_ids, or as they were in training.
// INVALID_ARGUMENT if they are hashed here alone, and for an input of integers whose table is not known.
absl::StatusOr<bool> HashesIds(const DataOptions& options, absl::string_view format);

// The salt of a field: equal values of two fields have different ids, also in a table that both share.
inline uint64_t SaltOf(absl::string_view field) {
  return embedding::HashString(field, 0);
}

// The id, in [0, rows), of `value` in a field with the salt `salt`. An empty value has an id as any other has.
inline int64_t HashedId(absl::string_view value, uint64_t salt, int64_t rows) {
  return static_cast<int64_t>(embedding::HashString(value, salt) % static_cast<uint64_t>(rows));
}

}  // namespace cairn::data
