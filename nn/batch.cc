#include "nn/batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn::nn {

BatchView BatchView::Part(int64_t begin, int64_t count) const {
  const auto rows = [&](absl::Span<const float> all) {
    const size_t width = examples > 0 ? all.size() / static_cast<size_t>(examples) : 0;
    return all.subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(count) * width);
  };
  return {.examples = count,
          .inputs = rows(inputs),
          .targets = rows(targets),
          .weights = rows(weights),
          .seed = seed,
          .first_example = first_example + begin};
}

absl::Status CheckBatch(const Model& model, const LossSpec& loss, absl::Span<const float> parameters,
                        const BatchView& batch) {
  const int64_t values = batch.examples * model.input_shape().num_elements();
  const int64_t targets = MakeLossParams(loss, model.output_shape(), batch.examples).targets_per_example();
  if (batch.examples < 0 || static_cast<int64_t>(batch.inputs.size()) != values ||
      static_cast<int64_t>(batch.targets.size()) != batch.examples * targets ||
      (!batch.weights.empty() && static_cast<int64_t>(batch.weights.size()) != batch.examples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch.examples, " examples of ", model.input_shape().ToString(), " with ",
                     targets, " targets each cannot have ", batch.inputs.size(), " values, ",
                     batch.targets.size(), " targets and ", batch.weights.size(), " weights"));
  }
  if (static_cast<int64_t>(parameters.size()) != model.num_parameters()) {
    return absl::InvalidArgumentError(absl::StrCat(parameters.size(), " values do not match the model's ",
                                                   model.num_parameters(), " parameters"));
  }
  return absl::OkStatus();
}

absl::Status CheckGradients(const Model& model, absl::Span<const float> gradients) {
  if (static_cast<int64_t>(gradients.size()) == model.num_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(gradients.size(), " gradients do not match the model's ",
                                                 model.num_parameters(), " parameters"));
}

void GiveNoGradients(const Model& model, absl::Span<float> gradients,
                     absl::FunctionRef<void(int variable)> on_gradient) {
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  for (auto variable = static_cast<int>(model.variables().size()); variable-- > 0;) on_gradient(variable);
}

absl::Span<const float* const> InputSplitter::Split(const BatchView& batch) {
  if (pointers_.size() == 1) {
    pointers_[0] = batch.inputs.data();
    return pointers_;
  }
  if (static_cast<int64_t>(batch.inputs.size()) > split_.size()) {
    split_ = AlignedBuffer(static_cast<int64_t>(batch.inputs.size()));
  }
  const int64_t row = model_.input_shape().num_elements();
  float* to = split_.data();
  int64_t offset = 0;
  for (size_t i = 0; i < pointers_.size(); ++i) {
    pointers_[i] = to;
    const int64_t elements = model_.inputs()[i].shape.num_elements();
    for (int64_t example = 0; example < batch.examples; ++example, to += elements) {
      std::copy_n(batch.inputs.data() + example * row + offset, elements, to);
    }
    offset += elements;
  }
  return pointers_;
}

std::vector<int64_t> EvenParts(int64_t examples, int64_t parts) {
  std::vector<int64_t> begins(static_cast<size_t>(parts) + 1);
  for (int64_t part = 0; part <= parts; ++part) {
    begins[static_cast<size_t>(part)] = part * (examples / parts) + std::min(part, examples % parts);
  }
  return begins;
}

}  // namespace cairn::nn
