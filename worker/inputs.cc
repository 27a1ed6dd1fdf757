#include "worker/inputs.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/job.h"

namespace cairn::worker {
namespace {

std::vector<std::string> InputNames(const nn::Model& model) {
  std::vector<std::string> names;
  for (const nn::ModelInput& input : model.inputs()) names.push_back(input.name);
  return names;
}

}  // namespace

absl::StatusOr<Inputs> LoadInputs(const TrainOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(nn::Model model, nn::Model::FromFile(options.model));
  CAIRN_ASSIGN_OR_RETURN(const nn::LossSpec loss, MakeLoss(options, model));
  CAIRN_RETURN_IF_ERROR(CheckOutput(loss, model.output_shape()));
  CAIRN_ASSIGN_OR_RETURN(auto metrics, MakeMetrics(options, model, loss));
  CAIRN_RETURN_IF_ERROR(MakeOptimizer(options, model));
  CAIRN_ASSIGN_OR_RETURN(auto data, data::LoadTrainingData({.path = options.data_dir,
                                                            .input_scale = options.input_scale,
                                                            .limit = options.limit_examples,
                                                            .input_names = InputNames(model),
                                                            .example_shape = model.input_shape(),
                                                            .label_column = options.label_column,
                                                            .feature_columns = options.feature_columns,
                                                            .missing_value = options.missing_value,
                                                            .max_bad_rows = options.max_bad_rows,
                                                            .csv_separator = options.csv_separator,
                                                            .class_weights = options.class_weights,
                                                            .augmentation = options.augmentation}));
  const data::Dataset& train = *data.train;
  if (train.example_shape().num_elements() != model.input_shape().num_elements()) {
    return absl::InvalidArgumentError(absl::StrCat("--data_dir: examples have shape ",
                                                   train.example_shape().ToString(), ", the model takes ",
                                                   model.input_shape().ToString()));
  }
  for (const data::Dataset* dataset : {data.train.get(), data.validation.get()}) {
    if (dataset == nullptr) continue;
    const nn::TargetsInfo targets = {.num_targets = dataset->num_targets(),
                                     .num_classes = dataset->num_classes(),
                                     .position_classes = dataset->position_classes(),
                                     .shape = dataset->target_shape()};
    const absl::Status status = CheckTargets(loss, model.output_shape(), targets);
    if (!status.ok()) {
      return Annotate(status, dataset == data.train.get() ? "--data_dir" : "--data_dir: validation set");
    }
  }
  return Inputs{std::move(model), loss, std::move(metrics), std::move(data)};
}

}  // namespace cairn::worker
