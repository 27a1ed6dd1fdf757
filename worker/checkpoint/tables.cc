#include "worker/checkpoint/tables.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "common/core/status.h"
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

// Calls `row` with each id of the table, in the order of the rows, which it checks.
absl::Status VisitIds(const Checkpoint& checkpoint, const TableRun& table,
                      absl::FunctionRef<void(int64_t id)> row) {
  CAIRN_ASSIGN_OR_RETURN(const TensorInfo* const tensor,
                         FindTensor(checkpoint, table, IdsName(table.name), TensorType::kI64));
  embedding::RowOrder order;
  absl::Status status;
  CAIRN_RETURN_IF_ERROR(checkpoint.Read(*tensor, [&](absl::Span<const char> piece) {
    for (size_t at = 0; at < piece.size() && status.ok(); at += sizeof(int64_t)) {
      int64_t id = 0;
      std::memcpy(&id, piece.data() + at, sizeof(id));
      if (!order.Follows(id))
        status = Loss(checkpoint, table, absl::StrCat("id ", id, " is not in its place"));
      row(id);
    }
  }));
  return status;
}

}  // namespace

absl::StatusOr<RowReader> RowReader::Open(const Checkpoint& checkpoint, const TableRun& table) {
  RowReader reader;
  const auto add = [&](const std::string& name, TensorType type, int64_t floats,
                       Shape shape) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const TensorInfo* const tensor, FindTensor(checkpoint, table, name, type));
    if (reader.columns_.empty() && tensor->shape.rank() == 1) {  // the ids
      reader.rows_ = tensor->shape.dim(0);
      shape = tensor->shape;
    }
    if (tensor->shape != shape) {
      return Loss(checkpoint, table,
                  absl::StrCat("tensor '", name, "' has shape ", tensor->shape.ToString(), ", expected ",
                               shape.ToString()));
    }
    CAIRN_RETURN_IF_ERROR(Annotate(CheckRows(*tensor), checkpoint.directory()));
    reader.columns_.push_back(std::unique_ptr<Column>(
        new Column{reader.record_floats_, floats, TensorReader(checkpoint, *tensor)}));
    reader.record_floats_ += floats;
    return absl::OkStatus();
  };
  CAIRN_RETURN_IF_ERROR(add(IdsName(table.name), TensorType::kI64, embedding::kIdFloats, Shape({0})));
  CAIRN_RETURN_IF_ERROR(
      add(RowsName(table.name), TensorType::kF32, table.dim, Shape({reader.rows_, table.dim})));
  for (size_t i = 0; i < table.slots.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(add(SlotName(table.name, table.slots[i]), TensorType::kF32, table.slot_floats[i],
                              Shape({reader.rows_, table.slot_floats[i]})));
  }
  return reader;
}

absl::Status RowReader::Read(absl::Span<float> records) {
  const size_t rows = records.size() / static_cast<size_t>(record_floats_);
  for (const auto& column : columns_) {
    const auto floats = static_cast<size_t>(column->floats);
    column_.resize(rows * floats);
    CAIRN_RETURN_IF_ERROR(
        column->reader.Read({reinterpret_cast<char*>(column_.data()), column_.size() * sizeof(float)}));
    float* to = records.data() + column->begin;
    for (size_t row = 0; row < rows; ++row, to += record_floats_) {
      std::memcpy(to, column_.data() + row * floats, floats * sizeof(float));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TableStates>> TableStates::Open(const Checkpoint& checkpoint, int servers) {
  std::unique_ptr<TableStates> states(new TableStates());
  states->sizes_.resize(static_cast<size_t>(servers));
  for (const TableRun& run : checkpoint.run().tables.value_or(std::vector<TableRun>())) {
    CAIRN_ASSIGN_OR_RETURN(RowReader reader, RowReader::Open(checkpoint, run));
    // In the order of their buckets, the rows of each server follow one another.
    std::vector<int64_t> rows(static_cast<size_t>(servers));
    CAIRN_RETURN_IF_ERROR(VisitIds(checkpoint, run, [&](int64_t id) {
      ++rows[static_cast<size_t>(embedding::OwnerOf({}, embedding::BucketOf(id), servers))];
    }));
    for (size_t server = 0; server < rows.size(); ++server) {
      states->sizes_[server].push_back(embedding::StateFloats(rows[server], run.row_floats()));
    }
    states->tables_.push_back({.run = run,
                               .reader = std::move(reader),
                               .left = std::move(rows),
                               .head_read = std::vector<bool>(static_cast<size_t>(servers))});
  }
  return states;
}

absl::StatusOr<int64_t> TableStates::Read(int server, size_t table, absl::Span<float> into) {
  Table& of = tables_[table];
  const auto at = static_cast<size_t>(server);
  if (!of.head_read[at]) {
    of.head_read[at] = true;
    const embedding::TableStateHead head = {.rows = of.left[at],
                                            .learning_rate = static_cast<float>(of.run.learning_rate)};
    CAIRN_CHECK(static_cast<int64_t>(into.size()) >= embedding::kStateHeadFloats);
    std::memcpy(into.data(), &head, sizeof(head));
    return embedding::kStateHeadFloats;
  }
  const int64_t record = of.reader.record_floats();
  const int64_t rows = std::min(of.left[at], static_cast<int64_t>(into.size()) / record);
  if (rows == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("table '", of.run.name, "': a row of ", record,
                                                     " floats does not fit into a piece of ", into.size()));
  }
  CAIRN_RETURN_IF_ERROR(of.reader.Read(into.first(static_cast<size_t>(rows * record))));
  of.left[at] -= rows;
  return rows * record;
}

}  // namespace cairn::worker
