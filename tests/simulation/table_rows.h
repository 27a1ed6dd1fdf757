// The rows of a simulated job's table: kNumRows on each server, of one element each.
//
// The gradient of every push contains two rows of each server, both with the gradient of the server's variable: row 0,
// and another one that follows from the push.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/memory/aligned_buffer.h"
#include "embedding/keys/key_hash.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/table_state.h"
#include "ps/policy/policy.h"
#include "ps/table/table.h"

namespace cairn::simulation {

inline constexpr size_t kNumRows = 4;

// [row] The ids of a server's rows.
inline std::vector<int64_t> RowIds(int server, int servers) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; ids.size() < kNumRows; ++id) {
    if (embedding::OwnerOf({}, embedding::BucketOf(id), servers) == server) ids.push_back(id);
  }
  return ids;
}

// The row beside row 0 in the gradient of this push.
inline size_t RowOf(const ps::PushKey& key) {
  return 1 + (static_cast<size_t>(key.step) + static_cast<size_t>(key.worker)) % (kNumRows - 1);
}

// The state of a table of no rows, in the form of embedding/store/table_state.h.
inline ps::ReceivedTables StateOfNoRows() {
  auto state = std::make_shared<AlignedBuffer>(embedding::kStateHeadFloats);
  const embedding::TableStateHead head = {.learning_rate = 1};
  std::memcpy(state->data(), &head, sizeof(head));
  return {state};
}

// [row] The values in such a state; rows that do not exist are 0.
inline std::vector<float> RowsIn(const ps::ReceivedTables& tables, int server, int servers) {
  const std::vector<int64_t> ids = RowIds(server, servers);
  std::vector<float> rows(kNumRows);
  embedding::StateReader reader({tables.at(0)->span()});
  const auto head = embedding::ReadStateHead(reader, /*row_floats=*/1);
  for (int64_t i = 0; head.has_value() && i < head->rows; ++i) {
    int64_t id = 0;
    float value = 0;
    reader.Read(&id, embedding::kIdFloats);
    reader.Read(&value, 1);
    for (size_t row = 0; row < kNumRows; ++row) {
      if (ids[row] == id) rows[row] = value;
    }
  }
  return rows;
}

}  // namespace cairn::simulation
