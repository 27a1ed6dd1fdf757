// The descriptors of a convolution for cuDNN. They need no handle, so they can be tested without a GPU.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/linear/convolution.h"
#include "kernels/cuda/runtime/handles.h"
#include "kernels/cuda_backend.h"

namespace cairn::kernels::cuda {

struct CudnnDescriptors {
  Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor> source, destination;
  Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor> filter;  // [f, kh, kw, c]
  Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor> convolution;
  // cuDNN pads both sides equally. If the shape has more rows or columns of padding after the image than
  // before it, the excess is added to the source beforehand, and `source` describes the result.
  int64_t more_rows = 0, more_columns = 0;
  bool has_border() const { return more_rows + more_columns > 0; }
};

// UNIMPLEMENTED for groups (our own kernels are faster), for more elements than cuDNN supports, and for
// padding that cuDNN cannot express.
absl::StatusOr<CudnnDescriptors> Describe(const ConvolutionShape& shape, ElementType type,
                                          Precision precision);

}  // namespace cairn::kernels::cuda
