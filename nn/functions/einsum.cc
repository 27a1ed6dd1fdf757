// Einstein sums of one tensor, and of two as products of matrices, between sums and changes of the order of axes.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nn/functions/axes.h"
#include "nn/functions/bodies.h"

namespace cairn::nn {
namespace {

using nlohmann::json;

// Several times what tensors of 8 axes need.
constexpr size_t kLongestSubscripts = 100;

// The labels of the axes but the batch.
struct Subscripts {
  std::vector<std::string> inputs;  // one or two
  std::string output;
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
  if (text.size() > kLongestSubscripts)
    return absl::StrCat("has ", text.size(), " characters, more than ", kLongestSubscripts);
  const std::vector<std::string> sides = absl::StrSplit(text, "->");
  std::vector<std::string> inputs = absl::StrSplit(sides[0], ',');
  if (sides.size() != 2 || inputs.size() > 2)
    return "only the forms \"bij->bji\" and \"bij,bjk->bik\", of one or two tensors, are supported";
  std::string output = sides[1];
  const char batch = inputs[0].empty() ? '\0' : inputs[0][0];
  std::vector<std::string*> all;
  for (std::string& input : inputs) all.push_back(&input);
  all.push_back(&output);
  for (std::string* labels : all) {
    for (const char label : *labels) {
      if (!absl::ascii_isalpha(static_cast<unsigned char>(label)))
        return absl::StrCat("'", std::string(1, label), "' is not supported, only letters are");
    }
    if (labels->empty() || (*labels)[0] != batch)
      return "the first letter of all tensors must be that of the batch";
    if (HasTwice(*labels)) return absl::StrCat("'", *labels, "' has a letter twice, which is not supported");
    labels->erase(0, 1);
  }
  for (const char label : output) {
    if (!Has(inputs[0], label) && !Has(inputs.back(), label))
      return absl::StrCat("'", std::string(1, label), "' of the output is in no tensor");
  }
  read = {.inputs = std::move(inputs), .output = std::move(output)};
  return "";
}

// Fails unless the inputs have the axes that the subscripts name, and every letter has one extent.
void CheckShapes(const Subscripts& subscripts, FunctionSteps& steps) {
  if (steps.num_inputs() != subscripts.inputs.size()) {
    return steps.Fail("subscripts",
                      absl::StrCat("name ", subscripts.inputs.size(), " tensors, not ", steps.num_inputs()));
  }
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < subscripts.inputs.size(); ++i) {
    const std::string& labels = subscripts.inputs[i];
    const Shape& shape = steps.InputShape(i);
    if (shape.rank() != static_cast<int>(labels.size())) {
      return steps.Fail("subscripts", absl::StrCat("input ", shape.ToString(), " has ", AxesOf(shape),
                                                   " axes with the batch, not ", labels.size() + 1));
    }
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      const int64_t extent = shape[static_cast<int>(axis)];
      const auto [found, is_new] = extents.emplace(labels[axis], extent);
      if (!is_new && found->second != extent) {
        return steps.Fail("subscripts", absl::StrCat("'", std::string(1, labels[axis]), "' has the extents ",
                                                     found->second, " and ", extent));
      }
    }
  }
}

// Changes the order of the axes of the latest output from `labels` to `wanted`, the same labels.
void Order(const std::string& labels, const std::string& wanted, FunctionSteps& steps) {
  if (labels == wanted) return;
  std::vector<int64_t> dims;
  for (const char label : wanted) dims.push_back(static_cast<int64_t>(labels.find(label)) + 1);
  steps.Add("Permute", {{"dims", dims}});
}

// Goes on from input `i`, summed over the axes whose labels are not among `used`. Returns the labels that are left.
std::string SumUnused(size_t i, const std::string& labels, const std::string& used, FunctionSteps& steps) {
  steps.GoOnFrom(FunctionSteps::Input(i));
  AxesReduction sum = {.axes = {}, .option = {.layer = "GlobalSumPooling"}};
  std::string left;
  for (size_t axis = 0; axis < labels.size(); ++axis) {
    if (Has(used, labels[axis])) {
      left += labels[axis];
    } else {
      sum.axes.push_back(static_cast<int64_t>(axis) + 1);
    }
  }
  if (!sum.axes.empty()) Reduce(sum, steps);
  return left;
}

// The labels of two tensors in a product of matrices.
struct Product {
  std::string shared;   // in both tensors and in the output: each has a matrix of its own
  std::string common;   // in both tensors only: multiplied along
  std::string free[2];  // in one tensor and in the output
};

// The latest output, whose axes have these labels, as [shared, free, common], each joined into one axis; as
// [free, common] if nothing is shared. Returns the value.
int JoinAxes(const std::string& labels, const Product& product, const std::string& free,
             FunctionSteps& steps) {
  const Shape shape = steps.shape();
  std::vector<int64_t> joined;
  for (const std::string* group : {&product.shared, &free, &product.common}) {
    if (group == &product.shared && group->empty()) continue;
    joined.push_back(1);
    for (const char label : *group) joined.back() *= shape[static_cast<int>(labels.find(label))];
  }
  Order(labels, absl::StrCat(product.shared, free, product.common), steps);
  if (ExtentsOf(steps.shape()) != joined) steps.Reshape(joined);
  return steps.latest();
}

void Multiply(const Subscripts& subscripts, FunctionSteps& steps) {
  Product product;
  for (const char label : subscripts.inputs[0]) {
    if (!Has(subscripts.inputs[1], label)) continue;
    (Has(subscripts.output, label) ? product.shared : product.common) += label;
  }
  std::map<char, int64_t> extents;
  std::vector<int> factors;
  for (size_t i = 0; i < 2; ++i) {
    const std::string labels =
        SumUnused(i, subscripts.inputs[i], subscripts.output + subscripts.inputs[1 - i], steps);
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      extents[labels[axis]] = steps.shape()[static_cast<int>(axis)];
      if (!Has(subscripts.inputs[1 - i], labels[axis])) product.free[i] += labels[axis];
    }
    factors.push_back(JoinAxes(labels, product, product.free[i], steps));
  }
  steps.Add("Dot", {{"axes", -1}, {"batch_axes", product.shared.empty() ? 1 : 2}}, factors);
  const std::string computed = absl::StrCat(product.shared, product.free[0], product.free[1]);
  std::vector<int64_t> output;
  for (const char label : computed) output.push_back(extents[label]);
  steps.Reshape(output);
  Order(computed, subscripts.output, steps);
}

}  // namespace

FunctionBody ReadEinsum(const FunctionOption&, ConfigReader& config) {
  Subscripts subscripts;
  const std::string text = config.String("subscripts", "");
  const std::string fault = ReadSubscripts(text, subscripts);
  if (!fault.empty())
    config.Fail("subscripts", absl::StrCat("\"", text.substr(0, kLongestSubscripts), "\": ", fault));
  return [subscripts](FunctionSteps& steps) {
    CheckShapes(subscripts, steps);
    if (steps.failed()) return;
    if (subscripts.inputs.size() == 2) return Multiply(subscripts, steps);
    Order(SumUnused(0, subscripts.inputs[0], subscripts.output, steps), subscripts.output, steps);
  };
}

}  // namespace cairn::nn
