#include "worker/export/weights.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/files.h"
#include "common/core/log.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/tensors.h"
#include "worker/embedding/table_plan.h"
#include "worker/embedding/trained_tables.h"
#include "worker/export/keras_weights.h"
#include "worker/export/model_source.h"
#include "worker/export/table_files.h"
#include "worker/export/weights_file.h"
#include "worker/model/finite.h"
#include "worker/options/job.h"

namespace cairn::worker {
namespace {

// The newest undamaged checkpoint of a train_dir, or the checkpoint whose directory is given.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path) {
  if (FileExists(absl::StrCat(path, "/", kStateFile))) return Checkpoint::Open(path);
  return OpenNewest(path, [](const absl::Status& skipped) {
    LogWarning("skipped a damaged checkpoint: ", skipped.message());
  });
}

// The purpose of the memory, for the error when there is too little.
constexpr char kVariables[] = "the model's variables";

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Reads a weights file, without checking that its values are finite.
absl::StatusOr<std::vector<float>> ReadWeightsFile(const std::string& path, const nn::Model& model) {
  if (IsKerasWeightsFile(path)) return LoadKerasWeights(path, model);
  CAIRN_ASSIGN_OR_RETURN(const WeightArrays arrays, ReadWeightArrays(path));
  return MatchWeights(arrays, model, path);
}

// The table of a checkpoint that has the values of a variable; null: the variable is none.
const TableRun* TableOf(const Checkpoint& checkpoint, absl::string_view variable) {
  if (!checkpoint.run().tables.has_value()) return nullptr;
  for (const TableRun& table : *checkpoint.run().tables) {
    if (table.name == variable) return &table;
  }
  return nullptr;
}

}  // namespace

absl::Status FillParameters(const Checkpoint& checkpoint, const nn::Model& model, absl::Span<float> into) {
  std::vector<net::VariableInfo> variables;
  for (const net::VariableInfo& variable : VariablesOf(model)) {
    const TableRun* const table = TableOf(checkpoint, variable.name);
    if (table == nullptr) {
      variables.push_back(variable);
      continue;
    }
    const Shape shape({table->vocabulary_size, table->dim});
    if (table->vocabulary_size > 0 && variable.shape != shape) {
      return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), ": table '", table->name,
                                                        "' has shape ", shape.ToString(), " in it and ",
                                                        variable.shape.ToString(), " here"));
    }
    if (table->vocabulary_size == 0) {
      return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), ": table '", table->name,
                                                        "' takes any id: no variable has a row for each"));
    }
    CAIRN_ASSIGN_OR_RETURN(const TrainedTable trained, LoadTrainedTable(checkpoint, *table));
    trained.ReadAll(into.subspan(static_cast<size_t>(variable.offset),
                                 static_cast<size_t>(variable.shape.num_elements())));
  }
  return checkpoint.Load(variables, {}, {into});
}

namespace {

// FAILED_PRECONDITION if integers are left that are not of a table.
absl::Status CheckNoIds(const WeightsFile& file, const std::string& path) {
  if (file.ids.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, ": tensor '", file.ids.begin()->first,
                                                    "' is I64, and weights of variables are F32"));
}

}  // namespace

absl::StatusOr<WeightArrays> ReadWeightArrays(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(WeightsFile file, ReadFileOfWeights(path));
  CAIRN_RETURN_IF_ERROR(CheckNoIds(file, path));
  return std::move(file.arrays);
}

absl::StatusOr<std::vector<float>> MatchWeights(const WeightArrays& arrays, const nn::Model& model,
                                                absl::string_view source) {
  std::vector<float> parameters = FloatVector(model.num_parameters(), kVariables);
  std::set<std::string> wanted;
  for (const nn::ModelVariable& variable : model.variables()) {
    wanted.insert(variable.name);
    const auto found = arrays.find(variable.name);
    if (found == arrays.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": has no '", variable.name, "'; it has ",
          absl::StrJoin(arrays, ", ",
                        [](std::string* out, const auto& array) { absl::StrAppend(out, array.first); })));
    }
    if (found->second.shape != variable.shape) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": '", variable.name, "' has shape ",
                                                     found->second.shape.ToString(), ", in the model ",
                                                     variable.shape.ToString()));
    }
    std::copy(found->second.values.begin(), found->second.values.end(), parameters.begin() + variable.offset);
  }
  for (const auto& [name, array] : arrays) {
    if (wanted.count(name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(source, ": '", name, "' is not in the model"));
    }
  }
  return parameters;
}

