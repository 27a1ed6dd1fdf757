#include "worker/data/keras_arrays.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "worker/data/array_rows.h"

namespace cairn::data {
namespace {

// The arrays that make up the inputs of a set: "x_train", or one for each of several input layers.
std::vector<std::string> InputArrays(const NamedArrays& arrays, const DataOptions& options,
                                     const std::string& set) {
  const std::string whole = "x_" + set;
  if (options.input_names.size() < 2) return {whole};
  std::vector<std::string> names;
  for (const std::string& input : options.input_names) names.push_back(absl::StrCat(whole, "_", input));
  const bool any =
      std::any_of(names.begin(), names.end(), [&](const auto& name) { return arrays.Has(name); });
  return !any && arrays.Has(whole) ? std::vector<std::string>{whole} : names;
}

absl::StatusOr<Split> LoadSplit(const NamedArrays& arrays, const DataOptions& options,
                                const std::string& set) {
  std::vector<std::unique_ptr<RowSource>> parts;
  std::vector<std::string> names;
  for (const std::string& name : InputArrays(arrays, options, set)) {
    names.push_back(arrays.FullName(name));
    CAIRN_ASSIGN_OR_RETURN(Array array, arrays.Read(name));
    CAIRN_ASSIGN_OR_RETURN(parts.emplace_back(),
                           MakeArrayRows(std::move(array), names.back(), options.input_scale));
  }
  const std::string targets = "y_" + set, weights = "sample_weight_" + set;
  Split split;
  split.inputs_name = names.front();
  split.targets_name = arrays.FullName(targets);
  split.weights_name = arrays.FullName(weights);
  CAIRN_ASSIGN_OR_RETURN(split.inputs, JoinRows(std::move(parts), names));
  CAIRN_ASSIGN_OR_RETURN(const Array target_array, arrays.Read(targets));
  CAIRN_ASSIGN_OR_RETURN(split.targets, ReadTargets(target_array, split.targets_name));
  if (arrays.Has(weights)) {
    CAIRN_ASSIGN_OR_RETURN(const Array weight_array, arrays.Read(weights));
    CAIRN_ASSIGN_OR_RETURN(split.weights, ReadWeights(weight_array, split.weights_name));
  }
  return split;
}

}  // namespace

absl::StatusOr<Splits> LoadKerasArrays(const NamedArrays& arrays, const DataOptions& options) {
  Splits splits;
  CAIRN_ASSIGN_OR_RETURN(splits.train, LoadSplit(arrays, options, "train"));
  if (arrays.Has("y_test") || arrays.Has(InputArrays(arrays, options, "test").front())) {
    CAIRN_ASSIGN_OR_RETURN(splits.validation, LoadSplit(arrays, options, "test"));
  }
  return splits;
}

}  // namespace cairn::data
