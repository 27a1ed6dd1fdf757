// The layers that compute one call of a function of keras.ops (keras_functions.h), while they are listed.
//
// Used while a model is read, by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/core/shape.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// A layer without variables, and the values that it reads: -1 - i is input i of the function, i the output of step i.
struct FunctionStep {
  std::shared_ptr<const Layer> layer;
  std::vector<int> inputs;
};

class FunctionSteps {
 public:
  // `inputs` are shapes without the batch.
  FunctionSteps(std::string name, std::vector<Shape> inputs)
      : name_(std::move(name)), inputs_(std::move(inputs)) {}

  // Values are numbered as in FunctionStep::inputs.
  static int Input(size_t i) { return -1 - static_cast<int>(i); }
  size_t num_inputs() const { return inputs_.size(); }
  const Shape& InputShape(size_t i = 0) const { return inputs_[i]; }

  // Adds the layer of this class and config, and returns its output.
  int Add(absl::string_view class_name, const nlohmann::json& config, std::vector<int> inputs);
  // Adds it on the latest output, which is the first input of the function if there is none.
  int Add(absl::string_view class_name, const nlohmann::json& config);
  // The latest output in the shape of these extents, which are those of all axes but the batch.
  void Reshape(const std::vector<int64_t>& extents);

  // Whether no layer has been added: the output is the first input.
  bool empty() const { return steps_.empty(); }

  // The first failure is kept.
  void Fail(absl::string_view field, absl::string_view fault);

  // The steps, of which the last has the output of the function.
  absl::StatusOr<std::vector<FunctionStep>> Take();

 private:
  const std::string name_;
  const std::vector<Shape> inputs_;
  std::vector<FunctionStep> steps_;
  absl::Status status_;
};

// The axis of a tensor with `axes` axes, the batch among them: from 0 on, or negative from the end. Fails, and returns
// the last axis, if it is the batch or does not exist.
int64_t AxisOf(int64_t axis, int64_t axes, absl::string_view field, FunctionSteps& steps);

}  // namespace cairn::nn