absl::StatusOr<std::vector<float>> LoadWeights(const std::string& path, const nn::Model& model) {
  if (IsDirectory(path)) {
    CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
    return LoadWeights(checkpoint, model);
  }
  return CatchOutOfMemory(path, [&]() -> absl::StatusOr<std::vector<float>> {
    CAIRN_ASSIGN_OR_RETURN(std::vector<float> parameters, ReadWeightsFile(path, model));
    CAIRN_RETURN_IF_ERROR(CheckFinite(model, parameters, path));
    return parameters;
  });
}

absl::StatusOr<std::vector<float>> LoadWeights(const Checkpoint& checkpoint, const nn::Model& model) {
  return CatchOutOfMemory(checkpoint.directory(), [&]() -> absl::StatusOr<std::vector<float>> {
    std::vector<float> parameters = FloatVector(model.num_parameters(), kVariables);
    CAIRN_RETURN_IF_ERROR(FillParameters(checkpoint, model, absl::MakeSpan(parameters)));
    CAIRN_RETURN_IF_ERROR(CheckFinite(model, parameters, checkpoint.directory()));
    return parameters;
  });
}

namespace {

// The layers of keras_rs, and those of `dynamic`, the names of tables that take any id.
absl::StatusOr<std::optional<TablePlan>> PlanOf(const nn::Model& model,
                                                const std::set<std::string>& dynamic) {
  std::vector<std::string> layers = nn::LayersOfRowTables(model), dynamic_layers;
  for (const std::string& layer : nn::EmbeddingLayers(model)) {
    if (dynamic.count(TableNameOf(layer)) == 0) continue;
    dynamic_layers.push_back(layer);
    layers.push_back(layer);
  }
  if (layers.empty()) return std::nullopt;
  return PlanLayers(model, layers, dynamic_layers);
}

// Removes the array `name` of this shape from `arrays`, and returns its values.
absl::StatusOr<std::vector<float>> Take(WeightArrays& arrays, const std::string& name, const Shape& shape,
                                        const std::string& source) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) return absl::InvalidArgumentError(absl::StrCat(source, ": has no '", name, "'"));
  if (found->second.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": '", name, "' has shape ",
                                                   found->second.shape.ToString(), ", in the model ",
                                                   shape.ToString()));
  }
  std::vector<float> values = std::move(found->second.values);
  arrays.erase(found);
  return values;
}

// Takes a table that WriteModelFile() has written.
absl::StatusOr<TrainedTable> TakeTable(const v1::Table& table, const std::string& source, WeightsFile& file) {
  const int64_t dim = table.row_elements();
  int64_t rows = table.embedding().vocabulary_size();
  const auto any_id = file.ids.find(IdsName(table.name()));
  if (rows > 0 && any_id != file.ids.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(source, ": table '", table.name(), "' takes any id in it, and has ", rows, " ids here"));
  }
  const auto variable = file.arrays.find(table.name());
  if (rows == 0 && any_id == file.ids.end() && variable != file.arrays.end() &&
      variable->second.shape.rank() == 2)
    rows = variable->second.shape.dim(0);
  if (rows > 0) {
    CAIRN_ASSIGN_OR_RETURN(auto values, Take(file.arrays, table.name(), Shape({rows, dim}), source));
    return TrainedTable::OfVariable(table.name(), dim, std::move(values));
  }
  const auto description = file.metadata.find(DescriptionName(table.name()));
  if (description == file.metadata.end()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": does not describe the first values of table '",
                                                   table.name(), "', as a file of cairn export does"));
  }
  CAIRN_ASSIGN_OR_RETURN(TableRun run, ParseDescription(description->second, source));
  run.name = table.name();
  run.dim = dim;
  auto taken = file.ids.extract(IdsName(run.name));
  std::vector<int64_t> ids = taken.empty() ? std::vector<int64_t>() : std::move(taken.mapped());
  CAIRN_ASSIGN_OR_RETURN(auto values, Take(file.arrays, RowsName(run.name),
                                           Shape({static_cast<int64_t>(ids.size()), dim}), source));
  auto trained = TrainedTable::Create(std::move(run), std::move(ids), std::move(values));
  if (!trained.ok()) return Annotate(trained.status(), source);
  return trained;
}

