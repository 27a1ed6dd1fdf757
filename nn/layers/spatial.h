// Layers that exist for sequences, images and volumes, with one to three spatial axes. All use the kernels of images:
// a sequence is an image of one column. For a volume an op runs twice, over its planes and then over an image whose
// rows are whole planes; this is right for ops that treat their axes one after another.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "nn/layer/layer.h"

namespace cairn::nn {

// INVALID_ARGUMENT unless the shape, without the batch, has `axes` spatial axes and then the channels.
absl::Status CheckSpatial(const Shape& input, size_t axes);

// Stands for an axis of an image that an op must not change.
inline constexpr int kNoAxis = -1;
// Makes an op for images [n, h, w, c] whose rows and columns are these spatial axes of the layer.
using MakeImageOp = absl::FunctionRef<absl::StatusOr<std::unique_ptr<LayerOp>>(
    const kernels::TensorDesc& image, int rows, int columns)>;
// The op for `input`, [n, spatial axes, c]. It is in any layout if it is an image.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeSpatialOp(const kernels::TensorDesc& input, MakeImageOp make,
                                                       kernels::Device& device);

// The op for a sequence [n, steps, c] whose kernels take images of one row, [n, 1, steps, c]. `make` makes it for
// these images. Its output is row-major.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeRowOp(
    const kernels::TensorDesc& sequence,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<LayerOp>>(const kernels::TensorDesc& row)> make,
    kernels::Device& device);

}  // namespace cairn::nn
