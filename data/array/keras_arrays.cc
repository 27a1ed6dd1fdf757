#include "data/array/keras_arrays.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"
#include "data/array/array_rows.h"

namespace cairn::data {
namespace {

// The name of the validation set in all of Keras' own data sets.
constexpr absl::string_view kUsualValidationSet = "test";
// The names of validation sets, in order of preference.
constexpr absl::string_view kValidationSets[] = {"val", "valid", "validation", kUsualValidationSet};

// The names of the arrays of one set, whether or not they exist.
struct SetNames {
  std::vector<std::string> inputs;      // one name for all inputs of the model, or one for each input
  std::vector<std::string> row_splits;  // [name of inputs] of ragged inputs; else empty
  std::vector<std::string> targets;     // one name for all outputs of the model, or one for each
  std::vector<std::string> weights;     // one name for all outputs of the model, or one for each

  std::vector<std::string> all() const {
    std::vector<std::string> names = inputs;
    for (const std::string& splits : row_splits) {
      if (!splits.empty()) names.push_back(splits);
    }
    names.insert(names.end(), targets.begin(), targets.end());
    names.insert(names.end(), weights.begin(), weights.end());
    return names;
  }
};

// "x_train", or "X_train" if that exists.
absl::StatusOr<std::string> Spelled(const NamedArrays& arrays, const std::string& name) {
  std::string capital = name;
  capital[0] = absl::ascii_toupper(name[0]);
  if (!arrays.Has(capital)) return name;
  if (!arrays.Has(name)) return capital;
  return absl::InvalidArgumentError(absl::StrCat(arrays.FullName(name), " exists in addition to ", capital,
                                                 ": remove or rename one of them"));
}

// One name for all outputs, or one for each if any of these arrays exists.
absl::StatusOr<std::vector<std::string>> WeightNames(const NamedArrays& arrays, const DataOptions& options,
                                                     const std::string& set) {
  const std::string all = absl::StrCat("sample_weight_", set);
  std::vector<std::string> names;
  for (const TargetPart& part : options.target_parts) names.push_back(absl::StrCat(all, "_", part.output));
  const auto found = absl::c_find_if(names, [&](const std::string& name) { return arrays.Has(name); });
  if (found == names.end()) return std::vector<std::string>{all};
  if (!arrays.Has(all)) return names;
  return absl::InvalidArgumentError(absl::StrCat(arrays.FullName(*found), " exists in addition to ", all,
                                                 ", which has weights for all outputs: remove one of them"));
}

absl::StatusOr<SetNames> NamesOf(const NamedArrays& arrays, const DataOptions& options,
                                 const std::string& set) {
  SetNames names;
  CAIRN_ASSIGN_OR_RETURN(const std::string whole, Spelled(arrays, absl::StrCat("x_", set)));
  CAIRN_ASSIGN_OR_RETURN(const std::string all_targets, Spelled(arrays, absl::StrCat("y_", set)));
  for (const TargetPart& part : options.target_parts) {
    CAIRN_ASSIGN_OR_RETURN(names.targets.emplace_back(),
                           Spelled(arrays, absl::StrCat("y_", set, "_", part.output)));
  }
  const auto has = [&](const std::string& name) { return arrays.Has(name); };
  if (names.targets.empty() || (arrays.Has(all_targets) && absl::c_none_of(names.targets, has)))
    names.targets = {all_targets};
  CAIRN_ASSIGN_OR_RETURN(names.weights, WeightNames(arrays, options, set));
  if (options.input_names.size() > 1) {
    for (const std::string& input : options.input_names) {
      CAIRN_ASSIGN_OR_RETURN(names.inputs.emplace_back(),
                             Spelled(arrays, absl::StrCat("x_", set, "_", input)));
    }
  }
  const bool any = absl::c_any_of(names.inputs, has);
  if (names.inputs.empty() || (!any && arrays.Has(whole))) names.inputs = {whole};
  for (size_t i = 0; i < names.inputs.size(); ++i) {
    const bool ragged =
        options.IsRagged(i) && names.inputs.size() == std::max<size_t>(options.input_names.size(), 1);
    names.row_splits.push_back(ragged ? absl::StrCat(names.inputs[i], "_row_splits") : "");
    const int ids = options.WeightsOf(i);
    if (ragged && ids >= 0 && !arrays.Has(names.row_splits.back())) {
      names.row_splits.back() = absl::StrCat(names.inputs[static_cast<size_t>(ids)], "_row_splits");
    }
  }
  return names;
}

absl::Status LoadInputs(const NamedArrays& arrays, const DataOptions& options, const SetNames& names,
                        Split& split) {
  std::vector<std::unique_ptr<RowSource>> parts;
  std::vector<std::string> full_names;
  std::vector<std::vector<int64_t>> all_splits(names.inputs.size());  // of ragged inputs
  for (const std::string& name : names.inputs) {
    const std::string& full_name = full_names.emplace_back(arrays.FullName(name));
    CAIRN_ASSIGN_OR_RETURN(Array array, arrays.Read(name));
    split.byte_inputs.push_back(array.type == ElementType::kUint8);
    const std::string& row_splits = names.row_splits[parts.size()];
    std::unique_ptr<RowSource> rows;
    if (row_splits.empty()) {
      CAIRN_ASSIGN_OR_RETURN(rows, MakeArrayRows(std::move(array), full_name, options.ScaleOf(parts.size())));
    } else {
      std::vector<int64_t>& splits = all_splits[parts.size()];
      CAIRN_ASSIGN_OR_RETURN(const Array of_rows, arrays.Read(row_splits));
      const bool integers = IsInteger(options.input_types[parts.size()]);
      CAIRN_ASSIGN_OR_RETURN(splits, ReadRowSplits(of_rows, array, integers, full_name));
      rows = MakeRaggedRows(std::move(array), splits, full_name);
    }
    if (names.inputs.size() > 1 && row_splits.empty()) {
      CAIRN_RETURN_IF_ERROR(CheckInputShape(options, parts.size(), rows->row_shape(), full_name));
    }
    parts.push_back(std::move(rows));
  }
  split.inputs_name = full_names.front();
  CAIRN_RETURN_IF_ERROR(CheckSameSplits(options, all_splits, full_names));
  CAIRN_ASSIGN_OR_RETURN(split.inputs, JoinRows(std::move(parts), full_names));
  return absl::OkStatus();
}

absl::StatusOr<Targets> LoadTargets(const NamedArrays& arrays, const DataOptions& options,
                                    const SetNames& names) {
  std::vector<Targets> targets;
  std::vector<std::string> full_names;
  for (const std::string& name : names.targets) {
    CAIRN_ASSIGN_OR_RETURN(const Array array, arrays.Read(name));
    CAIRN_ASSIGN_OR_RETURN(targets.emplace_back(),
                           ReadTargets(array, full_names.emplace_back(arrays.FullName(name))));
  }
  if (targets.size() == 1) return std::move(targets[0]);
  return JoinTargets(targets, options.target_parts, full_names);
}

// Those of all outputs, or of each. No values if there are no such arrays.
absl::StatusOr<Weights> LoadWeights(const NamedArrays& arrays, const SetNames& names) {
  std::vector<std::optional<Weights>> weights(names.weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!arrays.Has(names.weights[i])) continue;
    CAIRN_ASSIGN_OR_RETURN(const Array array, arrays.Read(names.weights[i]));
    CAIRN_ASSIGN_OR_RETURN(weights[i], ReadWeights(array, arrays.FullName(names.weights[i])));
  }
  if (weights.size() > 1) return JoinWeights(weights);
  return weights[0].has_value() ? *std::move(weights[0]) : Weights();
}

absl::StatusOr<Split> LoadSplit(const NamedArrays& arrays, const DataOptions& options,
                                const SetNames& names) {
  Split split;
  CAIRN_RETURN_IF_ERROR(LoadInputs(arrays, options, names, split));
  split.targets_name = arrays.FullName(names.targets.front());
  if ((options.autoencoder || options.only_shapes) && !arrays.Has(names.targets.front())) {
    split.targets.values.resize(static_cast<size_t>(split.inputs->size()));  // in place of what is not read
  } else {
    CAIRN_ASSIGN_OR_RETURN(split.targets, LoadTargets(arrays, options, names));
  }
  CAIRN_ASSIGN_OR_RETURN(split.weights, LoadWeights(arrays, names));
  return split;
}

// A remark on arrays that are not in `used`; empty if there are none.
std::string UnusedRemark(const NamedArrays& arrays, const std::vector<std::string>& used) {
  const std::set<std::string> known(used.begin(), used.end());
  std::set<std::string> unused;
  for (const std::string& name : arrays.Names()) {
    if (known.count(name) == 0) unused.insert(name);
  }
  if (unused.empty()) return "";
  return absl::StrCat(arrays.FullName(used.front()), " and the arrays that belong to it are used; unused ",
                      unused.size() == 1 ? "array: " : "arrays: ", absl::StrJoin(unused, ", "));
}

}  // namespace

absl::StatusOr<Splits> LoadKerasArrays(const NamedArrays& arrays, const DataOptions& options) {
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(const SetNames training, NamesOf(arrays, options, "train"));
  CAIRN_ASSIGN_OR_RETURN(splits.train, LoadSplit(arrays, options, training));
  std::vector<std::string> used = training.all();
  for (const absl::string_view set : kValidationSets) {
    CAIRN_ASSIGN_OR_RETURN(const SetNames validation, NamesOf(arrays, options, std::string(set)));
    if (!arrays.Has(validation.targets.front()) && !arrays.Has(validation.inputs.front())) continue;
    CAIRN_ASSIGN_OR_RETURN(splits.validation, LoadSplit(arrays, options, validation));
    for (const std::string& name : validation.all()) used.push_back(name);
    splits.notes.push_back({absl::StrCat("validation on the arrays ", absl::StrJoin(validation.inputs, ", "),
                                         " and ", absl::StrJoin(validation.targets, ", ")),
                            /*usual=*/set == kUsualValidationSet});
    break;
  }
  if (std::string remark = UnusedRemark(arrays, used); !remark.empty()) splits.remarks.push_back(remark);
  return splits;
}

}  // namespace cairn::data
