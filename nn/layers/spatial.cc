#include "nn/layers/spatial.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {

absl::Status CheckSpatial(const Shape& input, size_t axes) {
  constexpr const char* kKinds[] = {"a sequence [steps, channels]", "an image [height, width, channels]",
                                    "a volume [depth, height, width, channels]"};
  if (input.rank() == static_cast<int>(axes) + 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input ", input.ToString(), " is not ", kKinds[axes - 1]));
}

absl::StatusOr<std::unique_ptr<LayerOp>> MakeSpatialOp(const kernels::TensorDesc& input, MakeImageOp make,
                                                       kernels::Device& device) {
  const Shape& shape = input.shape;
  if (shape.rank() == 4) return make(input, 0, 1);
  if (shape.rank() == 3) {
    CAIRN_ASSIGN_OR_RETURN(auto op, make(input.WithShape({shape[0], shape[1], 1, shape[2]}), 0, kNoAxis));
    const Shape& image = op->output().shape;
    kernels::TensorDesc output = op->output().WithShape({image[0], image[1], image[3]});
    return std::make_unique<ReshapedOp>(std::move(output), std::move(op));
  }
  CAIRN_ASSIGN_OR_RETURN(auto planes,
                         make(input.WithShape({shape[0] * shape[1], shape[2], shape[3], shape[4]}), 1, 2));
  const Shape plane = planes->output().shape;
  CAIRN_ASSIGN_OR_RETURN(
      auto depth,
      make(planes->output().WithShape({shape[0], shape[1], plane[1] * plane[2], plane[3]}), 0, kNoAxis));
  kernels::TensorDesc output =
      depth->output().WithShape({shape[0], depth->output().shape[1], plane[1], plane[2], plane[3]});
  std::vector<ChainOp::Link> links;
  links.push_back({std::move(planes)});
  links.push_back({std::move(depth)});
  CAIRN_ASSIGN_OR_RETURN(auto both, ChainOp::Create(std::move(links), device));
  return std::make_unique<ReshapedOp>(std::move(output), std::move(both));
}

absl::StatusOr<std::unique_ptr<LayerOp>> MakeRowOp(
    const kernels::TensorDesc& sequence,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<LayerOp>>(const kernels::TensorDesc& row)> make,
    kernels::Device& device) {
  const Shape& shape = sequence.shape;
  CAIRN_ASSIGN_OR_RETURN(auto op, make(sequence.WithShape({shape[0], 1, shape[1], shape[2]})));
  if (op->output().layout != kernels::Layout::kRowMajor) {
    CAIRN_ASSIGN_OR_RETURN(auto reorder, ReorderOp::Create(op->output(), device));
    std::vector<ChainOp::Link> links;
    links.push_back({std::move(op)});
    links.push_back({std::move(reorder)});
    CAIRN_ASSIGN_OR_RETURN(op, ChainOp::Create(std::move(links), device));
  }
  const Shape& row = op->output().shape;
  kernels::TensorDesc output = op->output().WithShape({row[0], row[2], row[3]});
  return std::make_unique<ReshapedOp>(std::move(output), std::move(op));
}

}  // namespace cairn::nn
