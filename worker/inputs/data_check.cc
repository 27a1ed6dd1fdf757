#include "worker/inputs/data_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

// The targets of all examples of a data set, or of a file of labels.
struct TargetSource {
  int64_t examples;
  data::TargetInfo info;
  std::function<absl::Span<const float>(int64_t example)> at;  // empty if they are not in memory
  std::function<std::string(int64_t example)> name_of;         // "mnist.npz: y_train: example 7"
};

TargetSource SourceOf(const data::Dataset& dataset) {
  return {.examples = dataset.size(),
          .info = dataset.target_info(),
          .at = [&dataset](int64_t example) { return dataset.Target(example); },
          .name_of = [&dataset](int64_t example) { return dataset.TargetName(example); }};
}

TargetSource SourceOf(const data::Targets& targets, absl::string_view name) {
  const auto each = static_cast<size_t>(targets.per_example);
  return {.examples = targets.size(),
          .info = {.per_example = targets.per_example,
                   .num_classes = targets.num_classes,
                   .position_classes = targets.position_classes,
                   .shape = targets.shape},
          .at =
              [&targets, each](int64_t example) {
                return absl::MakeConstSpan(targets.values).subspan(static_cast<size_t>(example) * each, each);
              },
          .name_of = [name](int64_t example) { return absl::StrCat(name, ": example ", example); }};
}

// The targets of one loss of a model.
class LossTargets {
 public:
  LossTargets(const nn::Objective& objective, size_t index, const nn::Model& model,
              const TargetSource& source)
      : part_(objective.losses()[index]),
        params_(objective.ParamsOf(index, model, 1)),
        first_target_(objective.FirstTarget(index, model)),
        output_(model.outputs()[part_.output]),
        several_(objective.several_outputs()),
        source_(source) {}

  const nn::LossSpec& loss() const { return part_.loss; }
  const Shape& output() const { return output_.shape; }
  int64_t width() const { return params_.width; }
  int64_t size() const { return source_.examples; }
  absl::Span<const float> operator[](int64_t example) const {
    const absl::Span<const float> targets = source_.at(example);
    if (!several_ || targets.empty()) return targets;
    return targets.subspan(static_cast<size_t>(first_target_),
                           static_cast<size_t>(params_.targets_per_example()));
  }
  // With the output if there are several.
  std::string NameOf(int64_t example) const {
    return absl::StrCat(source_.name_of(example),
                        several_ ? absl::StrCat(", output '", output_.name, "'") : "");
  }
  nn::TargetsInfo info() const {
    const data::TargetInfo& all = source_.info;
    nn::TargetsInfo info = {.num_targets = all.per_example,
                            .num_classes = all.num_classes,
                            .position_classes = all.position_classes,
                            .shape = all.shape};
    if (several_) info = {.num_targets = params_.targets_per_example()};
    const bool counted = several_ || part_.loss.ignore_class.has_value();
    if (!counted || size() == 0 || (*this)[0].empty()) return info;
    (info.num_targets == 1 ? info.num_classes : info.position_classes) = CountClasses();
    return info;
  }

 private:
  // The largest class index + 1, without rows that the loss leaves out; 0 if the targets are not class indices.
  int64_t CountClasses() const {
    int64_t classes = 0;
    std::vector<float> kept;
    for (int64_t i = 0; i < size(); ++i) {
      const absl::Span<const float> targets = (*this)[i];
      kept.clear();
      absl::c_copy_if(targets, std::back_inserter(kept),
                      [this](float target) { return !nn::IsIgnored(part_.loss, target); });
      const int64_t of_example = data::ClassesIn(kept);
      if (of_example == 0 && !kept.empty()) return 0;
      classes = std::max(classes, of_example);
    }
    return classes;
  }

  const nn::OutputLoss& part_;
  const kernels::LossParams params_;
  const int64_t first_target_;
  const nn::ModelOutput& output_;
  const bool several_;
  const TargetSource& source_;
};

// "; first: FILE: example 7 has 12" for the first class index that is not below `limit`; empty: none.
std::string FirstLabelFrom(const LossTargets& targets, int64_t limit) {
  const nn::TargetsInfo info = targets.info();
  if (std::max(info.num_classes, info.position_classes) <= limit) return "";
  for (int64_t i = 0; i < targets.size(); ++i) {
    for (const float label : targets[i]) {
      if (label >= static_cast<float>(limit) && !nn::IsIgnored(targets.loss(), label))
        return absl::StrCat("; first: ", targets.NameOf(i), " has ", label);
    }
  }
  return "";
}

// "; first: FILE: example 7: the target is -1; ..." for the first target that the loss does not accept; empty: none.
std::string FirstFault(const LossTargets& targets) {
  for (int64_t i = 0; i < targets.size(); ++i) {
    const std::string fault = nn::TargetFault(targets.loss(), targets[i]);
    if (!fault.empty()) return absl::StrCat("; first: ", targets.NameOf(i), ": the target ", fault);
  }
  return "";
}

