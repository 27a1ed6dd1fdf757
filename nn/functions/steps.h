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
  // `inputs` are shapes without the batch. `output`: which of the function's outputs is computed.
  FunctionSteps(std::string name, std::vector<Shape> inputs, int64_t output)
      : name_(std::move(name)), inputs_(std::move(inputs)), output_(output) {}

  // Values are numbered as in FunctionStep::inputs.
  static int Input(size_t i) { return -1 - static_cast<int>(i); }
  size_t num_inputs() const { return inputs_.size(); }
  const Shape& InputShape(size_t i = 0) const { return inputs_[i]; }
  Shape ShapeOf(int value) const;

  int64_t output() const { return output_; }
  // Says that the function has several outputs. Returns whether the output that is computed is one of them.
  bool SetNumOutputs(int64_t outputs);
  int64_t num_outputs() const { return num_outputs_; }

  // The value that the next layer reads and, in the end, the output: the latest output, or at first input 0.
  int latest() const { return latest_; }
  Shape shape() const { return ShapeOf(latest_); }
  // Makes another value the latest.
  void GoOnFrom(int value) { latest_ = value; }

  // Adds the layer of this class and config, and returns its output.
  int Add(absl::string_view class_name, const nlohmann::json& config, std::vector<int> inputs);
  // Adds it on the latest output.
  int Add(absl::string_view class_name, const nlohmann::json& config);
  // The layer of a function of elements, such as "exp": MathFunction.
  int AddMath(absl::string_view function);
  // The latest output in the shape of these extents, which are those of all axes but the batch.
  void Reshape(const std::vector<int64_t>& extents);

  // The first failure is kept.
  void Fail(absl::string_view field, absl::string_view fault);
  bool failed() const { return !status_.ok(); }

  // All steps, unless one has failed.
  absl::StatusOr<std::vector<FunctionStep>> Take();

 private:
  const std::string name_;
  const std::vector<Shape> inputs_;
  const int64_t output_;
  int64_t num_outputs_ = 1;
  std::vector<FunctionStep> steps_;
  std::vector<Shape> shapes_;  // [step] of its output
  int latest_ = Input(0);
  absl::Status status_;
};

// The axis of a tensor with `axes` axes, the batch among them: from 0 on, or negative from the end. Fails, and returns
// the last axis, if it is the batch or does not exist.
int64_t AxisOf(int64_t axis, int64_t axes, absl::string_view field, FunctionSteps& steps);

}  // namespace cairn::nn
