#include "worker/inputs/inputs.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "nn/byte_inputs.h"
#include "worker/export/model_source.h"
#include "worker/export/preprocessing.h"
#include "worker/inputs/data_check.h"
#include "worker/inputs/initial_values.h"
#include "worker/inputs/length_buckets.h"
#include "worker/options/job.h"

namespace cairn::worker {
data::DataOptions DataOptionsOf(const TrainOptions& options, const nn::Model& model) {
  data::DataOptions data = options.data;
  data.example_shape = model.input_shape();
  for (const nn::ModelInput& input : model.inputs()) {
    data.input_names.push_back(input.name);
    data.input_shapes.push_back(input.shape);
    data.input_types.push_back(input.dtype);
    data.ragged_inputs.push_back(input.ragged);
    data.id_maps.push_back(input.map);
    data.text_inputs.push_back(input.text);
  }
  data.weights_of.assign(model.inputs().size(), -1);
  for (const nn::Node& node : model.nodes()) {
    if (node.layer->row_table() == nullptr || node.inputs.size() < 2) continue;
    if (node.inputs[0] >= 0 || node.inputs[1] >= 0) continue;
    data.weights_of[static_cast<size_t>(nn::Node::OfModelInput(node.inputs[1]))] =
        nn::Node::OfModelInput(node.inputs[0]);
  }
  for (const nn::ByteInput& use : nn::ByteInputsOf(model)) {
    data.raw_bytes.push_back(use.raw);
    // --hash_ids skips inputs whose ids a layer computes.
    const bool mapped = model.inputs()[data.table_rows.size()].map != nullptr;
    data.table_rows.push_back(mapped ? 0 : use.table_rows);
  }
  return data;
}

std::vector<data::TargetPart> TargetPartsOf(const nn::Objective& objective, const nn::Model& model) {
  std::vector<data::TargetPart> parts;
  if (!objective.several_outputs()) return parts;
  for (size_t i = 0; i < objective.losses().size(); ++i) {
    parts.push_back({.output = model.outputs()[objective.losses()[i].output].name,
                     .per_example = objective.ParamsOf(i, model, 1).targets_per_example()});
  }
  return parts;
}

std::vector<std::string> DescribeIds(const nn::Model& model) {
  std::vector<std::string> lines;
  for (const nn::ModelInput& input : model.inputs()) {
    if (input.map == nullptr) continue;
    const char* const values = input.text                          ? "strings"
                               : input.kind() == ValueKind::kFloat ? "numbers"
                                                                   : "integers";
    lines.push_back(absl::StrCat("input '", input.name, "': ", input.map->layer(), " makes ids of ", values,
                                 ": ", input.map->Describe()));
  }
  return lines;
}

std::vector<data::InputSpec> InputSpecsOf(const nn::Model& model, const data::RowSource& rows) {
  const std::vector<int64_t> ragged = rows.ragged_parts();
  std::vector<data::InputSpec> specs;
  for (const nn::ModelInput& input : model.inputs()) {
    specs.push_back({input.dtype, input.ragged ? Shape({ragged[specs.size()]}) : input.shape, input.ragged});
  }
  return specs;
}

namespace {

// "layer 'rescaling' (Rescaling) scales them itself"
std::string Reading(const nn::ByteInput& use) {
  if (use.layer.empty()) return "no layer of the model says otherwise";
  return absl::StrCat("layer '", use.layer, "' (", use.class_name, ") ",
                      !use.raw                        ? "does not scale them itself"
                      : use.class_name == "Embedding" ? "takes indices"
                                                      : "scales them itself");
}

// Adds a note for each input that has bytes, on how they become numbers, and a note on the number of
// examples.
void AddNotes(const data::DataOptions& reading, const nn::Model& model, data::TrainingData& data) {
  const bool given = !std::isnan(reading.input_scale);
  const std::vector<nn::ByteInput> uses = nn::ByteInputsOf(model);
  for (size_t i = 0; i < uses.size() && i < data.byte_inputs.size(); ++i) {
    if (!data.byte_inputs[i]) continue;
    const bool integers = IsInteger(model.inputs()[i].dtype);
    const std::string what =
        given && !integers ? absl::StrCat("multiplied by ", reading.input_scale, " (--input_scale)")
                           : absl::StrCat(uses[i].raw ? "passed as they are" : "scaled by 1/255", ", since ",
                                          Reading(uses[i]), integers ? "" : " (--input_scale overrides)");
    data.notes.push_back({absl::StrCat("input '", model.inputs()[i].name, "': uint8 values are ", what),
                          /*usual=*/!given && !uses[i].raw});
  }
  for (std::string& note : DescribeIds(model)) data.notes.push_back({std::move(note), /*usual=*/true});
  data.notes.push_back(
      {absl::StrCat("training on ", data.train->size(), " examples of ", data.train->inputs_name(), ", ",
                    data.validation == nullptr ? "without a validation set"
                                               : absl::StrCat("validation on ", data.validation->size(),
                                                              " of ", data.validation->inputs_name()))});
}

// The data record that belongs to the checkpoint from which the job resumes; empty if the job does not
// resume.
absl::StatusOr<DataRecord> ReadResumed(const TrainOptions& options) {
  const std::string source = CheckpointSource(options);
  return source.empty() ? DataRecord() : ReadDataRecord(source);
}

// Checks the job's data against the run that it resumes, or against the run that trained the values of
// --init_from. INVALID_ARGUMENT if the classes have another meaning than in that run, or if the inputs of a
// resumed run have another meaning. With --init_from, a different meaning of the inputs is only added to
// `remarks`.
absl::Status CheckOrigin(const TrainOptions& options, const nn::Objective& objective,
                         const DataRecord& resumed, const DataRecord& now,
                         std::vector<std::string>& remarks) {
  if (!CheckpointSource(options).empty()) return CheckSameData(resumed, now);
  const std::string source = InitialValuesSource(options);
  if (source.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const DataRecord record, ReadDataRecord(source));
  if (absl::c_any_of(objective.losses(),
                     [](const auto& part) { return nn::IsClassification(part.loss.kind); }))
    CAIRN_RETURN_IF_ERROR(CheckSameClasses(record, now.class_names));
  if (!record.preprocessing) return absl::OkStatus();
  const absl::Status same = CheckSame(*record.preprocessing, *now.preprocessing);
  if (!same.ok()) remarks.push_back(absl::StrCat(record.PreprocessingPath(), ": ", same.message()));
  return absl::OkStatus();
}

// Adds a note on the settings that were taken over from the resumed run, and keeps that run's columns.
void Continue(const DataRecord& resumed, Preprocessing& now, std::vector<data::Note>& notes) {
  const std::string use = DescribeUse(*resumed.preprocessing, now);
  if (!use.empty())
    notes.push_back({absl::StrCat("as in ", resumed.PreprocessingPath(), ": ", use), /*usual=*/false});
  if (resumed.preprocessing->columns) now.columns = resumed.preprocessing->columns;
}

// The shape of an example in the data, as far as it does not depend on the model.
absl::StatusOr<Shape> ShapeInData(const data::DataOptions& options) {
  if (options.path.empty()) return absl::InvalidArgumentError("there is no --data_dir");
  data::DataOptions first = options;
  first.limit = 1;
  first.only_shapes = true;
  first.class_weights.clear();
  CAIRN_ASSIGN_OR_RETURN(const data::TrainingData data, data::LoadTrainingData(first));
  return data.train->example_shape();
}

// Sorts the examples into buckets if the model has shorter ones.
absl::Status AddBuckets(Inputs& inputs) {
  if (inputs.model.shorter().empty()) return absl::OkStatus();
  if (inputs.tables.has_value()) {
    return absl::InvalidArgumentError(
        "--bucket_boundaries: batches of several lengths are not supported with embedding tables on the "
        "servers");
  }
  CAIRN_ASSIGN_OR_RETURN(inputs.train_buckets, BucketsOf(inputs.model, inputs.objective, *inputs.data.train));
  std::vector<int64_t> examples(inputs.train_buckets->forms.size());
  for (const uint8_t bucket : inputs.train_buckets->bucket_of) ++examples[bucket];
  inputs.data.notes.push_back(
      {absl::StrCat("buckets from short to long: ", absl::StrJoin(examples, ", "), " examples"),
       /*usual=*/true});
  if (inputs.data.validation == nullptr) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(inputs.validation_buckets,
                         BucketsOf(inputs.model, inputs.objective, *inputs.data.validation));
  return absl::OkStatus();
}

}  // namespace

nn::InputSizes InputSizesOf(const TrainOptions& options) {
  return {.given = options.input_shapes, .in_data = [&options] { return ShapeInData(options.data); }};
}

absl::StatusOr<nn::Model> ReadModel(const TrainOptions& options) {
  return ReadModelFile(options.model, InputSizesOf(options));
}

absl::StatusOr<Inputs> LoadInputs(const TrainOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(nn::Model model, ReadModel(options));
  CAIRN_RETURN_IF_ERROR(AddShorterModels(options, model));
  CAIRN_ASSIGN_OR_RETURN(nn::Objective objective, MakeObjective(options, model));
  CAIRN_ASSIGN_OR_RETURN(auto metrics, MakeMetrics(options, model, objective));
  CAIRN_RETURN_IF_ERROR(MakeOptimizer(options, model));
  std::optional<TablePlan> tables;
  std::vector<std::string> dynamic_layers;
  CAIRN_ASSIGN_OR_RETURN(tables, PlanTables(options, model));
  if (tables.has_value()) dynamic_layers = tables->dynamic_layers();
  CAIRN_ASSIGN_OR_RETURN(const DataRecord resumed, ReadResumed(options));
  data::DataOptions reading = DataOptionsOf(options, model);
  reading.target_parts = TargetPartsOf(objective, model);
  if (!objective.several_outputs()) {
    const kernels::LossParams loss = objective.ParamsOf(0, model, 1);
    reading.targets_per_row = loss.targets_per_example() / loss.rows_per_example;
  }
  if (resumed.preprocessing) UseWhereOpen(*resumed.preprocessing, reading);
  CAIRN_ASSIGN_OR_RETURN(auto data, data::LoadTrainingData(reading));
  if (!options.data.autoencoder)
    CAIRN_RETURN_IF_ERROR(Annotate(CheckClassNames(objective, data.class_names), "--data_dir"));
  for (const data::Dataset* dataset : {data.train.get(), data.validation.get()}) {
    if (dataset == nullptr) continue;
    const absl::Status status = CheckDataset(model, objective, *dataset, data.remarks, dynamic_layers);
    if (!status.ok()) {
      return Annotate(status, dataset == data.train.get() ? "--data_dir" : "--data_dir: validation set");
    }
  }
  // Both sets have the same parts, if both have weights.
  for (const data::Dataset* dataset : {data.train.get(), data.validation.get()}) {
    if (dataset == nullptr || !dataset->weighted()) continue;
    nn::WeightedRows rows;
    for (const data::WeightPart& part : dataset->weights()->parts) rows.push_back(part.per_example > 1);
    CAIRN_RETURN_IF_ERROR(Annotate(objective.SetWeights(model, std::move(rows)), dataset->weights()->name()));
    CAIRN_ASSIGN_OR_RETURN(metrics, MakeMetrics(options, model, objective));
    break;
  }
  DataRecord record{.class_names = data.class_names,
                    .preprocessing = PreprocessingOf(reading, data.byte_inputs, data.columns),
                    .tokens = data.tokens};
  CAIRN_RETURN_IF_ERROR(CheckOrigin(options, objective, resumed, record, data.remarks));
  AddNotes(reading, model, data);
  if (resumed.preprocessing) Continue(resumed, *record.preprocessing, data.notes);
  if (tables.has_value()) {
    data.notes.push_back({DescribeTables(*tables), /*usual=*/!tables->automatic});
  }
  Inputs inputs{std::move(model), objective,         std::move(metrics),
                std::move(data),  std::move(record), std::move(tables)};
  CAIRN_RETURN_IF_ERROR(AddBuckets(inputs));
  return inputs;
}

}  // namespace cairn::worker
