#include "worker/checkpoint/tables.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "embedding/keys/key_hash.h"
#include "embedding/store/bucket_range.h"
#include "embedding/store/table_state.h"
#include "worker/checkpoint/tensors.h"

namespace cairn::worker {
namespace {

absl::Status Loss(const Checkpoint& checkpoint, const TableRun& table, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(checkpoint.directory(), ": table '", table.name, "': ", what));
}

absl::StatusOr<const TensorInfo*> FindTensor(const Checkpoint& checkpoint, const TableRun& table,
                                             const std::string& name, TensorType type) {
  const auto found =
      absl::c_find_if(checkpoint.tensors(), [&](const TensorInfo& tensor) { return tensor.name == name; });
  if (found == checkpoint.tensors().end()) {
    return Loss(checkpoint, table, absl::StrCat("tensor '", name, "' is missing"));
  }
  if (found->type != type) {
    return Loss(checkpoint, table, absl::StrCat("tensor '", name, "' is ", NameOf(found->type)));
  }
  return &*found;
}

absl::StatusOr<std::vector<int64_t>> LoadIds(const Checkpoint& checkpoint, const TableRun& table) {
  CAIRN_ASSIGN_OR_RETURN(const TensorInfo* const tensor,
                         FindTensor(checkpoint, table, IdsName(table.name), TensorType::kI64));
  if (tensor->shape.rank() != 1) {
    return Loss(checkpoint, table, absl::StrCat("its ids have shape ", tensor->shape.ToString()));
  }
  std::vector<int64_t> ids(static_cast<size_t>(tensor->shape.dim(0)));
  char* to = reinterpret_cast<char*>(ids.data());
  CAIRN_RETURN_IF_ERROR(checkpoint.Read(
      *tensor, [&](absl::Span<const char> piece) { to = std::copy(piece.begin(), piece.end(), to); }));
  embedding::RowOrder order;
  for (const int64_t id : ids) {
    if (!order.Follows(id)) return Loss(checkpoint, table, absl::StrCat("id ", id, " is not in its place"));
  }
  return ids;
}

// Reads a tensor of the table's rows, and copies each row of it to place(row).
absl::Status Scatter(const Checkpoint& checkpoint, const TableRun& table, const std::string& name,
                     const Shape& shape, absl::FunctionRef<float*(int64_t row)> place) {
  CAIRN_ASSIGN_OR_RETURN(const TensorInfo* const tensor,
                         FindTensor(checkpoint, table, name, TensorType::kF32));
  if (tensor->shape != shape) {
    return Loss(checkpoint, table,
                absl::StrCat("tensor '", name, "' has shape ", tensor->shape.ToString(), ", expected ",
                             shape.ToString()));
  }
  const int64_t width = shape.dim(1);
  int64_t row = 0, column = 0;
  return checkpoint.Read(*tensor, [&](absl::Span<const char> piece) {
    const char* from = piece.data();
    int64_t left = static_cast<int64_t>(piece.size() / sizeof(float));
    while (left > 0) {
      const int64_t count = std::min(left, width - column);
      std::memcpy(place(row) + column, from, static_cast<size_t>(count) * sizeof(float));
      from += static_cast<size_t>(count) * sizeof(float);
      left -= count;
      column += count;
      if (column == width) ++row, column = 0;
    }
  });
}

// Reads the values and the slots of all rows; record(row) is the memory of a row.
absl::Status LoadRecords(const Checkpoint& checkpoint, const TableRun& table, int64_t rows,
                         absl::FunctionRef<float*(int64_t row)> record) {
  CAIRN_RETURN_IF_ERROR(Scatter(checkpoint, table, RowsName(table.name), Shape({rows, table.dim}), record));
  int64_t column = table.dim;
  for (size_t i = 0; i < table.slots.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(Scatter(checkpoint, table, SlotName(table.name, table.slots[i]),
                                  Shape({rows, table.slot_floats[i]}),
                                  [&](int64_t row) { return record(row) + column; }));
    column += table.slot_floats[i];
  }
  return absl::OkStatus();
}

// The state of one table for each server.
absl::StatusOr<std::vector<AlignedBuffer>> LoadStates(const Checkpoint& checkpoint, const TableRun& table,
                                                      int servers) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, LoadIds(checkpoint, table));
  const int64_t row_floats = table.row_floats();
  // In the order of their buckets, the rows of each server follow one another.
  std::vector<int64_t> count(static_cast<size_t>(servers));
  for (const int64_t id : ids) {
    ++count[static_cast<size_t>(embedding::OwnerOf({}, embedding::BucketOf(id), servers))];
  }
  std::vector<AlignedBuffer> states;
  std::vector<float*> records;  // [row]
  records.reserve(ids.size());
  for (int64_t rows : count) {
    AlignedBuffer& state = states.emplace_back(embedding::StateFloats(rows, row_floats));
    const embedding::TableStateHead head = {.rows = rows,
                                            .learning_rate = static_cast<float>(table.learning_rate)};
    std::memcpy(state.data(), &head, sizeof(head));
    float* next = state.data() + embedding::kStateHeadFloats;
    for (; rows > 0; --rows) {
      std::memcpy(next, &ids[records.size()], sizeof(int64_t));
      records.push_back(next + embedding::kIdFloats);
      next += embedding::kIdFloats + row_floats;
    }
  }
  CAIRN_RETURN_IF_ERROR(LoadRecords(checkpoint, table, static_cast<int64_t>(ids.size()),
                                    [&](int64_t row) { return records[static_cast<size_t>(row)]; }));
  return states;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<FloatBlocks>>> LoadTableStates(const Checkpoint& checkpoint,
                                                                      int servers) {
  std::vector<std::vector<FloatBlocks>> states(static_cast<size_t>(servers));
  if (!checkpoint.run().tables.has_value()) return states;
  for (const TableRun& table : *checkpoint.run().tables) {
    CAIRN_ASSIGN_OR_RETURN(std::vector<AlignedBuffer> of_table, LoadStates(checkpoint, table, servers));
    for (size_t server = 0; server < states.size(); ++server) {
      states[server].emplace_back(std::move(of_table[server]));
    }
  }
  return states;
}

absl::StatusOr<TableRecords> LoadTable(const Checkpoint& checkpoint, const TableRun& table) {
  TableRecords records;
  CAIRN_ASSIGN_OR_RETURN(records.ids, LoadIds(checkpoint, table));
  const auto row_floats = static_cast<size_t>(table.row_floats());
  records.rows.resize(records.ids.size() * row_floats);
  CAIRN_RETURN_IF_ERROR(
      LoadRecords(checkpoint, table, static_cast<int64_t>(records.ids.size()),
                  [&](int64_t row) { return records.rows.data() + static_cast<size_t>(row) * row_floats; }));
  return records;
}

}  // namespace cairn::worker
