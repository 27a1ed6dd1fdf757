#include "worker/checkpoint/tensors.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn::worker {
namespace {

constexpr absl::string_view kTable = "table/";

// The sort key of the tensor `name`: {slot + 1, variable}, or {0, variable} for the values of the variable;
// {slots.size() + 1, name} for a tensor of a table.
std::pair<size_t, std::string> KeyOf(absl::string_view name, const RunState& run) {
  const std::vector<std::string>& slots = run.slots;
  if (IsOfTable(name, run)) return {slots.size() + 1, std::string(name)};
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    absl::string_view variable = name;
    if (absl::ConsumePrefix(&variable, TensorName("", slots[slot]))) return {slot + 1, std::string(variable)};
  }
  return {0, std::string(name)};
}

// Completes the description of a tensor of a table, "table/<table>/slot/<slot>".
void SplitSlot(const RunState& run, TensorInfo& tensor) {
  tensor.of_table = true;
  for (const TableRun& table : *run.tables) {
    for (const std::string& slot : table.slots) {
      if (tensor.name != SlotName(table.name, slot)) continue;
      tensor.variable = RowsName(table.name);
      tensor.slot = slot;
    }
  }
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

}  // namespace

bool IsOfTable(absl::string_view name, const RunState& run) {
  return run.tables.has_value() && absl::c_any_of(*run.tables, [&](const TableRun& table) {
           return name == IdsName(table.name) || name == RowsName(table.name) ||
                  absl::c_any_of(table.slots,
                                 [&](const std::string& slot) { return name == SlotName(table.name, slot); });
         });
}

std::string IdsName(absl::string_view table) {
  return absl::StrCat(kTable, table, "/ids");
}

std::string RowsName(absl::string_view table) {
  return absl::StrCat(kTable, table, "/rows");
}

std::string SlotName(absl::string_view table, absl::string_view slot) {
  return absl::StrCat(kTable, table, "/slot/", slot);
}

std::string TensorName(absl::string_view variable, absl::string_view slot) {
  return slot.empty() ? std::string(variable) : absl::StrCat("slot/", slot, "/", variable);
}

absl::StatusOr<std::vector<TensorInfo>> MergeTensors(const StateFile& state) {
  std::map<std::pair<size_t, std::string>, TensorInfo> merged;
  for (size_t file = 0; file < state.files.size(); ++file) {
    const std::vector<TensorEntry>& entries = state.files[file].tensors;
    for (size_t i = 0; i < entries.size(); ++i) {
      const TensorEntry& entry = entries[i];
      auto key = KeyOf(entry.name, state.run);
      const bool of_slot = key.first > 0 && key.first <= state.run.slots.size();
      const std::string slot = of_slot ? state.run.slots[key.first - 1] : "";
      const auto [found, added] =
          merged.try_emplace(key, TensorInfo{entry.name, key.second, slot, entry.shape, {}, entry.type});
      TensorInfo& tensor = found->second;
      if (added && key.first > state.run.slots.size()) SplitSlot(state.run, tensor);
      if (tensor.shape != entry.shape) {
        return absl::FailedPreconditionError(
            absl::StrCat("tensor '", entry.name, "' has shape ", entry.shape.ToString(), " in ",
                         state.files[file].name, " and ", tensor.shape.ToString(), " elsewhere"));
      }
      if (tensor.type != entry.type) {
        return absl::FailedPreconditionError(absl::StrCat("tensor '", entry.name, "' is ", NameOf(entry.type),
                                                          " in ", state.files[file].name, " and ",
                                                          NameOf(tensor.type), " elsewhere"));
      }
      tensor.rows.push_back({entry.row_begin, entry.row_end, file, i, 0});
    }
  }
  std::vector<TensorInfo> tensors;
  for (auto& [key, tensor] : merged) {
    std::stable_sort(tensor.rows.begin(), tensor.rows.end(), [](const TensorRows& a, const TensorRows& b) {
      return std::pair(a.row_begin, a.row_end) < std::pair(b.row_begin, b.row_end);
    });
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<std::string> HeadOf(const FileEntry& file) {
  std::vector<NamedTensor> tensors;
  for (const TensorEntry& tensor : file.tensors) {
    tensors.push_back({.name = tensor.name, .shape = tensor.rows_shape(), .type = tensor.type});
  }
  return SafetensorsHead(tensors, ShardingInfo(file));
}

absl::Status CheckRows(const TensorInfo& tensor) {
  const int64_t rows = tensor.shape.rank() == 0 ? 1 : tensor.shape.dim(0);
  const auto fault = [&](const auto&... what) {
    return absl::FailedPreconditionError(
        absl::StrCat("tensor '", tensor.name, "' of shape ", tensor.shape.ToString(), ": rows ", what...));
  };
  int64_t next = 0;
  for (const TensorRows& part : tensor.rows) {
    if (part.row_begin > next) return fault(next, " to ", part.row_begin, " are missing");
    if (part.row_begin < next)
      return fault(part.row_begin, " to ", std::min(next, part.row_end), " are there twice");
    next = part.row_end;
  }
  if (next != rows) return fault(next, " to ", rows, " are missing");
  return absl::OkStatus();
}

}  // namespace cairn::worker
