#include "worker/export/table_files.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/json.h"
#include "common/core/shape.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/checkpoint/tensors.h"

namespace cairn::worker {

std::string DescriptionName(const std::string& table) {
  return absl::StrCat("table/", table);
}

std::vector<std::vector<float>> AddTensors(const TrainedTables& tables, std::vector<NamedTensor>& tensors,
                                           std::map<std::string, std::string>& metadata) {
  std::vector<std::vector<float>> whole;
  whole.reserve(tables.tables.size());
  for (const TrainedTable& table : tables.tables) {
    const TableRun& run = table.description();
    if (!table.dynamic()) {
      std::vector<float>& rows = whole.emplace_back(FloatVector(run.vocabulary_size * run.dim, run.name));
      table.ReadAll(absl::MakeSpan(rows));
      tensors.push_back({run.name, Shape({run.vocabulary_size, run.dim}), rows});
      continue;
    }
    const auto rows = static_cast<int64_t>(table.ids().size());
    const absl::Span<const float> ids(reinterpret_cast<const float*>(table.ids().data()),
                                      table.ids().size() * sizeof(int64_t) / sizeof(float));
    tensors.push_back({IdsName(run.name), Shape({rows}), ids, TensorType::kI64});
    tensors.push_back({RowsName(run.name), Shape({rows, run.dim}), table.rows()});
    metadata[DescriptionName(run.name)] = nlohmann::json{
        {"distribution", run.distribution},
        {"center", run.center},
        {"spread", run.spread},
        {"seed", run.seed}}.dump();
  }
  return whole;
}

absl::StatusOr<TableRun> ParseDescription(const std::string& text, const std::string& source) {
  CAIRN_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, source));
  const auto has = [&](const char* key, auto is) { return json.contains(key) && (json[key].*is)(); };
  using Json = nlohmann::json;
  if (!json.is_object() || !has("distribution", &Json::is_string) || !has("center", &Json::is_number) ||
      !has("spread", &Json::is_number) || !has("seed", &Json::is_number_unsigned)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": not a description of first values: ", text));
  }
  TableRun run;
  run.distribution = json["distribution"].get<std::string>();
  run.center = json["center"].get<double>();
  run.spread = json["spread"].get<double>();
  run.seed = json["seed"].get<uint64_t>();
  return run;
}

}  // namespace cairn::worker
