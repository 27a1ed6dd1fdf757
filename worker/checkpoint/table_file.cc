#include "worker/checkpoint/table_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/shape.h"
#include "common/core/status.h"
#include "worker/checkpoint/tensors.h"

namespace cairn::worker {
namespace {

// Rows are written in batches of about so many floats, 1 MiB.
constexpr int64_t kBatchFloats = int64_t{1} << 18;

absl::Status NotOfTable(const TableRun& table) {
  return absl::InvalidArgumentError(absl::StrCat("the state of table '", table.name,
                                                 "' is not one of rows of ", table.row_floats(), " floats"));
}

}  // namespace

absl::StatusOr<TableFile> TableFile::Create(const std::string& path, absl::Span<const Part> tables,
                                            bool keeps_empty) {
  TableFile file;
  for (const Part& part : tables) {
    State& state =
        file.tables_.emplace_back(State{.table = part.table,
                                        .rows = part.rows.end - part.rows.begin,
                                        .parser = embedding::StateParser(part.table.row_floats())});
    if (state.rows > 0 || (part.rows.total == 0 && keeps_empty)) file.AddTensors(part, state);
  }
  if (file.entry_.tensors.empty()) return file;
  CAIRN_ASSIGN_OR_RETURN(const std::string head, HeadOf(file.entry_));
  CAIRN_ASSIGN_OR_RETURN(OutputFile output, OutputFile::Create(path));
  CAIRN_RETURN_IF_ERROR(output.Write(head, &file.entry_.head_crc32));
  file.file_.emplace(std::move(output));
  file.entry_.head_bytes = head.size();
  uint64_t offset = head.size();
  for (State& state : file.tables_) {
    for (Column& column : state.columns) {
      column.offset = offset;
      offset += static_cast<uint64_t>(state.rows * column.floats) * sizeof(float);
    }
  }
  file.entry_.bytes = offset;
  return file;
}

void TableFile::AddTensors(const Part& part, State& state) {
  const TableRun& table = part.table;
  const RowRange& rows = part.rows;
  const auto add = [&](const std::string& name, Shape shape, TensorType type, int64_t floats) {
    state.columns.push_back({.floats = floats, .entry = entry_.tensors.size()});
    entry_.tensors.push_back({.name = name,
                              .shape = std::move(shape),
                              .row_begin = rows.begin,
                              .row_end = rows.end,
                              .type = type});
  };
  add(IdsName(table.name), Shape({rows.total}), TensorType::kI64, embedding::kIdFloats);
  add(RowsName(table.name), Shape({rows.total, table.dim}), TensorType::kF32, table.dim);
  for (size_t slot = 0; slot < table.slots.size(); ++slot) {
    const int64_t width = table.slot_floats[slot];
    add(SlotName(table.name, table.slots[slot]), Shape({rows.total, width}), TensorType::kF32, width);
  }
}

absl::Status TableFile::Add(size_t table, absl::Span<const float> piece) {
  State& state = tables_[table];
  absl::Status status;
  const bool fits = state.parser.Add(piece, [&](absl::Span<const float> records) {
    if (status.ok() && state.parser.head().rows == state.rows) status = WriteRows(state, records);
  });
  CAIRN_RETURN_IF_ERROR(status);
  if (!fits || (state.parser.has_head() && state.parser.head().rows != state.rows))
    return NotOfTable(state.table);
  return absl::OkStatus();
}

absl::Status TableFile::WriteRows(State& state, absl::Span<const float> records) {
  const int64_t record = embedding::kIdFloats + state.table.row_floats();
  const int64_t all = static_cast<int64_t>(records.size()) / record;
  for (int64_t first = 0; first < all; first += std::max<int64_t>(1, kBatchFloats / record)) {
    const int64_t rows = std::min(all - first, std::max<int64_t>(1, kBatchFloats / record));
    const float* from = records.data() + first * record;
    for (const Column& column : state.columns) {
      const auto width = static_cast<size_t>(column.floats);
      batch_.resize(static_cast<size_t>(rows) * width);
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(batch_.data() + static_cast<size_t>(row) * width, from + row * record,
                    width * sizeof(float));
      }
      const auto before = static_cast<uint64_t>(state.written * column.floats) * sizeof(float);
      CAIRN_RETURN_IF_ERROR(
          file_->WriteAt(column.offset + before, BytesOf(batch_), &entry_.tensors[column.entry].crc32));
      from += column.floats;
    }
    state.written += rows;
  }
  return absl::OkStatus();
}

absl::StatusOr<FileEntry> TableFile::Finish() {
  for (const State& state : tables_) {
    if (!state.parser.complete()) return NotOfTable(state.table);
  }
  if (file_.has_value()) CAIRN_RETURN_IF_ERROR(file_->Sync());
  return std::move(entry_);
}

}  // namespace cairn::worker
