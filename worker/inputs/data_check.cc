#include "worker/inputs/data_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/core/status.h"
#include "data/class_names.h"
#include "data/example_shape.h"
#include "data/input_rows.h"
#include "nn/byte_inputs.h"
#include "worker/inputs/inputs.h"

namespace cairn::worker {
namespace {

// The maximum number of input values that are checked before training, which takes a fraction of a second.
constexpr int64_t kMaxCheckedValues = int64_t{64} << 20;

// "; first: FILE: example 7 has 12" for the first class index that is not below `limit`; empty: none.
std::string FirstLabelFrom(const data::Dataset& dataset, int64_t limit) {
  if (std::max(dataset.num_classes(), dataset.target_info().position_classes) <= limit) return "";
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (const float label : dataset.Target(i)) {
      if (label >= static_cast<float>(limit)) {
        return absl::StrCat("; first: ", dataset.TargetName(i), " has ", label);
      }
    }
  }
  return "";
}

// "; first: FILE: example 7: the target is -1; ..." for the first target that `loss` does not accept; empty:
// none.
std::string FirstFault(const nn::LossSpec& loss, const data::Dataset& dataset) {
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const std::string fault = nn::TargetFault(loss, dataset.Target(i));
    if (!fault.empty()) return absl::StrCat("; first: ", dataset.TargetName(i), ": the target ", fault);
  }
  return "";
}

absl::Status CheckTargets(const nn::LossSpec& loss, const Shape& output, const data::Dataset& dataset,
                          std::vector<std::string>& remarks) {
  const int64_t width = nn::MakeLossParams(loss, output, 1).width;
  const data::TargetInfo targets = dataset.target_info();
  const absl::Status fits = nn::CheckTargets(loss, output,
                                             {.num_targets = targets.per_example,
                                              .num_classes = targets.num_classes,
                                              .position_classes = targets.position_classes,
                                              .shape = targets.shape});
  if (!fits.ok()) {
    const bool binary = loss.kind == kernels::LossKind::kBinaryCrossentropy;
    return absl::InvalidArgumentError(
        absl::StrCat(fits.message(), FirstLabelFrom(dataset, binary ? 2 : width),
                     TakesClassIndices(loss.kind) ? FirstFault(loss, dataset) : ""));
  }
  int64_t odd = 0;
  std::string first_odd;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const absl::Span<const float> target = dataset.Target(i);
    if (const std::string fault = nn::TargetFault(loss, target); !fault.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(dataset.TargetName(i), ": the target ", fault));
    }
    const std::string oddity = nn::TargetOddity(loss, width, target);
    if (oddity.empty()) continue;
    if (odd++ == 0) first_odd = absl::StrCat(dataset.TargetName(i), ": the target ", oddity);
  }
  if (odd > 0) remarks.push_back(odd == 1 ? first_odd : absl::StrCat(first_odd, " (", odd, " such targets)"));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExampleShape(const nn::Model& model, const Shape& given, absl::string_view name) {
  // Examples of ragged inputs have any shape.
  for (const nn::ModelInput& input : model.inputs()) {
    if (input.ragged) return absl::OkStatus();
  }
  const Shape wanted = model.input_shape();
  const bool one_input = model.inputs().size() == 1;
  const bool fits = one_input ? data::IsCompatible(given, wanted)
                              : data::IsFlat(given) && given.num_elements() == wanted.num_elements();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": examples have shape ", given.ToString(), ", the model",
                   one_input ? "" : ", with all its inputs in one row,", " takes ", wanted.ToString(),
                   data::MismatchHint(given, wanted)));
}

absl::Status CheckClassNames(const nn::LossSpec& loss, absl::Span<const std::string> class_names) {
  if (class_names.empty() || nn::IsClassification(loss.kind) || TakesClassIndices(loss.kind)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the labels are names of ", data::DescribeClasses(class_names), "; ", nn::ClassName(loss.kind),
      " needs numbers as targets; use a cross entropy for class names"));
}

absl::Status CheckDataset(const nn::Model& model, const nn::LossSpec& loss, const data::Dataset& dataset,
                          std::vector<std::string>& remarks, absl::Span<const std::string> dynamic_layers) {
  CAIRN_RETURN_IF_ERROR(CheckExampleShape(model, dataset.example_shape(), dataset.inputs_name()));
  CAIRN_RETURN_IF_ERROR(CheckTargets(loss, model.output_shape(), dataset, remarks));
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  CAIRN_RETURN_IF_ERROR(CheckIndices(
      {model, dataset.size(), dataset.inputs_name(), dataset.input_specs(), dynamic_layers,
       "; --hash_ids fits the ids of CSV, Criteo and libsvm to the table, --dynamic_tables accepts any id"},
      [&](int64_t i, absl::Span<const MutableTensorView> inputs) {
        dataset.Read(i, inputs, absl::MakeSpan(target));
      }));
  return dataset.status();
}

absl::Status CheckIndices(const IndexCheck& check,
                          absl::FunctionRef<void(int64_t, absl::Span<const MutableTensorView>)> read) {
  const std::vector<nn::ByteInput> uses = nn::ByteInputsOf(check.model, check.dynamic_layers);
  const bool any = std::any_of(uses.begin(), uses.end(), [](const auto& use) { return use.table_rows > 0; });
  int64_t values = 0;
  for (const data::InputSpec& spec : check.specs) values += spec.shape.num_elements();
  if (!any || check.examples > kMaxCheckedValues / values) return absl::OkStatus();
  data::InputRows inputs(check.specs, 1);
  for (int64_t i = 0; i < check.examples; ++i) {
    read(i, inputs.Row(0));
    const TensorViews row = inputs.First(1);
    for (size_t input = 0; input < uses.size(); ++input) {
      const nn::ByteInput& use = uses[input];
      if (use.table_rows == 0) continue;
      for (int64_t at = 0; at < row[input].shape.num_elements(); ++at) {
        const int64_t index = row[input].Integer(at);
        if (index >= 0 && index < use.table_rows) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            check.name, ": example ", i, ": value ", at, " is ", index, ", and layer '", use.layer, "' (",
            use.class_name, ") takes whole numbers from 0 to ", use.table_rows - 1, check.hint));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTargetValues(const nn::LossSpec& loss, const data::Targets& targets,
                               absl::string_view name) {
  const auto each = static_cast<size_t>(targets.per_example);
  for (int64_t i = 0; i < targets.size(); ++i) {
    const auto target = absl::MakeConstSpan(targets.values).subspan(static_cast<size_t>(i) * each, each);
    if (const std::string fault = nn::TargetFault(loss, target); !fault.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": example ", i, ": the target ", fault));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn::worker
