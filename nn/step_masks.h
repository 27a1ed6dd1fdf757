// The masks of time steps (MaskUse in layer/layer.h), while a ModelBuilder makes a model: which values have one, and
// the nodes that compute it. A mask is computed only if something reads it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// Values are in the numbering of Node::inputs.
class StepMasks {
 public:
  // Adds a node of a layer without variables on these values, and returns it.
  using AddNode =
      absl::FunctionRef<absl::StatusOr<int>(std::shared_ptr<const Layer> layer, std::vector<int> inputs)>;

  bool Has(int value) const { return mask_of_.count(value) > 0; }
  // The node with the mask of a value that has one.
  absl::StatusOr<int> NodeOf(int value, AddNode add);
  // Notes the mask of `output`, which `layer` computes from these values. INVALID_ARGUMENT if the layer refuses masks
  // and one of them has a mask.
  absl::Status AddOutput(const Layer& layer, absl::Span<const int> inputs, int output);

 private:
  struct Mask {
    std::shared_ptr<const Layer> maker{};  // null for a union
    std::vector<int> inputs{};             // the values that the maker reads, or the masks of the union
    std::optional<int> node{};             // set when it is first read
    int depth = 0;                         // of unions within the union
  };
  absl::StatusOr<int> NodeOfMask(size_t index, AddNode add);
  // The mask that each of these values has; nullopt if one has none. INVALID_ARGUMENT for too many unions of unions.
  absl::StatusOr<std::optional<size_t>> UnionOf(absl::Span<const int> values);

  std::vector<Mask> masks_;
  std::map<int, size_t> mask_of_;  // [value] index of its mask
};

}  // namespace cairn::nn