// The arrays of a file for a model with tables.
absl::StatusOr<WeightsFile> ReadWithTables(const std::string& path, const nn::Model& model) {
  if (!IsKerasWeightsFile(path)) return ReadFileOfWeights(path);
  WeightsFile file;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<float> values, LoadKerasWeights(path, model));
  for (const nn::ModelVariable& variable : model.variables()) {
    const auto begin = values.begin() + variable.offset;
    file.arrays[variable.name] = {variable.shape, {begin, begin + variable.shape.num_elements()}};
  }
  return file;
}

// The values of a file for a model with tables.
absl::StatusOr<TrainedModel> LoadWithTables(const std::string& path, nn::Model model) {
  CAIRN_ASSIGN_OR_RETURN(WeightsFile file, ReadWithTables(path, model));
  std::set<std::string> dynamic;
  for (const std::string& layer : nn::EmbeddingLayers(model)) {
    if (file.ids.count(IdsName(TableNameOf(layer))) > 0) dynamic.insert(TableNameOf(layer));
  }
  CAIRN_ASSIGN_OR_RETURN(auto plan, PlanOf(model, dynamic));
  std::vector<TrainedTable> tables;
  if (plan.has_value()) {
    for (const v1::Table& table : plan->tables) {
      CAIRN_ASSIGN_OR_RETURN(TrainedTable trained, TakeTable(table, path, file));
      tables.push_back(std::move(trained));
    }
  }
  TrainedModel trained = {
      .model = std::move(model), .parameters = {}, .global_step = std::nullopt, .data = {}};
  if (plan.has_value()) trained.tables = {*std::move(plan), std::move(tables)};
  CAIRN_RETURN_IF_ERROR(CheckNoIds(file, path));
  CAIRN_ASSIGN_OR_RETURN(trained.parameters, MatchWeights(file.arrays, trained.network(), path));
  CAIRN_RETURN_IF_ERROR(CheckFinite(trained.network(), trained.parameters, path));
  return trained;
}

}  // namespace

namespace {

// A table that begins as the one of a checkpoint, or as a variable of it.
absl::StatusOr<TrainedTable> LoadInitialTable(const Checkpoint& checkpoint, const v1::Table& table) {
  const int64_t rows = table.embedding().vocabulary_size(), dim = table.row_elements();
  if (const TableRun* const run = TableOf(checkpoint, table.name()); run != nullptr) {
    if (run->dim == dim && (rows == 0 || run->vocabulary_size == rows))
      return LoadTrainedTable(checkpoint, *run);
    const auto text = [](int64_t ids, int64_t width) {
      return absl::StrCat(ids == 0 ? "any id" : absl::StrCat(ids, " ids"), " with rows of ", width);
    };
    return absl::FailedPreconditionError(absl::StrCat(checkpoint.directory(), ": table '", table.name(),
                                                      "' has ", text(run->vocabulary_size, run->dim),
                                                      " in it and ", text(rows, dim), " here"));
  }
  const auto found =
      std::find_if(checkpoint.tensors().begin(), checkpoint.tensors().end(), [&](const TensorInfo& tensor) {
        return tensor.variable == table.name() && tensor.slot.empty() && !tensor.of_table;
      });
  if (found == checkpoint.tensors().end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint.directory(), ": it has neither a table nor a variable '", table.name(), "'"));
  }
  const net::VariableInfo variable = {
      .name = table.name(),
      .shape = Shape({rows > 0 || found->shape.rank() != 2 ? rows : found->shape.dim(0), dim})};
  std::vector<float> values = FloatVector(variable.shape.num_elements(), kVariables);
  CAIRN_RETURN_IF_ERROR(checkpoint.Load({&variable, 1}, {}, {absl::MakeSpan(values)}));
  return TrainedTable::OfVariable(table.name(), dim, std::move(values));
}

