#include "nn/step_masks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layers/step_mask.h"

namespace cairn::nn {
namespace {

constexpr int kMaxUnions = 1024;  // NodeOfMask() recurses for each

}  // namespace

absl::StatusOr<int> StepMasks::NodeOf(int value, AddNode add) {
  return NodeOfMask(mask_of_.at(value), add);
}

absl::StatusOr<int> StepMasks::NodeOfMask(size_t index, AddNode add) {
  if (masks_[index].node.has_value()) return *masks_[index].node;
  std::shared_ptr<const Layer> maker = masks_[index].maker;
  std::vector<int> inputs = masks_[index].inputs;
  if (maker == nullptr) {
    for (int& input : inputs) {
      CAIRN_ASSIGN_OR_RETURN(input, NodeOfMask(static_cast<size_t>(input), add));
    }
    maker = MakeMaskUnion(absl::StrCat("mask_union_", index));
  }
  CAIRN_ASSIGN_OR_RETURN(masks_[index].node, add(std::move(maker), std::move(inputs)));
  return *masks_[index].node;
}

absl::StatusOr<std::optional<size_t>> StepMasks::UnionOf(absl::Span<const int> values) {
  std::vector<int> parts;
  int depth = 0;
  for (const int value : values) {
    const auto found = mask_of_.find(value);
    if (found == mask_of_.end()) return std::nullopt;
    const auto mask = static_cast<int>(found->second);
    if (!absl::c_linear_search(parts, mask)) parts.push_back(mask);
    depth = std::max(depth, masks_[found->second].depth + 1);
  }
  if (parts.size() == 1) return static_cast<size_t>(parts[0]);
  if (depth > kMaxUnions) {
    return absl::InvalidArgumentError(
        absl::StrCat("its mask unites those of more than ", kMaxUnions, " layers in a row"));
  }
  masks_.push_back({.inputs = std::move(parts), .depth = depth});
  return masks_.size() - 1;
}

absl::Status StepMasks::AddOutput(const Layer& layer, absl::Span<const int> inputs, int output) {
  if (std::shared_ptr<const Layer> maker = layer.mask_maker(); maker != nullptr) {
    mask_of_[output] = masks_.size();
    masks_.push_back({.maker = std::move(maker), .inputs = {inputs.begin(), inputs.end()}});
    return absl::OkStatus();
  }
  switch (layer.mask_use()) {
    case MaskUse::kRefuses:
      if (absl::c_none_of(inputs, [this](int input) { return Has(input); })) return absl::OkStatus();
      return absl::InvalidArgumentError(
          "its input has a mask of time steps (of mask_zero or Masking), which this layer would read in "
          "Keras; that is "
          "not supported: remove the mask, or place the layer where there is none");
    case MaskUse::kPasses:
    case MaskUse::kTakesAndPasses: {
      CAIRN_ASSIGN_OR_RETURN(const std::optional<size_t> mask, UnionOf(inputs));
      if (mask.has_value()) mask_of_[output] = *mask;
      return absl::OkStatus();
    }
    case MaskUse::kTakesAndPassesFirst:
      if (Has(inputs[0])) mask_of_[output] = mask_of_.at(inputs[0]);
      return absl::OkStatus();
    case MaskUse::kDrops:
    case MaskUse::kTakes:
      break;
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
