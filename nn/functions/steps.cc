#include "nn/functions/steps.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/config_reader.h"
#include "nn/layers/layer_registry.h"

namespace cairn::nn {

Shape FunctionSteps::ShapeOf(int value) const {
  return value < 0 ? inputs_[static_cast<size_t>(-1 - value)] : shapes_[static_cast<size_t>(value)];
}

bool FunctionSteps::SetNumOutputs(int64_t outputs) {
  constexpr int64_t kMaxOutputs = 1000;  // as inputs
  num_outputs_ = outputs;
  if (outputs > kMaxOutputs) {
    Fail("outputs", absl::StrCat("it has ", outputs, ", more than ", kMaxOutputs));
  } else if (output_ >= outputs) {
    Fail("outputs", absl::StrCat("it has ", outputs, ", not ", output_ + 1));
  }
  return outputs <= kMaxOutputs && output_ < outputs;
}

int FunctionSteps::Add(absl::string_view class_name, const nlohmann::json& config, std::vector<int> inputs) {
  ConfigReader reader(config);
  std::shared_ptr<const Layer> layer = FindLayer(class_name)(name_, reader);
  std::vector<Shape> shapes;
  for (const int input : inputs) shapes.push_back(ShapeOf(input));
  status_.Update(reader.Finish());
  if (!status_.ok()) return Input(0);
  absl::StatusOr<Shape> output = layer->OutputShape(shapes);
  if (output.ok()) output = Shape::FromUntrusted(output->dims());
  status_.Update(output.status());
  if (!status_.ok()) return Input(0);
  steps_.push_back({std::move(layer), std::move(inputs)});
  shapes_.push_back(*std::move(output));
  return latest_ = static_cast<int>(steps_.size()) - 1;
}

int FunctionSteps::Add(absl::string_view class_name, const nlohmann::json& config) {
  return Add(class_name, config, {latest_});
}

int FunctionSteps::AddMath(absl::string_view function) {
  return Add("MathFunction", {{"function", std::string(function)}});
}

void FunctionSteps::Reshape(const std::vector<int64_t>& extents) {
  Add("Reshape", {{"target_shape", extents}});
}

void FunctionSteps::Fail(absl::string_view field, absl::string_view fault) {
  status_.Update(absl::InvalidArgumentError(absl::StrCat(field, ": ", fault)));
}

absl::StatusOr<std::vector<FunctionStep>> FunctionSteps::Take() {
  CAIRN_RETURN_IF_ERROR(status_);
  return std::move(steps_);
}

int64_t AxisOf(int64_t axis, int64_t axes, absl::string_view field, FunctionSteps& steps) {
  const int64_t counted = axis < 0 ? axes + axis : axis;
  if (counted > 0 && counted < axes) return counted;
  steps.Fail(field, counted == 0 ? absl::StrCat("axis ", axis, " is the batch, which is not supported")
                                 : absl::StrCat("there is no axis ", axis, " among ", axes,
                                                " axes, of which the first is the batch"));
  return axes - 1;
}

}  // namespace cairn::nn
