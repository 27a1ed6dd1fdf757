#include "worker/export/table_files.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/core/json.h"
#include "common/core/shape.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "embedding/initializers/row_initializer.h"
#include "worker/checkpoint/file_io.h"
#include "worker/checkpoint/tables.h"
#include "worker/checkpoint/tensors.h"
#include "worker/embedding/trained_tables.h"
#include "worker/tables/table_run.h"

namespace cairn::worker {
namespace {

constexpr char kDescription[] = "table/";
constexpr int64_t kBatchFloats = int64_t{1} << 18;  // 1 MiB

// Adds the tensors of a table with so many rows, and its description. Their values are not set.
void AddTensors(const TableRun& run, int64_t rows, std::vector<NamedTensor>& tensors,
                std::map<std::string, std::string>& metadata) {
  if (run.vocabulary_size > 0) {
    tensors.push_back({.name = run.name, .shape = Shape({run.vocabulary_size, run.dim})});
    return;
  }
  tensors.push_back({.name = IdsName(run.name), .shape = Shape({rows}), .type = TensorType::kI64});
  tensors.push_back({.name = RowsName(run.name), .shape = Shape({rows, run.dim})});
  metadata[DescriptionName(run.name)] = DescriptionOf(run);
}

// A file of tensors that receives the rows of its tables.
class TablesFile final : public RowSink {
 public:
  // The arguments must outlive the object.
  TablesFile(std::string path, const std::vector<NamedTensor>& tensors,
             const std::map<std::string, std::string>& metadata)
      : path_(std::move(path)), variables_(tensors), metadata_(metadata) {}

  absl::Status Begin(absl::Span<const TableRun> tables, absl::Span<const int64_t> rows) override {
    std::vector<NamedTensor> tensors = variables_;
    std::map<std::string, std::string> metadata = metadata_;
    for (size_t t = 0; t < tables.size(); ++t) AddTensors(tables[t], rows[t], tensors, metadata);
    CAIRN_ASSIGN_OR_RETURN(const std::string head, SafetensorsHead(tensors, metadata));
    CAIRN_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path_));
    file_.emplace(std::move(file));
    CAIRN_RETURN_IF_ERROR(file_->Write(head));
    for (const NamedTensor& variable : variables_)
      CAIRN_RETURN_IF_ERROR(file_->Write(BytesOf(variable.values)));
    uint64_t offset = file_->written();
    tables_.clear();
    for (size_t t = 0; t < tables.size(); ++t) {
      Table& table = tables_.emplace_back(Table{.run = tables[t]});
      const bool dynamic = table.run.vocabulary_size == 0;
      table.ids = offset;
      table.rows = offset + (dynamic ? static_cast<uint64_t>(rows[t]) * sizeof(int64_t) : 0);
      const int64_t all = dynamic ? rows[t] : table.run.vocabulary_size;
      offset = table.rows + static_cast<uint64_t>(all * table.run.dim) * sizeof(float);
      if (all > rows[t]) CAIRN_RETURN_IF_ERROR(WriteFirstValues(table));
    }
    return absl::OkStatus();
  }

  absl::Status Add(size_t t, int64_t first, absl::Span<const int64_t> ids,
                   absl::Span<const float> values) override {
    const Table& table = tables_[t];
    if (table.run.vocabulary_size == 0) {
      CAIRN_RETURN_IF_ERROR(
          file_->WriteAt(table.ids + static_cast<uint64_t>(first) * sizeof(int64_t),
                         {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)}));
      return WriteRows(table, first, values);
    }
    const auto dim = static_cast<size_t>(table.run.dim);
    for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
      for (end = begin + 1; end < ids.size() && ids[end] == ids[end - 1] + 1;) ++end;
      CAIRN_RETURN_IF_ERROR(WriteRows(table, ids[begin], values.subspan(begin * dim, (end - begin) * dim)));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() { return file_->Sync(); }

 private:
  struct Table {
    TableRun run;
    uint64_t ids = 0, rows = 0;  // where they begin, in bytes
  };
  absl::Status WriteRows(const Table& table, int64_t first, absl::Span<const float> values) {
    return file_->WriteAt(table.rows + static_cast<uint64_t>(first * table.run.dim) * sizeof(float),
                          BytesOf(values));
  }
  // The rows of a table of fixed size as they begin, for those that training has not made.
  absl::Status WriteFirstValues(const Table& table) {
    CAIRN_ASSIGN_OR_RETURN(const embedding::RowDistribution distribution, DistributionOf(table.run));
    const embedding::RowInitializer initializer(distribution, table.run.seed, table.run.name);
    const auto dim = static_cast<size_t>(table.run.dim);
    std::vector<float> batch;
    for (int64_t first = 0; first < table.run.vocabulary_size;) {
      const int64_t count =
          std::min(std::max<int64_t>(1, kBatchFloats / table.run.dim), table.run.vocabulary_size - first);
      batch.resize(static_cast<size_t>(count) * dim);
      for (int64_t i = 0; i < count; ++i) {
        initializer.Fill(first + i, absl::MakeSpan(batch).subspan(static_cast<size_t>(i) * dim, dim));
      }
      CAIRN_RETURN_IF_ERROR(WriteRows(table, first, batch));
      first += count;
    }
    return absl::OkStatus();
  }

