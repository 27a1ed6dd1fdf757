// Einstein sums of two tensors as one product of matrices for each example, between changes of the order of axes.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nn/function_bodies.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// The labels of the axes but the batch.
struct Subscripts {
  std::string first, second, output;
};

bool HasTwice(const std::string& labels) {
  for (const char label : labels) {
    if (labels.find(label) != labels.rfind(label)) return true;
  }
  return false;
}

bool Has(const std::string& labels, char label) {
  return labels.find(label) != std::string::npos;
}

// Why no layers compute the sum; empty: they do.
std::string ReadSubscripts(const std::string& text, Subscripts& read) {
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  const std::vector<std::string> inputs = absl::StrSplit(sides[0], ',');
  if (sides.size() != 2 || inputs.size() != 2)
    return "only the form \"bij,bjk->bik\", of two tensors, is supported";
  for (const std::string& labels : {inputs[0], inputs[1], sides[1]}) {
    for (const char label : labels) {
      if (!absl::ascii_isalpha(static_cast<unsigned char>(label)))
        return absl::StrCat("'", std::string(1, label), "' is not supported, only letters are");
    }
    if (labels.empty() || labels[0] != inputs[0][0])
      return "the first letter of all tensors must be that of the batch";
    if (HasTwice(labels)) return absl::StrCat("'", labels, "' has a letter twice, which is not supported");
  }
  read = {.first = inputs[0].substr(1), .second = inputs[1].substr(1), .output = sides[1].substr(1)};
  for (const char label : read.first + read.second) {
    const bool in_both = Has(read.first, label) && Has(read.second, label);
    if (in_both == Has(read.output, label))
      return absl::StrCat("'", std::string(1, label), "' ",
                          in_both ? "is multiplied along, and is in the output: only the batch may be both"
                                  : "is in one tensor only, and not in the output: sum over it before");
  }
  for (const char label : read.output) {
    if (!Has(read.first + read.second, label))
      return absl::StrCat("'", std::string(1, label), "' of the output is in neither tensor");
  }
  if (read.first.find_first_of(read.second) == std::string::npos) return "the tensors have no axis in common";
  return "";
}

// Changes the order of the axes of the latest output from `labels` to `wanted`, the same labels.
void Order(const std::string& labels, const std::string& wanted, FunctionSteps& steps) {
  if (labels == wanted) return;
  std::vector<int64_t> dims;
  for (const char label : wanted) dims.push_back(static_cast<int64_t>(labels.find(label)) + 1);
  steps.Add("Permute", {{"dims", dims}});
}

// Input `i` with the axes `common` as the last, joined. Returns the value.
int Prepare(size_t i, const std::string& labels, const std::string& common, std::string& free,
            FunctionSteps& steps) {
  steps.GoOnFrom(FunctionSteps::Input(i));
  const Shape shape = steps.shape();
  if (shape.rank() != static_cast<int>(labels.size())) {
    steps.Fail("subscripts", absl::StrCat("input ", shape.ToString(), " has ", shape.rank() + 1,
                                          " axes with the batch, not ", labels.size() + 1));
    return FunctionSteps::Input(i);
  }
  int64_t rows = 1, width = 1;
  for (size_t axis = 0; axis < labels.size(); ++axis) {
    const bool is_common = Has(common, labels[axis]);
    (is_common ? width : rows) *= shape[static_cast<int>(axis)];
    if (!is_common) free += labels[axis];
  }
  Order(labels, free + common, steps);
  if (free.size() != 1 || common.size() != 1) steps.Reshape({rows, width});
  return steps.latest();
}

}  // namespace

FunctionBody ReadEinsum(const FunctionOption&, ConfigReader& config) {
  Subscripts subscripts;
  const std::string text = config.String("subscripts", "");
  const std::string fault = ReadSubscripts(text, subscripts);
  if (!fault.empty()) config.Fail("subscripts", absl::StrCat("\"", text, "\": ", fault));
  return [subscripts](FunctionSteps& steps) {
    std::string common, free;
    for (const char label : subscripts.first) {
      if (Has(subscripts.second, label)) common += label;
    }
    std::vector<int64_t> extents;
    for (const auto& [i, labels] : {std::pair{0, subscripts.first}, {1, subscripts.second}}) {
      const Shape& shape = steps.InputShape(static_cast<size_t>(i));
      for (size_t axis = 0; axis < labels.size() && static_cast<int>(axis) < shape.rank(); ++axis) {
        if (!Has(common, labels[axis])) extents.push_back(shape[static_cast<int>(axis)]);
      }
    }
    const int first = Prepare(0, subscripts.first, common, free, steps);
    std::string free_of_second;
    const int second = Prepare(1, subscripts.second, common, free_of_second, steps);
    steps.Add("Dot", {{"axes", -1}}, {first, second});
    steps.Reshape(extents);
    Order(free + free_of_second, subscripts.output, steps);
  };
}

}  // namespace cairn::nn
