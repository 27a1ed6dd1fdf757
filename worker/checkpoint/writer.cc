#include "worker/checkpoint/writer.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/state_file.h"
#include "worker/checkpoint/tensors.h"
#include "worker/checkpoint/train_dir.h"

namespace cairn::worker {
namespace {

// PyTorch's file names have five digits. No cluster has that many servers.
constexpr size_t kMaxFiles = 99999;

// The contents of each file, determined before anything is written.
struct Plan {
  StateFile state;
  std::vector<std::vector<absl::Span<const float>>> values;  // [file][tensor]
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
      auto& values = plan.values.emplace_back();
      for (size_t part = 0; part <= run.slots.size(); ++part) {
        for (const net::Slice* slice : slices) {
          file.tensors.push_back({TensorName(slice->name, part == 0 ? "" : run.slots[part - 1]), slice->shape,
                                  slice->row_begin, slice->row_end, 0});
          values.push_back(server.state.subspan(part * arena + static_cast<size_t>(slice->offset),
                                                static_cast<size_t>(slice->elements())));
        }
      }
    }
  }
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
absl::Status WriteTensors(const std::string& directory, absl::Span<const absl::Span<const float>> values,
                          FileEntry& file) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    tensors.push_back({file.tensors[i].name, file.tensors[i].rows_shape(), values[i]});
  }
  CAIRN_ASSIGN_OR_RETURN(const std::string head, SafetensorsHead(tensors, ShardingInfo(file)));
  CAIRN_ASSIGN_OR_RETURN(OutputFile output, OutputFile::Create(absl::StrCat(directory, "/", file.name)));
  CAIRN_RETURN_IF_ERROR(output.Write(head, &file.head_crc32));
  for (size_t i = 0; i < tensors.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(output.Write(BytesOf(tensors[i].values), &file.tensors[i].crc32));
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
    CAIRN_RETURN_IF_ERROR(WriteTensors(directory, plan.values[i], plan.state.files[i]));
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
