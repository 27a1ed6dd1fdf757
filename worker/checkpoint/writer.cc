#include "worker/checkpoint/writer.h"

#include <algorithm>
#include <cstdio>
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

absl::Status CheckTable(const TableRun& table, absl::Span<const TableRun> tables) {
  const auto same_name = [&](const TableRun& other) { return other.name == table.name; };
  if (table.name.empty() || absl::c_count_if(tables, same_name) > 1) {
    return absl::InvalidArgumentError(absl::StrCat("the name of table '", table.name, "' is empty or taken"));
  }
  return CheckSlots(table.slots);
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

// `tables`: the complete files of tables. Their final names follow those of the variables' files.
absl::StatusOr<Plan> MakePlan(const RunState& run, absl::Span<const ServerState> servers,
                              std::vector<FileEntry> tables) {
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
  for (FileEntry& file : tables) plan.state.files.push_back(std::move(file));
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

// Writes the file and fills in its sizes and checksums in `file`.
absl::Status WriteTensors(const std::string& directory, absl::Span<const Contents> contents,
                          FileEntry& file) {
  CAIRN_ASSIGN_OR_RETURN(const std::string head, HeadOf(file));
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

// Writes the files of the plan's variables, whose contents it has, and then those that describe all files.
absl::Status WriteFiles(const std::string& directory, absl::string_view model_json, Plan& plan) {
  for (size_t i = 0; i < plan.contents.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(WriteTensors(directory, plan.contents[i], plan.state.files[i]));
  }
  CAIRN_RETURN_IF_ERROR(WriteText(absl::StrCat(directory, "/", kModelFile), model_json));
  plan.state.model_bytes = model_json.size();
  plan.state.model_crc32 = Crc32(0, model_json);
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ToText(plan.state));
  return WriteText(absl::StrCat(directory, "/", kStateFile), text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Begin(const std::string& train_dir,
                                                                          int64_t global_step) {
  if (global_step < 0) return absl::InvalidArgumentError(absl::StrCat("global_step is ", global_step));
  CAIRN_ASSIGN_OR_RETURN(std::string temporary, BeginCheckpoint(train_dir, global_step));
  return std::unique_ptr<CheckpointWriter>(
      new CheckpointWriter(train_dir, global_step, std::move(temporary)));
}

CheckpointWriter::~CheckpointWriter() {
  if (temporary_.empty()) return;
  std::error_code ignored;  // leftovers are removed before the next checkpoint is written
  std::filesystem::remove_all(temporary_, ignored);
}

std::string CheckpointWriter::TablesPath(size_t server) const {
  return absl::StrCat(temporary_, "/tables-", server, ".safetensors");
}

absl::Status CheckpointWriter::BeginTables(absl::Span<const TableRun> tables,
                                           absl::Span<const std::vector<int64_t>> sizes) {
  std::vector<std::vector<TableFile::Part>> parts(sizes.size());  // [server][table]
  for (size_t t = 0; t < tables.size(); ++t) {
    CAIRN_RETURN_IF_ERROR(CheckTable(tables[t], tables));
    const int64_t record = embedding::kIdFloats + tables[t].row_floats();
    std::vector<int64_t> rows;  // [server]
    for (size_t server = 0; server < sizes.size(); ++server) {
      const int64_t floats = t < sizes[server].size() ? sizes[server][t] - embedding::kStateHeadFloats : -1;
      if (floats < 0 || floats % record != 0) {
        return absl::InvalidArgumentError(absl::StrCat("ps/", server, ": the state of table '",
                                                       tables[t].name, "' is not one of rows of ",
                                                       tables[t].row_floats(), " floats"));
      }
      rows.push_back(floats / record);
    }
    RowRange range = {.total = std::accumulate(rows.begin(), rows.end(), int64_t{0})};
    CAIRN_RETURN_IF_ERROR(Annotate(Shape::FromUntrusted({range.total, tables[t].row_floats()}).status(),
                                   absl::StrCat("table '", tables[t].name, "'")));
    for (size_t server = 0; server < sizes.size(); ++server) {
      range.begin = std::exchange(range.end, range.end + rows[server]);
      parts[server].push_back({tables[t], range});
    }
  }
  for (size_t server = 0; server < parts.size(); ++server) {
    CAIRN_ASSIGN_OR_RETURN(TableFile file, TableFile::Create(TablesPath(server), parts[server], server == 0));
    tables_.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::AddTable(size_t server, size_t table, absl::Span<const float> piece) {
  return Annotate(tables_[server].Add(table, piece), absl::StrCat("ps/", server));
}

absl::StatusOr<std::string> CheckpointWriter::Finish(RunState run, absl::string_view model_json,
                                                     absl::Span<const ServerState> servers,
                                                     const WriteOptions& options) {
  run.global_step = global_step_;
  if (run.tables.has_value() && tables_.empty()) {
    return absl::InvalidArgumentError("the states of the run's tables are missing");
  }
  for (size_t t = 0; run.tables.has_value() && t < run.tables->size(); ++t) {
    (*run.tables)[t].learning_rate = tables_.front().learning_rate(t);
  }
  std::vector<FileEntry> files;
  std::vector<std::string> paths;
  for (size_t server = 0; server < tables_.size(); ++server) {
    auto file = tables_[server].Finish();
    if (!file.ok()) return Annotate(file.status(), absl::StrCat("ps/", server));
    if (file->tensors.empty()) continue;
    files.push_back(*std::move(file));
    paths.push_back(TablesPath(server));
  }
  CAIRN_ASSIGN_OR_RETURN(Plan plan, MakePlan(run, servers, std::move(files)));
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string path = absl::StrCat(temporary_, "/", plan.state.files[plan.contents.size() + i].name);
    if (std::rename(paths[i].c_str(), path.c_str()) != 0) return ErrnoStatus("cannot rename to", path);
  }
  CAIRN_RETURN_IF_ERROR(WriteFiles(temporary_, model_json, plan));
  CAIRN_ASSIGN_OR_RETURN(std::string path, PublishCheckpoint(train_dir_, global_step_, temporary_));
  temporary_.clear();
  CAIRN_RETURN_IF_ERROR(PruneCheckpoints(train_dir_, options.max_to_keep, global_step_));
  return path;
}

absl::StatusOr<std::string> WriteCheckpoint(const std::string& train_dir, const RunState& run,
                                            absl::string_view model_json,
                                            absl::Span<const ServerState> servers,
                                            const WriteOptions& options) {
  CAIRN_RETURN_IF_ERROR(MakePlan(run, servers, {}).status());  // before anything is written
  CAIRN_ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::Begin(train_dir, run.global_step));
  return writer->Finish(run, model_json, servers, options);
}

}  // namespace cairn::worker
