// A convolution in cuDNN's words. Needs no handle, so that it can be tested without a card.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/convolution.h"
#include "kernels/cuda/handles.h"
#include "kernels/cuda_backend.h"

namespace cairn::kernels::cuda {

struct CudnnDescriptors {
  Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor> source, destination;
  Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor> filter;  // [f, kh, kw, c]
  Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor> convolution;
  // cuDNN pads alike on both sides: rows and columns that the shape has more behind than before are added to
  // the source beforehand, and `source` describes the result.
  int64_t more_rows = 0, more_columns = 0;
  bool has_border() const { return more_rows + more_columns > 0; }
};

// UNIMPLEMENTED for groups, for which loops of our own are faster, for more elements than cuDNN counts, and
// for padding that it has no words for.
absl::StatusOr<CudnnDescriptors> Describe(const ConvolutionShape& shape, ElementType type,
                                          Precision precision);

}  // namespace cairn::kernels::cuda
