#include "worker/checkpoint/writer.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "embedding/store/table_state.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/state_file.h"
#include "worker/checkpoint/tensors.h"
#include "worker/checkpoint/train_dir.h"

namespace cairn::worker {
namespace {

// PyTorch's file names have five digits. No cluster has that many servers.
constexpr size_t kMaxFiles = 99999;

// Writes the bytes of one tensor, in pieces.
using Piece = absl::FunctionRef<absl::Status(absl::string_view bytes)>;
using Contents = std::function<absl::Status(Piece)>;

// The contents of each file, determined before anything is written.
struct Plan {
  StateFile state;
  std::vector<std::vector<Contents>> contents;  // [file][tensor]
};

absl::Status CheckSlots(absl::Span<const std::string> slots) {
  std::set<std::string> seen;
  for (const std::string& slot : slots) {
    if (slot.empty() || absl::StrContains(slot, "/") || !seen.insert(slot).second) {
      return absl::InvalidArgumentError(absl::StrCat("invalid slot names: ", absl::StrJoin(slots, ", ")));
    }
  }
  return absl::OkStatus();
}

// Checks the rows and the elements of `slice` against its shape and against an arena of `arena` elements.
absl::Status CheckSlice(const net::Slice& slice, int64_t arena, const RunState& run) {
  const auto fault = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("variable '", slice.name, "': ", what...));
  };
  const auto shape = Shape::FromUntrusted(slice.shape.dims());
  if (!shape.ok()) return fault(shape.status().message());
  const int64_t rows = slice.shape.rank() == 0 ? 1 : slice.shape.dim(0);
  if (slice.row_begin < 0 || slice.row_end < slice.row_begin || slice.row_end > rows) {
    return fault("rows ", slice.row_begin, " to ", slice.row_end, " of shape ", slice.shape.ToString());
  }
  if (slice.offset < 0 || slice.offset > arena || slice.elements() > arena - slice.offset) {
    return fault(slice.elements(), " elements from offset ", slice.offset, " do not fit into the server's ",
                 arena);
  }
  if (slice.name.empty()) return absl::InvalidArgumentError("a variable has no name");
  for (const std::string& slot : run.slots) {
    if (absl::StartsWith(slice.name, TensorName("", slot))) return fault("that is the name of a slot");
  }
  if (IsOfTable(slice.name, run)) return fault("that is the name of a tensor of a table");
  return absl::OkStatus();
}

// Some columns of the rows of a table on one server.
struct Columns {
  const std::vector<absl::Span<const float>>& state;
  int64_t rows = 0;
  int64_t record_floats = 0;   // of a row in `state`: its id, values and slots
  int64_t begin = 0, end = 0;  // of the columns, in a record
};

absl::Status WriteColumns(const Columns& columns, Piece write) {
  constexpr int64_t kBatch = 4096;  // rows
  const int64_t width = columns.end - columns.begin;
  std::vector<float> batch(static_cast<size_t>(std::min(kBatch, columns.rows) * width));
  embedding::StateReader state(columns.state);
  state.Read(nullptr, embedding::kStateHeadFloats);
  for (int64_t first = 0; first < columns.rows; first += kBatch) {
    const int64_t rows = std::min(kBatch, columns.rows - first);
    float* next = batch.data();
    for (int64_t row = 0; row < rows; ++row) {
      state.Read(nullptr, columns.begin);
      state.Read(next, width);
      state.Read(nullptr, columns.record_floats - columns.end);
      next += width;
    }
    CAIRN_RETURN_IF_ERROR(write(BytesOf({batch.data(), static_cast<size_t>(rows * width)})));
  }
  return absl::OkStatus();
}

absl::Status CheckTable(const TableRun& table, const RunState& run) {
  const auto same_name = [&](const TableRun& other) { return other.name == table.name; };
  if (table.name.empty() || absl::c_count_if(*run.tables, same_name) > 1) {
    return absl::InvalidArgumentError(absl::StrCat("the name of table '", table.name, "' is empty or taken"));
  }
  return CheckSlots(table.slots);
}

// Checks the state of a table on ps/`task`, and returns its head.
absl::StatusOr<embedding::TableStateHead> ReadHead(const TableRun& table, size_t index,
                                                   const ServerState& server, size_t task) {
  if (index < server.tables.size()) {
    embedding::StateReader state(server.tables[index]);
    if (const auto head = embedding::ReadStateHead(state, table.row_floats()); head.has_value()) return *head;
  }
  return absl::InvalidArgumentError(absl::StrCat("ps/", task, ": the state of table '", table.name,
                                                 "' is not one of rows of ", table.row_floats(), " floats"));
}

// The tensors of one file.
struct Tensors {
  std::vector<TensorEntry> entries;
  std::vector<Contents> contents;
};

// The rows [begin, end) of a table's `total`.
struct RowRange {
  int64_t begin = 0, end = 0, total = 0;
};

