#include "worker/adapt/adapt_model.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/files.h"
#include "common/core/json.h"
#include "common/core/status.h"
#include "common/core/tensor_view.h"
#include "data/dataset.h"
#include "data/input_rows.h"
#include "nn/model.h"
#include "worker/adapt/learners.h"
#include "worker/adapt/unadapted_layers.h"
#include "worker/export/model_source.h"
#include "worker/export/vocabularies.h"
#include "worker/export/weights.h"
#include "worker/inputs/inputs.h"
#include "worker/options/job.h"

namespace cairn::worker {
namespace {

using nlohmann::json;

// A layer with the inputs of the model from which it learns.
struct Lesson {
  std::unique_ptr<Learner> learner;
  std::vector<size_t> inputs;
};

absl::StatusOr<json> ReadDocument(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const ModelFileKind kind, KindOfModelFile(path));
  if (kind == ModelFileKind::kHdf5) {
    return absl::InvalidArgumentError(absl::StrCat(path,
                                                   ": is a .h5 file: save the model as .keras or its "
                                                   "to_json(), or call adapt() in Keras before save()"));
  }
  const bool archive = kind == ModelFileKind::kKerasArchive;
  CAIRN_ASSIGN_OR_RETURN(const std::string text, archive ? ReadArchiveText(path) : ReadFile(path));
  CAIRN_ASSIGN_OR_RETURN(json document, ParseJson(WithFiniteNumbers(text), path));
  if (!archive) CAIRN_RETURN_IF_ERROR(ReadVocabularyFiles(path, document).status());
  return document;
}

// The values of a variable, [] if the model has none of this name.
std::vector<double> ValuesOf(const std::string& name, const nn::Model& model,
                             absl::Span<const float> parameters, Shape& shape) {
  for (const nn::ModelVariable& variable : model.variables()) {
    if (variable.name != name) continue;
    shape = variable.shape;
    const absl::Span<const float> values = parameters.subspan(
        static_cast<size_t>(variable.offset), static_cast<size_t>(variable.shape.num_elements()));
    return {values.begin(), values.end()};
  }
  return {};
}

// An archive has the mean and the variance of Normalization layers among its weights. Writes them into the config of
// those that were adapted: others have means of 0 and variances of 1. `model` has the layers of `document`.
absl::Status TakeStatistics(const std::string& archive, const nn::Model& model, json& document) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<UnadaptedLayer> layers, FindUnadaptedLayers(document));
  std::optional<std::vector<float>> parameters;
  for (const UnadaptedLayer& layer : layers) {
    if (layer.class_name != "Normalization") continue;
    if (!parameters.has_value()) {
      CAIRN_ASSIGN_OR_RETURN(parameters, LoadWeights(archive, model));
    }
    Shape shape;
    const std::vector<double> mean = ValuesOf(absl::StrCat(layer.name, "/mean"), model, *parameters, shape);
    const std::vector<double> variance =
        ValuesOf(absl::StrCat(layer.name, "/variance"), model, *parameters, shape);
    const auto all = [](const std::vector<double>& values, double usual) {
      return absl::c_all_of(values, [usual](double value) { return value == usual; });
    };
    if (mean.empty() || variance.empty() || (all(mean, 0) && all(variance, 1))) continue;
    (*layer.config)["mean"] = NestedList(mean, shape.dims());
    (*layer.config)["variance"] = NestedList(variance, shape.dims());
  }
  return absl::OkStatus();
}

// The model of `document` with values of the right kind for layers that have none.
absl::StatusOr<nn::Model> ReadWithPlaceholders(const TrainOptions& options, json document) {
  const auto placeholders = FindUnadaptedLayers(document);
  if (!placeholders.ok()) return Annotate(placeholders.status(), options.model);
  AddPlaceholders(*placeholders);
  return nn::Model::FromJson(document.dump(), options.model, InputSizesOf(options));
}

// The inputs that `layer` reads itself.
std::vector<size_t> InputsOf(const UnadaptedLayer& layer, const nn::Model& model) {
  std::vector<size_t> inputs;
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const nn::ModelInput& input = model.inputs()[i];
    if (input.map != nullptr && input.map->layer() == layer.Describe()) inputs.push_back(i);
  }
  for (const nn::Node& node : model.nodes()) {
    const bool reads = layer.class_name == "Normalization" && node.layer->class_name() == layer.class_name &&
                       node.layer->name() == layer.name;
    if (reads && node.inputs[0] < 0)
      inputs.push_back(static_cast<size_t>(nn::Node::OfModelInput(node.inputs[0])));
  }
  return inputs;
}