  const std::string path_;
  const std::vector<NamedTensor>& variables_;
  const std::map<std::string, std::string>& metadata_;
  std::optional<OutputFile> file_;
  std::vector<Table> tables_;
};

// Writes to a device, a pipe or a socket, in the order of the bytes.
absl::Status WriteInOrder(const std::string& path, std::vector<NamedTensor> tensors,
                          std::map<std::string, std::string> metadata, const TrainedTables& tables) {
  std::vector<std::vector<float>> whole;
  whole.reserve(tables.tables.size());
  for (const TrainedTable& table : tables.tables) {
    const TableRun& run = table.description();
    AddTensors(run, table.num_rows(), tensors, metadata);
    if (table.dynamic()) {
      tensors[tensors.size() - 2].values = {reinterpret_cast<const float*>(table.ids().data()),
                                            table.ids().size() * sizeof(int64_t) / sizeof(float)};
      tensors.back().values = table.rows();
      continue;
    }
    std::vector<float>& rows = whole.emplace_back(FloatVector(run.vocabulary_size * run.dim, run.name));
    table.ReadAll(absl::MakeSpan(rows));
    tensors.back().values = rows;
  }
  return WriteSafetensors(path, tensors, metadata);
}

}  // namespace

std::string DescriptionName(const std::string& table) {
  return absl::StrCat(kDescription, table);
}

std::string TableOfDescription(const std::string& key) {
  absl::string_view table = key;
  return absl::ConsumePrefix(&table, kDescription) ? std::string(table) : "";
}

std::string DescriptionOf(const TableRun& table) {
  nlohmann::json description = {{"distribution", table.distribution},
                                {"center", table.center},
                                {"spread", table.spread},
                                {"seed", table.seed}};
  if (table.vocabulary_size > 0) description["rows"] = table.vocabulary_size;
  return description.dump();
}

absl::Status WriteWithTables(const std::string& path, const std::vector<NamedTensor>& tensors,
                             const std::map<std::string, std::string>& metadata, const TableRows& tables) {
  std::error_code error;
  if (std::filesystem::is_other(path, error)) {
    if (tables.in_memory != nullptr) return WriteInOrder(path, tensors, metadata, *tables.in_memory);
    CAIRN_ASSIGN_OR_RETURN(const TrainedTables collected,
                           Collect(tables, [](int64_t) { return absl::OkStatus(); }));
    return WriteInOrder(path, tensors, metadata, collected);
  }
  return WriteByRename(path, [&](const std::string& temporary) -> absl::Status {
    TablesFile file(temporary, tensors, metadata);
    CAIRN_RETURN_IF_ERROR(tables.stream(file));
    return file.Sync();
  });
}

absl::Status AddRows(const Checkpoint& checkpoint, const TableRun& table, std::vector<NamedTensor>& tensors,
                     std::map<std::string, std::string>& metadata) {
  CAIRN_ASSIGN_OR_RETURN(const RowReader reader, RowReader::Open(checkpoint, table));
  using Write = absl::FunctionRef<absl::Status(absl::string_view piece)>;
  const auto visit = [&checkpoint, table](auto pass) { return VisitRows(checkpoint, table, pass); };
  tensors.push_back({.name = IdsName(table.name),
                     .shape = Shape({reader.rows()}),
                     .type = TensorType::kI64,
                     .contents = [visit](Write write) {
                       return visit([&](absl::Span<const int64_t> ids, absl::Span<const float>) {
                         return write(
                             {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t)});
                       });
                     }});
  tensors.push_back({.name = RowsName(table.name),
                     .shape = Shape({reader.rows(), table.dim}),
                     .contents = [visit](Write write) {
                       return visit([&](absl::Span<const int64_t>, absl::Span<const float> values) {
                         return write(BytesOf(values));
                       });
                     }});
  metadata[DescriptionName(table.name)] = DescriptionOf(table);
  return absl::OkStatus();
}

absl::StatusOr<TableRun> ParseDescription(const std::string& text, const std::string& source) {
  CAIRN_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(text, source));
  const auto has = [&](const char* key, auto is) { return json.contains(key) && (json[key].*is)(); };
  using Json = nlohmann::json;
  if (!json.is_object() || !has("distribution", &Json::is_string) || !has("center", &Json::is_number) ||
      !has("spread", &Json::is_number) || !has("seed", &Json::is_number_unsigned) ||
      (json.contains("rows") && !has("rows", &Json::is_number_unsigned))) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": not a description of first values: ", text));
  }
  TableRun run;
  run.distribution = json["distribution"].get<std::string>();
  run.center = json["center"].get<double>();
  run.spread = json["spread"].get<double>();
  run.seed = json["seed"].get<uint64_t>();
  if (json.contains("rows")) run.vocabulary_size = json["rows"].get<int64_t>();
  return run;
}

}  // namespace cairn::worker