absl::Status CheckTargets(const LossTargets& targets, std::vector<std::string>& remarks) {
  const nn::LossSpec& loss = targets.loss();
  if (const absl::Status fits = nn::CheckTargets(loss, targets.output(), targets.info()); !fits.ok()) {
    const bool binary = kernels::IsBinary(loss.kind);
    return absl::InvalidArgumentError(absl::StrCat(fits.message(),
                                                   FirstLabelFrom(targets, binary ? 2 : targets.width()),
                                                   TakesClassIndices(loss.kind) ? FirstFault(targets) : ""));
  }
  int64_t odd = 0;
  std::string first_odd;
  for (int64_t i = 0; i < targets.size(); ++i) {
    if (const std::string fault = nn::TargetFault(loss, targets[i]); !fault.empty())
      return absl::InvalidArgumentError(absl::StrCat(targets.NameOf(i), ": the target ", fault));
    const std::string oddity = nn::TargetOddity(loss, targets.width(), targets[i]);
    if (oddity.empty()) continue;
    if (odd++ == 0) first_odd = absl::StrCat(targets.NameOf(i), ": the target ", oddity);
  }
  if (odd > 0) remarks.push_back(odd == 1 ? first_odd : absl::StrCat(first_odd, " (", odd, " such targets)"));
  return absl::OkStatus();
}

// "1 for 'kind', 4 for 'box'"
std::string DescribeParts(const nn::Objective& objective, const nn::Model& model) {
  const auto part = [](std::string* out, const data::TargetPart& of_output) {
    absl::StrAppend(out, of_output.per_example, " for '", of_output.output, "'");
  };
  return absl::StrJoin(TargetPartsOf(objective, model), ", ", part);
}

absl::Status CheckAllTargets(const nn::Objective& objective, const nn::Model& model,
                             const TargetSource& source, std::vector<std::string>& remarks) {
  const int64_t needed = objective.TargetsPerExample(model);
  if (objective.several_outputs() && source.info.per_example != needed) {
    return absl::InvalidArgumentError(absl::StrCat("the outputs of the model need ", needed,
                                                   " targets per example (", DescribeParts(objective, model),
                                                   "), the data has ", source.info.per_example));
  }
  for (size_t i = 0; i < objective.losses().size(); ++i)
    CAIRN_RETURN_IF_ERROR(CheckTargets(LossTargets(objective, i, model, source), remarks));
  return absl::OkStatus();
}

// The first targets that are the inputs of a data set, as those of autoencoders are.
absl::Status CheckInputsAsTargets(const nn::Objective& objective, const data::Dataset& dataset) {
  if (!dataset.target_info().are_inputs || objective.several_outputs()) return absl::OkStatus();
  data::InputRows inputs(dataset.input_specs(), 1);
  std::vector<float> target(static_cast<size_t>(dataset.num_targets()));
  const int64_t examples =
      std::min(dataset.size(), kMaxCheckedValues / std::max<int64_t>(dataset.num_targets(), 1));
  for (int64_t i = 0; i < examples; ++i) {
    dataset.Read(i, inputs.Row(0), absl::MakeSpan(target));
    const std::string fault = nn::TargetFault(objective.losses()[0].loss, target);
    if (!fault.empty())
      return absl::InvalidArgumentError(
          absl::StrCat(dataset.inputs_name(), ": example ", i, ": the input, which is the target, ", fault));
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT if examples have several weights which are not those of the rows of each output.
absl::Status CheckWeights(const nn::Objective& objective, const nn::Model& model,
                          const data::Dataset& dataset) {
  if (!dataset.weighted()) return absl::OkStatus();
  for (size_t i = 0; i < objective.losses().size(); ++i) {
    const data::WeightPart& weights = dataset.weights()->PartOf(i);
    if (weights.per_example == 1) continue;
    const nn::ModelOutput& output = model.outputs()[objective.losses()[i].output];
    const Shape rows(
        output.shape.dims().subspan(0, static_cast<size_t>(std::max(output.shape.rank() - 1, 0))));
    if (rows == weights.shape) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        weights.name, ": examples have weights of the shape ", weights.shape.ToString(), "; output '",
        output.name, "' of the shape ", output.shape.ToString(), " takes ",
        rows.rank() == 0
            ? "one weight for each example"
            : absl::StrCat("weights [examples] or, for each of its rows, of the shape ", rows.ToString())));
  }
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

absl::Status CheckClassNames(const nn::Objective& objective, absl::Span<const std::string> class_names) {
  if (class_names.empty()) return absl::OkStatus();
  const nn::LossSpec& loss = objective.losses()[0].loss;
  const bool one = !objective.several_outputs();
  if (one && (nn::IsClassification(loss.kind) || TakesClassIndices(loss.kind))) return absl::OkStatus();
  if (!one) {
    return absl::InvalidArgumentError(
        absl::StrCat("the labels are names of ", data::DescribeClasses(class_names),
                     "; a model with several outputs needs numbers as targets"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the labels are names of ", data::DescribeClasses(class_names), "; ", nn::ClassName(loss.kind),
      " needs numbers as targets; use a cross entropy for class names"));
}

absl::Status CheckDataset(const nn::Model& model, const nn::Objective& objective,
                          const data::Dataset& dataset, std::vector<std::string>& remarks,
                          absl::Span<const std::string> dynamic_layers) {
  CAIRN_RETURN_IF_ERROR(CheckExampleShape(model, dataset.example_shape(), dataset.inputs_name()));
  CAIRN_RETURN_IF_ERROR(CheckAllTargets(objective, model, SourceOf(dataset), remarks));
  CAIRN_RETURN_IF_ERROR(CheckInputsAsTargets(objective, dataset));
  CAIRN_RETURN_IF_ERROR(CheckWeights(objective, model, dataset));
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

absl::Status CheckLabels(const nn::Model& model, const nn::Objective& objective, const data::Targets& targets,
                         absl::string_view name) {
  std::vector<std::string> remarks;
  return CheckAllTargets(objective, model, SourceOf(targets, name), remarks);
}

}  // namespace cairn::worker
