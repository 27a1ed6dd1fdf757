// Layers that work on chosen axes, by ops that work on the last axes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "nn/layer/layer.h"
#include "nn/layer/onnx_graph.h"

namespace cairn::nn {

// Axes of a layer's input, in rising order, counted with the batch, which is axis 0 and never among them.
// INVALID_ARGUMENT if the input, a shape without the batch, has no such axis, there is none, or they are in another
// order.
absl::StatusOr<std::vector<int>> ResolveAxes(const std::vector<int64_t>& axes, const Shape& input);

// `shape` with another extent of its last axis.
Shape WithLastAxis(const Shape& shape, int64_t extent);

// The order of all axes in which these are the last, and its inverse.
std::vector<int> AxesLast(const std::vector<int>& axes, int rank);
std::vector<int> InverseOrder(const std::vector<int>& order);

// `make` makes an op of this number of variables for a tensor with `axes` last, which keeps the shape. The result is
// the op for `input`, which is transposed before it and back after it if necessary.
absl::StatusOr<std::unique_ptr<LayerOp>> MakeOnLastAxes(
    const kernels::TensorDesc& input, const std::vector<int>& axes, size_t variables,
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<LayerOp>>(const kernels::TensorDesc& last)> make,
    kernels::Device& device);

// The same in ONNX: `compute` gets the name of the value with `axes` last and returns that of the output.
OnnxValue OnnxOnLastAxes(OnnxValue input, const std::vector<int>& axes,
                         absl::FunctionRef<std::string(const std::string& last)> compute, OnnxBuilder& onnx);

}  // namespace cairn::nn
