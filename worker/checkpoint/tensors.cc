#include "worker/checkpoint/tensors.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn::worker {
namespace {

// The sort key of the tensor `name`: {slot + 1, variable}, or {0, variable} for the values of the variable.
std::pair<size_t, std::string> KeyOf(absl::string_view name, absl::Span<const std::string> slots) {
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    absl::string_view variable = name;
    if (absl::ConsumePrefix(&variable, TensorName("", slots[slot]))) return {slot + 1, std::string(variable)};
  }
  return {0, std::string(name)};
}

}  // namespace

std::string TensorName(absl::string_view variable, absl::string_view slot) {
  return slot.empty() ? std::string(variable) : absl::StrCat("slot/", slot, "/", variable);
}

absl::StatusOr<std::vector<TensorInfo>> MergeTensors(const StateFile& state) {
  std::map<std::pair<size_t, std::string>, TensorInfo> merged;
  for (size_t file = 0; file < state.files.size(); ++file) {
    const std::vector<TensorEntry>& entries = state.files[file].tensors;
    for (size_t i = 0; i < entries.size(); ++i) {
      const TensorEntry& entry = entries[i];
      auto key = KeyOf(entry.name, state.run.slots);
      const std::string slot = key.first == 0 ? "" : state.run.slots[key.first - 1];
      TensorInfo& tensor =
          merged.try_emplace(key, TensorInfo{entry.name, key.second, slot, entry.shape, {}}).first->second;
      if (tensor.shape != entry.shape) {
        return absl::FailedPreconditionError(
            absl::StrCat("tensor '", entry.name, "' has shape ", entry.shape.ToString(), " in ",
                         state.files[file].name, " and ", tensor.shape.ToString(), " elsewhere"));
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
