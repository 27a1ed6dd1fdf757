#include "nn/function_steps.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layer/config_reader.h"
#include "nn/layer_registry.h"

namespace cairn::nn {

int FunctionSteps::Add(absl::string_view class_name, const nlohmann::json& config, std::vector<int> inputs) {
  ConfigReader reader(config);
  std::shared_ptr<const Layer> layer = FindLayer(class_name)(name_, reader);
  if (const auto status = reader.Finish(); !status.ok()) {
    status_.Update(status);
    return Input(0);
  }
  steps_.push_back({std::move(layer), std::move(inputs)});
  return static_cast<int>(steps_.size()) - 1;
}

int FunctionSteps::Add(absl::string_view class_name, const nlohmann::json& config) {
  return Add(class_name, config, {static_cast<int>(steps_.size()) - 1});
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