// Adds the tensors of a table on one server, which has these rows of it.
void AddTable(const TableRun& table, const std::vector<absl::Span<const float>>& state, const RowRange& rows,
              Tensors& tensors) {
  Columns columns = {.state = state,
                     .rows = rows.end - rows.begin,
                     .record_floats = embedding::kIdFloats + table.row_floats()};
  const auto add = [&](const std::string& name, Shape shape, TensorType type, int64_t width) {
    columns.begin = std::exchange(columns.end, columns.end + width);
    tensors.entries.push_back({.name = name,
                               .shape = std::move(shape),
                               .row_begin = rows.begin,
                               .row_end = rows.end,
                               .type = type});
    tensors.contents.push_back([columns](Piece write) { return WriteColumns(columns, write); });
  };
  add(IdsName(table.name), Shape({rows.total}), TensorType::kI64, embedding::kIdFloats);
  add(RowsName(table.name), Shape({rows.total, table.dim}), TensorType::kF32, table.dim);
  for (size_t slot = 0; slot < table.slots.size(); ++slot) {
    const int64_t width = table.slot_floats[slot];
    add(SlotName(table.name, table.slots[slot]), Shape({rows.total, width}), TensorType::kF32, width);
  }
}

// Adds the tables to the plan: a file for each server that has rows of them. A table without rows is in that of ps/0.
absl::Status AddTables(absl::Span<const ServerState> servers, Plan& plan) {
  if (!plan.state.run.tables.has_value()) return absl::OkStatus();
  std::vector<TableRun>& tables = *plan.state.run.tables;
  std::vector<Tensors> files(servers.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    CAIRN_RETURN_IF_ERROR(CheckTable(tables[t], plan.state.run));
    std::vector<int64_t> rows;  // [server]
    for (size_t task = 0; task < servers.size(); ++task) {
      CAIRN_ASSIGN_OR_RETURN(const auto head, ReadHead(tables[t], t, servers[task], task));
      rows.push_back(head.rows);
      if (task == 0) tables[t].learning_rate = head.learning_rate;
    }
    RowRange range = {.total = std::accumulate(rows.begin(), rows.end(), int64_t{0})};
    CAIRN_RETURN_IF_ERROR(Annotate(Shape::FromUntrusted({range.total, tables[t].row_floats()}).status(),
                                   absl::StrCat("table '", tables[t].name, "'")));
    for (size_t task = 0; task < servers.size(); ++task) {
      range.begin = std::exchange(range.end, range.end + rows[task]);
      if (rows[task] == 0 && (range.total > 0 || task > 0)) continue;
      AddTable(tables[t], servers[task].tables[t], range, files[task]);
    }
  }
  for (Tensors& file : files) {
    if (file.entries.empty()) continue;
    plan.state.files.push_back({.tensors = std::move(file.entries)});
    plan.contents.push_back(std::move(file.contents));
  }
  return absl::OkStatus();
}

// The slices of each file. A name can occur only once per file: if a server has several runs of rows of a
// variable, the second run goes into a second file, and so on.
std::vector<std::vector<const net::Slice*>> SlicesOfFiles(const ServerState& server) {
  std::vector<std::vector<const net::Slice*>> files;
  std::map<std::string, size_t> seen;
  for (const net::Slice& slice : server.slices) {
    const size_t file = seen[slice.name]++;
    if (file == files.size()) files.emplace_back();
    files[file].push_back(&slice);
  }
  return files;
}

absl::StatusOr<Plan> MakePlan(const RunState& run, absl::Span<const ServerState> servers) {
  if (run.global_step < 0) {
    return absl::InvalidArgumentError(absl::StrCat("global_step is ", run.global_step));
  }
  CAIRN_RETURN_IF_ERROR(CheckSlots(run.slots));
  Plan plan;
  plan.state.run = run;
  for (size_t task = 0; task < servers.size(); ++task) {
    const ServerState& server = servers[task];
    if (server.state.size() % (1 + run.slots.size()) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("ps/", task, ": ", server.state.size(),
                                                     " values do not divide into an arena and ",
                                                     run.slots.size(), " slots"));
    }
    const size_t arena = server.state.size() / (1 + run.slots.size());
    for (const net::Slice& slice : server.slices) {
      CAIRN_RETURN_IF_ERROR(
          Annotate(CheckSlice(slice, static_cast<int64_t>(arena), run), absl::StrCat("ps/", task)));
    }
    for (const auto& slices : SlicesOfFiles(server)) {
      FileEntry& file = plan.state.files.emplace_back();
      auto& contents = plan.contents.emplace_back();
      for (size_t part = 0; part <= run.slots.size(); ++part) {
        for (const net::Slice* slice : slices) {
          file.tensors.push_back({TensorName(slice->name, part == 0 ? "" : run.slots[part - 1]), slice->shape,
                                  slice->row_begin, slice->row_end, 0});
          const auto values = server.state.subspan(part * arena + static_cast<size_t>(slice->offset),
                                                   static_cast<size_t>(slice->elements()));
          contents.push_back([values](Piece write) { return write(BytesOf(values)); });
        }
      }
    }
  }
  CAIRN_RETURN_IF_ERROR(AddTables(servers, plan));
  if (plan.state.files.size() > kMaxFiles) {
    return absl::InvalidArgumentError(absl::StrCat(plan.state.files.size(), " files, at most ", kMaxFiles));
  }
  for (size_t i = 0; i < plan.state.files.size(); ++i) {
    // torch.distributed.checkpoint's names: numbered from 1, with one part per model.
    plan.state.files[i].name = absl::StrFormat("shard-%05d-model-00001-of-00001.safetensors", i + 1);
  }
  CAIRN_ASSIGN_OR_RETURN(const auto tensors, MergeTensors(plan.state));
  for (const TensorInfo& tensor : tensors) CAIRN_RETURN_IF_ERROR(CheckRows(tensor));
  return plan;
}

