// Functions of keras.ops in the graph of a model, such as `keras.ops.mean(x, axis=1)`, as layers.
//
// Keras 3 writes a function as an entry among the layers. Its class is the function's, its config has the arguments
// that are not tensors. Most functions work on axes that are known only with the shapes of a call, so a function is
// read first, and becomes layers for each of its calls.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/core/shape.h"
#include "nn/functions/steps.h"
#include "nn/layer/config_reader.h"

namespace cairn::nn {

// Lists the layers of a call. A failure is kept in `steps`.
using FunctionBody = std::function<void(FunctionSteps& steps)>;

// A function with its arguments. Immutable.
class KerasFunction {
 public:
  struct Call {
    std::vector<FunctionStep> steps{};  // at least one; the last has the output
    // The output is the input itself, unchanged.
    bool is_identity = false;
    Shape output_shape{};
    int64_t num_outputs = 1;  // of the function
  };
  struct Parts {
    std::string name, class_name;
    FunctionBody body;
    size_t min_inputs = 1, max_inputs = 1;
    bool has_several_outputs = false;
  };
  explicit KerasFunction(Parts parts) : parts_(std::move(parts)) {}

  const std::string& class_name() const { return parts_.class_name; }
  // Whether calls have a number of outputs that depends on arguments or shapes: Call::num_outputs.
  bool has_several_outputs() const { return parts_.has_several_outputs; }
  // The layers of output `output` of a call on inputs of these shapes, which are without the batch. INVALID_ARGUMENT
  // if no layers compute it; the caller adds the function's name.
  absl::StatusOr<Call> LayersFor(absl::Span<const Shape> inputs, int64_t output = 0) const;

 private:
  const Parts parts_;
};

bool IsSupportedFunction(absl::string_view class_name);

// Whether a number may be an argument of the function in place of a tensor (TakeNumber).
bool TakesNumber(absl::string_view class_name);

// Whether numbers, booleans and arrays may be arguments of the function in place of all tensors but one (TakeNumber).
bool TakesConstants(absl::string_view class_name);

// Whether the function reads its own `dtype`, which is that of any layer otherwise.
bool ReadsDtype(absl::string_view class_name);

// Why a function is refused that is not supported, and what to use instead.
std::string FunctionFault(absl::string_view class_name);

// Reads the arguments of a supported function. Faults are kept in `config`; the caller calls Finish().
std::shared_ptr<const KerasFunction> ReadFunction(std::string name, absl::string_view class_name,
                                                  ConfigReader& config);

}  // namespace cairn::nn