absl::StatusOr<std::vector<Lesson>> MakeLessons(const std::vector<UnadaptedLayer>& layers,
                                                const nn::Model& model) {
  std::vector<Lesson> lessons;
  for (const UnadaptedLayer& layer : layers) {
    std::vector<size_t> inputs = InputsOf(layer, model);
    if (inputs.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          layer.Describe(), ": reads no input of the model, so its values are not in a training set"));
    }
    const Shape& shape = model.inputs()[inputs[0]].shape;
    for (const size_t input : inputs) {
      const Shape& other = model.inputs()[input].shape;
      if (layer.class_name != "Normalization" || other == shape) continue;
      return absl::InvalidArgumentError(absl::StrCat(layer.Describe(), ": reads inputs of the shapes ",
                                                     shape.ToString(), " and ", other.ToString()));
    }
    lessons.push_back({MakeLearner(layer, shape), std::move(inputs)});
  }
  return lessons;
}

absl::StatusOr<data::TrainingData> ReadData(const TrainOptions& options, const nn::Model& model,
                                            const std::vector<Lesson>& lessons) {
  data::DataOptions reading = DataOptionsOf(options, model);
  if (model.outputs().size() > 1) {
    CAIRN_ASSIGN_OR_RETURN(const nn::Objective objective, MakeObjective(options, model));
    reading.target_parts = TargetPartsOf(objective, model);
  }
  for (const Lesson& lesson : lessons) {
    for (const size_t input : lesson.inputs) lesson.learner->TakeValues(input, reading);
  }
  auto data = data::LoadTrainingData(reading);
  if (!data.ok()) return Annotate(data.status(), "--data_dir");
  const std::vector<data::InputSpec> specs = data->train->input_specs();
  bool fits = specs.size() == model.inputs().size();
  for (size_t i = 0; fits && i < specs.size(); ++i) {
    fits = specs[i].ragged || specs[i].shape.num_elements() == reading.input_shapes[i].num_elements();
  }
  if (fits) return data;
  return absl::InvalidArgumentError(absl::StrCat(
      "--data_dir: ", data->train->inputs_name(), ": examples have the shape ",
      data->train->example_shape().ToString(), ", the model takes ", model.input_shape().ToString()));
}

absl::Status Learn(const data::Dataset& dataset, const std::vector<Lesson>& lessons) {
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  data::InputRows rows(dataset.input_specs(), 1);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    dataset.Read(i, rows.Row(0), absl::MakeSpan(target));
    const TensorViews inputs = rows.First(1);
    for (const Lesson& lesson : lessons) {
      for (const size_t input : lesson.inputs) lesson.learner->Add(inputs[input]);
    }
  }
  return dataset.status();
}

}  // namespace

absl::StatusOr<AdaptedModel> AdaptModel(const TrainOptions& options) {
  const auto fault = [&](const absl::Status& status) { return Annotate(status, options.model); };
  CAIRN_ASSIGN_OR_RETURN(json document, ReadDocument(options.model));
  CAIRN_ASSIGN_OR_RETURN(const nn::Model model, ReadWithPlaceholders(options, document));
  if (HasWeights(options.model)) CAIRN_RETURN_IF_ERROR(TakeStatistics(options.model, model, document));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<UnadaptedLayer> layers, FindUnadaptedLayers(document));
  if (layers.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(options.model, ": every layer has what adapt() would find"));
  auto lessons = MakeLessons(layers, model);
  if (!lessons.ok()) return fault(lessons.status());
  CAIRN_ASSIGN_OR_RETURN(const data::TrainingData data, ReadData(options, model, *lessons));
  CAIRN_RETURN_IF_ERROR(Annotate(Learn(*data.train, *lessons), "--data_dir"));

  AdaptedModel adapted;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto learned = (*lessons)[i].learner->Finish(*layers[i].config);
    if (!learned.ok()) return fault(Annotate(learned.status(), layers[i].Describe()));
    adapted.notes.push_back(absl::StrCat(layers[i].Describe(), ": ", *learned));
  }
  adapted.json = document.dump(1) + "\n";
  CAIRN_RETURN_IF_ERROR(nn::Model::FromJson(adapted.json, options.model, InputSizesOf(options)).status());
  return adapted;
}

}  // namespace cairn::worker