// The metadata by which torch.distributed.checkpoint reads row-split tensors: for each tensor, the index in
// the whole tensor at which the rows in this file begin.
std::map<std::string, std::string> ShardingInfo(const FileEntry& file) {
  nlohmann::json info = nlohmann::json::object();
  for (const TensorEntry& tensor : file.tensors) {
    std::vector<int64_t> offsets(static_cast<size_t>(tensor.shape.rank()), 0);
    if (!offsets.empty()) offsets[0] = tensor.row_begin;
    info[tensor.name] = {{"saved_offsets", offsets}};
  }
  // SafetensorsHead() reports names that are not UTF-8.
  using ErrorHandler = nlohmann::json::error_handler_t;
  return {{"DCP_SHARDING_INFO", info.dump(-1, ' ', false, ErrorHandler::replace)},
          {"DCP_VERSION", "1.0"},
          {"format", "pt"}};
}

// Writes the file and fills in its sizes and checksums in `file`.
absl::Status WriteTensors(const std::string& directory, absl::Span<const Contents> contents,
                          FileEntry& file) {
  std::vector<NamedTensor> tensors;
  for (const TensorEntry& tensor : file.tensors) {
    tensors.push_back({.name = tensor.name, .shape = tensor.rows_shape(), .type = tensor.type});
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string head, SafetensorsHead(tensors, ShardingInfo(file)));
  CAIRN_ASSIGN_OR_RETURN(OutputFile output, OutputFile::Create(absl::StrCat(directory, "/", file.name)));
  CAIRN_RETURN_IF_ERROR(output.Write(head, &file.head_crc32));
  for (size_t i = 0; i < contents.size(); ++i) {
    uint32_t* const crc32 = &file.tensors[i].crc32;
    CAIRN_RETURN_IF_ERROR(contents[i]([&](absl::string_view bytes) { return output.Write(bytes, crc32); }));
  }
  file.head_bytes = head.size();
  file.bytes = output.written();
  return output.Sync();
}

absl::Status WriteText(const std::string& path, absl::string_view text) {
  CAIRN_ASSIGN_OR_RETURN(OutputFile output, OutputFile::Create(path));
  CAIRN_RETURN_IF_ERROR(output.Write(text));
  return output.Sync();
}

absl::Status WriteFiles(const std::string& directory, absl::string_view model_json, Plan& plan) {
  for (size_t i = 0; i < plan.state.files.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(WriteTensors(directory, plan.contents[i], plan.state.files[i]));
  }
  CAIRN_RETURN_IF_ERROR(WriteText(absl::StrCat(directory, "/", kModelFile), model_json));
  plan.state.model_bytes = model_json.size();
  plan.state.model_crc32 = Crc32(0, model_json);
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ToText(plan.state));
  return WriteText(absl::StrCat(directory, "/", kStateFile), text);
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const std::string& train_dir, const RunState& run,
                                            absl::string_view model_json,
                                            absl::Span<const ServerState> servers,
                                            const WriteOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(Plan plan, MakePlan(run, servers));
  CAIRN_ASSIGN_OR_RETURN(const std::string temporary, BeginCheckpoint(train_dir, run.global_step));
  if (absl::Status status = WriteFiles(temporary, model_json, plan); !status.ok()) {
    std::error_code ignored;  // leftovers are removed before the next checkpoint is written
    std::filesystem::remove_all(temporary, ignored);
    return status;
  }
  CAIRN_ASSIGN_OR_RETURN(std::string path, PublishCheckpoint(train_dir, run.global_step, temporary));
  CAIRN_RETURN_IF_ERROR(PruneCheckpoints(train_dir, options.max_to_keep, run.global_step));
  return path;
}

}  // namespace cairn::worker
