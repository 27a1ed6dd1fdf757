#include "worker/model/finite.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"

namespace cairn::worker {
namespace {

std::optional<size_t> FirstNonFinite(absl::Span<const float> values) {
  const auto bad =
      std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return std::nullopt;
  return static_cast<size_t>(bad - values.begin());
}

// "[2,5,0]", the position of element `index` in an array of this shape.
std::string PlaceIn(const Shape& shape, int64_t index) {
  Shape place;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    int64_t behind = 1;
    for (int other = axis + 1; other < shape.rank(); ++other) behind *= shape[other];
    place.Append(index / behind % shape[axis]);
  }
  return place.rank() == 0 ? "" : place.ToString();
}

absl::Span<const float> ValuesOf(const nn::ModelVariable& variable, absl::Span<const float> parameters) {
  return parameters.subspan(static_cast<size_t>(variable.offset),
                            static_cast<size_t>(variable.shape.num_elements()));
}

// "'dense/bias'[3] is nan" for the first parameter that is not finite; empty: all are finite.
std::string NonFiniteParameter(const nn::Model& model, absl::Span<const float> parameters) {
  for (const nn::ModelVariable& variable : model.variables()) {
    const absl::Span<const float> values = ValuesOf(variable, parameters);
    if (const auto bad = FirstNonFinite(values)) {
      return absl::StrCat("'", variable.name, "'", PlaceIn(variable.shape, static_cast<int64_t>(*bad)),
                          " is ", values[*bad]);
    }
  }
  return "";
}

// "input [4] of example 123 is nan" for the first number of the batch that is not finite; empty: all are
// finite.
std::string NonFiniteData(const NonFiniteStep& step) {
  const auto examples = static_cast<size_t>(std::max<int64_t>(step.batch.examples, 1));
  const auto at = [&](const std::string& what, size_t row, float value) {
    return absl::StrCat(what, " of example ", row < step.rows.size() ? absl::StrCat(step.rows[row]) : "?",
                        " (from 0) of ", step.data, " is ", value);
  };
  const size_t targets = step.batch.targets.size() / examples;
  for (size_t i = 0; i < step.batch.inputs.size(); ++i) {
    const TensorView& tensor = step.batch.inputs[i];
    if (tensor.dtype != DType::kFloat32) continue;
    const auto bad = FirstNonFinite(tensor.floats());
    if (!bad) continue;
    const nn::ModelInput& input = step.model.inputs()[i];
    const Shape shape(tensor.shape.dims().subspan(1));  // may be shorter than the input's
    const auto elements = static_cast<size_t>(shape.num_elements());
    return at(
        absl::StrCat(step.model.inputs().size() == 1 ? "input" : absl::StrCat("input '", input.name, "'"),
                     " ", PlaceIn(shape, static_cast<int64_t>(*bad % elements))),
        *bad / elements, tensor.floats()[*bad]);
  }
  if (const auto bad = FirstNonFinite(step.batch.targets)) {
    return at(absl::StrCat("target ", *bad % targets), *bad / targets, step.batch.targets[*bad]);
  }
  if (const auto bad = FirstNonFinite(step.batch.weights))
    return at("the weight", *bad / (step.batch.weights.size() / examples), step.batch.weights[*bad]);
  return "";
}

// Whether the mask that node `mask` computes from inputs of the model counts no step of an example. False if it
// computes the mask from anything else.
bool MasksAll(const NonFiniteStep& step, int mask, int64_t example) {
  if (mask < 0) return false;
  const nn::Node& node = step.model.nodes()[static_cast<size_t>(mask)];
  const auto masks_all = [&](int other) { return MasksAll(step, other, example); };
  if (!node.layer->masked_value().has_value())
    return node.layer->is_mask() && std::all_of(node.inputs.begin(), node.inputs.end(), masks_all);
  const auto input = static_cast<size_t>(nn::Node::OfModelInput(node.inputs[0]));
  if (node.inputs[0] >= 0 || input >= step.batch.inputs.size()) return false;
  const TensorView& tensor = step.batch.inputs[input];
  if (tensor.ragged() || tensor.data == nullptr) return false;
  const int64_t elements = tensor.shape.num_elements() / std::max<int64_t>(step.batch.examples, 1);
  for (int64_t i = example * elements; i < (example + 1) * elements; ++i) {
    const double value = tensor.dtype == DType::kFloat32 ? double{tensor.floats()[static_cast<size_t>(i)]}
                                                         : static_cast<double>(tensor.Integer(i));
    if (value != *node.layer->masked_value()) return false;
  }
  return true;
}

// "the mean of layer 'pool' over the steps of example 12 ..." for the first example whose steps are all masked before a
// mean over them, which is then 0/0; empty: there is none.
std::string MeanOfNothing(const NonFiniteStep& step) {
  for (const nn::Node& node : step.model.nodes()) {
    if (node.masked.empty() || node.layer->class_name() != "GlobalAveragePooling1D") continue;
    for (int64_t example = 0; example < step.batch.examples; ++example) {
      if (!MasksAll(step, node.inputs.back(), example)) continue;
      const auto row = static_cast<size_t>(example);
      return absl::StrCat("the mean of layer '", node.layer->name(), "' over the steps of example ",
                          row < step.rows.size() ? absl::StrCat(step.rows[row]) : "?", " (from 0) of ",
                          step.data,
                          " is 0/0, as in Keras: all its steps are masked, as those of a text "
                          "without words; leave the example out");
    }
  }
  return "";
}

std::string LargestParameter(const nn::Model& model, absl::Span<const float> parameters) {
  float largest = 0;
  absl::string_view name;
  for (const nn::ModelVariable& variable : model.variables()) {
    for (const float value : ValuesOf(variable, parameters)) {
      if (std::fabs(value) <= largest) continue;
      largest = std::fabs(value);
      name = variable.name;
    }
  }
  return absl::StrCat("the largest parameter, of '", name, "', is ", largest);
}

}  // namespace

absl::Status CheckFinite(const nn::Model& model, absl::Span<const float> parameters,
                         absl::string_view source) {
  const std::string bad = NonFiniteParameter(model, parameters);
  if (bad.empty()) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(source, ": ", bad, ": weights must be finite numbers"));
}

std::string Explain(const NonFiniteStep& step) {
  if (const std::string bad = NonFiniteData(step); !bad.empty())
    return absl::StrCat("the data are at fault: ", bad);
  if (const std::string bad = NonFiniteParameter(step.model, step.parameters); !bad.empty()) {
    return absl::StrCat("the parameters are at fault, the data are finite: ", bad);
  }
  if (const std::string bad = MeanOfNothing(step); !bad.empty())
    return absl::StrCat("the data are at fault: ", bad);
  return absl::StrCat(
      "the step overflowed, the data and the parameters are finite: ",
      step.layer.empty() ? "" : absl::StrCat("the output of ", step.layer, " is the first that is not; "),
      LargestParameter(step.model, step.parameters));
}

}  // namespace cairn::worker
