// The three maps of a convolution, between a source [n, h, w, c] and a destination [n, oh, ow, f], with a
// kernel [kh, kw, c / groups, f]. Conv2D uses them, and Conv2DTranspose uses them in the reverse direction.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace cairn::kernels::cuda {

class Context;

struct ConvolutionShape {
  int64_t n = 0, h = 0, w = 0, c = 0;  // source
  int64_t oh = 0, ow = 0, f = 0;       // destination
  int64_t kh = 1, kw = 1;              // kernel
  int64_t stride_h = 1, stride_w = 1;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t groups = 1;

  constexpr int64_t source_elements() const { return n * h * w * c; }
  constexpr int64_t destination_elements() const { return n * oh * ow * f; }
  constexpr int64_t kernel_elements() const { return kh * kw * (c / groups) * f; }
};

// The shape of a convolution whose output has the shape `destination`.
ConvolutionShape ConvolutionShapeOf(const Conv2DParams& params, const Shape& destination);

struct ConvolutionParams {
  ConvolutionShape shape;
  ElementType type = ElementType::kFloat32;  // the type of source and destination
  bool bias = false, relu = false;           // whether Forward() adds a bias, applies a relu
  // Which of the maps are needed; BackwardKernel always is.
  bool forward = true, backward_source = true;
};

// Activations are device memory of the params' type, aligned to 256 bytes. Kernels, biases and their
// gradients are float32 at any address.
class Convolution {
 public:
  virtual ~Convolution() = default;
  // Sets the kernel that Forward() and BackwardSource() use until the next call.
  virtual absl::Status SetKernel(const float* kernel) = 0;
  virtual absl::Status Forward(const void* source, const float* bias, void* destination) = 0;
  virtual absl::Status BackwardSource(const void* ddestination, void* dsource) = 0;
  // If ConvolutionParams::forward is set, `source` must be the source of the last Forward().
  virtual absl::Status BackwardKernel(const void* source, const void* ddestination, float* dkernel) = 0;
};

// Chooses between the two implementations below, by what cuDNN supports and by speed.
absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(Context& context,
                                                             const ConvolutionParams& params);

// A convolution by cuDNN. UNIMPLEMENTED if cuDNN does not support these shapes.
absl::StatusOr<std::unique_ptr<Convolution>> MakeCudnnConvolution(Context& context,
                                                                  const ConvolutionParams& params);

// A convolution by our own kernels, for all shapes. It is fast if each channel is combined with few others,
// as in depthwise convolutions.
absl::StatusOr<std::unique_ptr<Convolution>> MakeDirectConvolution(Context& context,
                                                                   const ConvolutionParams& params);

}  // namespace cairn::kernels::cuda
