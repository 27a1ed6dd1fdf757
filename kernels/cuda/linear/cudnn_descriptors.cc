#include "kernels/cuda/linear/cudnn_descriptors.h"

#include <algorithm>
#include <array>

#include "kernels/cuda/runtime/library_status.h"

namespace cairn::kernels::cuda {
namespace {

cudnnDataType_t DataType(ElementType type) {
  switch (type) {
    case ElementType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    case ElementType::kFloat16:
      return CUDNN_DATA_HALF;
    default:
      break;
  }
  return CUDNN_DATA_FLOAT;
}

// cuDNN's default math computes float32 images in TensorFloat-32, and does not use the tensor cores for 16
// bits.
cudnnMathType_t MathType(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return CUDNN_FMA_MATH;
    case Precision::kTensorFloat32:
      return CUDNN_DEFAULT_MATH;
    case Precision::kBFloat16:
    case Precision::kFloat16:
      break;
  }
  return CUDNN_TENSOR_OP_MATH;
}

// The value fits an int, because the tensor has less than 2^31 elements.
int Narrow(int64_t value) {
  return static_cast<int>(value);
}

absl::Status SetImages(cudnnTensorDescriptor_t* descriptor, ElementType type, int64_t n, int64_t h, int64_t w,
                       int64_t c) {
  CAIRN_CUDNN(cudnnCreateTensorDescriptor(descriptor));
  CAIRN_CUDNN(cudnnSetTensor4dDescriptor(*descriptor, CUDNN_TENSOR_NHWC, DataType(type), Narrow(n), Narrow(c),
                                         Narrow(h), Narrow(w)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CudnnDescriptors> Describe(const ConvolutionShape& shape, ElementType type,
                                          Precision precision) {
  if (shape.groups != 1) return absl::UnimplementedError("groups");
  CudnnDescriptors d;
  d.more_rows = std::max<int64_t>(shape.pad_bottom - shape.pad_top, 0);
  d.more_columns = std::max<int64_t>(shape.pad_right - shape.pad_left, 0);
  const int64_t rows = shape.h + d.more_rows, columns = shape.w + d.more_columns;
  if (std::max({shape.destination_elements(), shape.kernel_elements(), shape.n * rows * columns * shape.c}) >=
      int64_t{1} << 31) {
    return absl::UnimplementedError("cuDNN supports fewer than 2^31 elements");
  }
  CAIRN_RETURN_IF_ERROR(SetImages(d.source.out(), type, shape.n, rows, columns, shape.c));
  CAIRN_RETURN_IF_ERROR(SetImages(d.destination.out(), type, shape.n, shape.oh, shape.ow, shape.f));
  CAIRN_CUDNN(cudnnCreateFilterDescriptor(d.filter.out()));
  CAIRN_CUDNN(cudnnSetFilter4dDescriptor(d.filter.get(), DataType(type), CUDNN_TENSOR_NHWC, Narrow(shape.f),
                                         Narrow(shape.c), Narrow(shape.kh), Narrow(shape.kw)));
  CAIRN_CUDNN(cudnnCreateConvolutionDescriptor(d.convolution.out()));
  CAIRN_CUDNN(cudnnSetConvolution2dDescriptor(
      d.convolution.get(), Narrow(shape.pad_top), Narrow(shape.pad_left), Narrow(shape.stride_h),
      Narrow(shape.stride_w), Narrow(shape.dilation_h), Narrow(shape.dilation_w), CUDNN_CROSS_CORRELATION,
      CUDNN_DATA_FLOAT));
  CAIRN_CUDNN(cudnnSetConvolutionMathType(d.convolution.get(), MathType(precision)));
  std::array<int, 4> dims{};  // [n, c, h, w]
  CAIRN_CUDNN(cudnnGetConvolution2dForwardOutputDim(d.convolution.get(), d.source.get(), d.filter.get(),
                                                    &dims[0], &dims[1], &dims[2], &dims[3]));
  if (dims[2] != shape.oh || dims[3] != shape.ow) return absl::UnimplementedError("padding");
  return d;
}

}  // namespace cairn::kernels::cuda
