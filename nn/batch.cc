#include "nn/batch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "kernels/device.h"

namespace cairn::nn {

BatchView BatchView::Part(int64_t begin, int64_t count) const {
  CAIRN_CHECK(row_bags == nullptr);
  const auto rows = [&](auto all) {
    const size_t width = examples > 0 ? all.size() / static_cast<size_t>(examples) : 0;
    return all.subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(count) * width);
  };
  TensorViews parts;
  for (const TensorView& input : inputs) parts.push_back(input.Rows(begin, count));
  InputGradients gradients;
  for (const absl::Span<float> gradient : input_gradients) gradients.push_back(rows(gradient));
  return {.examples = count,
          .inputs = std::move(parts),
          .targets = rows(targets),
          .weights = rows(weights),
          .seed = seed,
          .first_example = first_example + begin,
          .input_gradients = std::move(gradients)};
}

const Model& ModelFor(const Model& model, const BatchView& batch) {
  const auto fits = [&batch](const Model& shorter) {
    for (size_t i = 0; i < batch.inputs.size(); ++i) {
      const ModelInput& input = shorter.inputs()[i];
      const TensorView& given = batch.inputs[i];
      if (input.ragged || given.ragged()) continue;
      if (given.shape.rank() == 0 || given.shape.row_elements() != input.shape.num_elements()) return false;
    }
    return true;
  };
  if (batch.inputs.size() != model.inputs().size()) return model;
  const auto found = std::find_if(model.shorter().begin(), model.shorter().end(), fits);
  return found == model.shorter().end() ? model : *found;
}

int64_t InputFloats(const ModelInput& input, int64_t examples) {
  return kernels::TensorDesc{.shape = {examples, input.shape.num_elements()}, .type = input.dtype}
      .num_floats();
}

namespace {

// "[64,28,28,1]", "[64,3] int64"
std::string Describe(const TensorView& tensor) {
  return kernels::TensorDesc{.shape = tensor.shape, .type = tensor.dtype}.ToString();
}

absl::Status CheckInputs(const Model& model, const BatchView& batch) {
  if (batch.examples == 0 && batch.inputs.empty()) return absl::OkStatus();
  if (batch.inputs.size() != model.inputs().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.inputs.size(), " inputs for a model of ", model.inputs().size()));
  }
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    const TensorView& given = batch.inputs[i];
    const ModelInput& input = model.inputs()[i];
    if (input.ragged && given.ragged() && given.dtype == input.dtype &&
        static_cast<int64_t>(given.row_splits.size()) == batch.examples + 1) {
      continue;
    }
    const bool rows =
        !input.ragged && !given.ragged() && given.shape.rank() > 0 && given.shape[0] == batch.examples;
    if (rows && given.dtype == input.dtype && given.shape.row_elements() == input.shape.num_elements())
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.examples, " examples cannot have ", Describe(given), " as input '",
                     input.name, "', which takes ", input.ragged ? "ragged " : "", NameOf(input.dtype), " ",
                     input.ragged ? "" : input.shape.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatch(const Model& whole, const Objective& objective, absl::Span<const float> parameters,
                        const BatchView& batch) {
  const Model& model = ModelFor(whole, batch);
  CAIRN_RETURN_IF_ERROR(CheckInputs(model, batch));
  const int64_t targets = objective.TargetsPerExample(model), weights = objective.WeightsPerExample(model);
  if (batch.examples < 0 || static_cast<int64_t>(batch.targets.size()) != batch.examples * targets ||
      (!batch.weights.empty() && static_cast<int64_t>(batch.weights.size()) != batch.examples * weights)) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.examples, " examples with ", targets,
                                                   " targets each cannot have ", batch.targets.size(),
                                                   " targets and ", batch.weights.size(), " weights"));
  }
  if (static_cast<int64_t>(parameters.size()) != model.num_parameters()) {
    return absl::InvalidArgumentError(absl::StrCat(parameters.size(), " values do not match the model's ",
                                                   model.num_parameters(), " parameters"));
  }
  return absl::OkStatus();
}

absl::Status CheckGradients(const Model& model, const BatchView& batch, absl::Span<const float> gradients) {
  if (static_cast<int64_t>(gradients.size()) != model.num_parameters()) {
    return absl::InvalidArgumentError(absl::StrCat(gradients.size(), " gradients do not match the model's ",
                                                   model.num_parameters(), " parameters"));
  }
  const InputGradients& given = batch.input_gradients;
  if (given.size() > model.inputs().size()) {
    return absl::InvalidArgumentError(absl::StrCat("a batch with gradients of ", given.size(),
                                                   " inputs for a model of ", model.inputs().size()));
  }
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const ModelInput& input = model.inputs()[i];
    const bool written = input.needs_gradient && batch.row_bags == nullptr;
    const int64_t expected = written ? batch.examples * input.shape.num_elements() : 0;
    const size_t elements = i < given.size() ? given[i].size() : 0;
    if (static_cast<int64_t>(elements) == expected) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("memory for ", elements, " elements of the gradient of input '", input.name,
                     "', which has ", expected, " in a batch of ", batch.examples, " examples"));
  }
  return absl::OkStatus();
}

void GiveNoGradients(const Model& model, absl::Span<float> gradients,
                     absl::FunctionRef<void(int gradient)> on_gradient) {
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  for (auto variable = static_cast<int>(model.variables().size()); variable-- > 0;) on_gradient(variable);
  for (size_t input = 0; input < model.inputs().size(); ++input) {
    if (model.inputs()[input].needs_gradient) on_gradient(Node::OfModelInput(static_cast<int>(input)));
  }
}

std::vector<int64_t> EvenParts(int64_t examples, int64_t parts) {
  std::vector<int64_t> begins(static_cast<size_t>(parts) + 1);
  for (int64_t part = 0; part <= parts; ++part) {
    begins[static_cast<size_t>(part)] = part * (examples / parts) + std::min(part, examples % parts);
  }
  return begins;
}

}  // namespace cairn::nn