absl::StatusOr<InitialWeights> LoadInitial(const std::string& path, const nn::Model& described,
                                           const TablePlan& plan) {
  InitialWeights weights;
  if (IsDirectory(path)) {
    CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
    for (const v1::Table& table : plan.tables) {
      CAIRN_ASSIGN_OR_RETURN(TrainedTable trained, LoadInitialTable(checkpoint, table));
      weights.tables.push_back(std::move(trained));
    }
    CAIRN_ASSIGN_OR_RETURN(weights.parameters, LoadWeights(checkpoint, plan.model.model));
    return weights;
  }
  CAIRN_ASSIGN_OR_RETURN(WeightsFile file, ReadWithTables(path, described));
  for (const v1::Table& table : plan.tables) {
    CAIRN_ASSIGN_OR_RETURN(TrainedTable trained, TakeTable(table, path, file));
    weights.tables.push_back(std::move(trained));
  }
  CAIRN_RETURN_IF_ERROR(CheckNoIds(file, path));
  CAIRN_ASSIGN_OR_RETURN(weights.parameters, MatchWeights(file.arrays, plan.model.model, path));
  CAIRN_RETURN_IF_ERROR(CheckFinite(plan.model.model, weights.parameters, path));
  return weights;
}

}  // namespace

absl::StatusOr<InitialWeights> LoadWeights(const std::string& path, const nn::Model& described,
                                           const TablePlan& plan) {
  return CatchOutOfMemory(path, [&] { return LoadInitial(path, described, plan); });
}

absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& path, const std::string& model_file,
                                              const nn::InputSizes& sizes) {
  if (!IsDirectory(path)) {
    if (model_file.empty() && !IsKerasWeightsFile(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--model: ", path, " contains only values: give the model's file"));
    }
    CAIRN_ASSIGN_OR_RETURN(nn::Model model, ReadModelFile(model_file.empty() ? path : model_file, sizes));
    CAIRN_ASSIGN_OR_RETURN(TrainedModel trained,
                           CatchOutOfMemory(path, [&] { return LoadWithTables(path, std::move(model)); }));
    CAIRN_ASSIGN_OR_RETURN(trained.data, ReadDataRecord(path));
    return trained;
  }
  CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(path));
  auto model = model_file.empty() ? nn::Model::FromJson(checkpoint.model_json(),
                                                        absl::StrCat(checkpoint.directory(), "/model.json"))
                                  : ReadModelFile(model_file, sizes);
  CAIRN_RETURN_IF_ERROR(model);
  std::set<std::string> dynamic;
  for (const TableRun& table : checkpoint.run().tables.value_or(std::vector<TableRun>())) {
    if (table.vocabulary_size == 0) dynamic.insert(table.name);
  }
  TrainedModel trained = {
      .model = *std::move(model), .parameters = {}, .global_step = checkpoint.run().global_step, .data = {}};
  CAIRN_ASSIGN_OR_RETURN(auto plan, PlanOf(trained.model, dynamic));
  if (plan.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(auto tables, CatchOutOfMemory(checkpoint.directory(), [&] {
                             return LoadPlannedTables(checkpoint, *plan);
                           }));
    trained.tables = {*std::move(plan), std::move(tables)};
  }
  CAIRN_ASSIGN_OR_RETURN(trained.parameters, LoadWeights(checkpoint, trained.network()));
  CAIRN_ASSIGN_OR_RETURN(trained.data, ReadDataRecord(path));
  return trained;
}

}  // namespace cairn::worker
