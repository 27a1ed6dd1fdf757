// Model::AddShorter: networks that differ in the lengths of their sequences only.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/core/status.h"
#include "nn/model.h"

namespace cairn::nn {
namespace {

absl::Status Differs(absl::string_view what, const std::string& name, const Shape& shorter,
                     const Shape& whole) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", name, "' would have the shape ", shorter.ToString(), ", it has ",
                   whole.ToString(), ": only the first axis of inputs and outputs may be shorter"));
}

// Whether `shorter` is `whole`, or has a smaller first axis.
bool IsShorter(const Shape& shorter, const Shape& whole) {
  if (shorter == whole) return true;
  return shorter.rank() == whole.rank() && whole.rank() > 0 && shorter[0] < whole[0] &&
         shorter.dims().subspan(1) == whole.dims().subspan(1);
}

absl::Status CheckVariables(const Model& shorter, const Model& whole) {
  if (shorter.variables().size() != whole.variables().size()) {
    return absl::InvalidArgumentError(absl::StrCat("it would have ", shorter.variables().size(),
                                                   " variables, not ", whole.variables().size()));
  }
  for (size_t i = 0; i < whole.variables().size(); ++i) {
    const ModelVariable &here = shorter.variables()[i], &there = whole.variables()[i];
    if (here.name == there.name && here.shape == there.shape) continue;
    return Differs("variable", there.name, here.shape, there.shape);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Model::AddShorter(Model shorter) {
  CAIRN_RETURN_IF_ERROR(CheckVariables(shorter, *this));
  bool any = false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const ModelInput &here = shorter.inputs_[i], &there = inputs_[i];
    if (!IsShorter(here.shape, there.shape)) return Differs("input", there.name, here.shape, there.shape);
    any = any || here.shape != there.shape;
  }
  if (!any)
    return absl::InvalidArgumentError(
        "no input would be shorter; a length that the model file gives is not changed");
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const ModelOutput &here = shorter.outputs_[i], &there = outputs_[i];
    if (here.masked != there.masked || !IsShorter(here.shape, there.shape))
      return Differs("output", there.name, here.shape, there.shape);
  }
  shorter_.push_back(std::move(shorter));
  return absl::OkStatus();
}

}  // namespace cairn::nn
