// The cuDNN descriptors of convolutions, checked against our own rules for windows, without a GPU.
#include "kernels/cuda/linear/cudnn_descriptors.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/window.h"

namespace cairn::kernels::cuda {
namespace {

ConvolutionShape ShapeOf(int64_t extent, int64_t kernel, int64_t stride, int64_t dilation, Padding padding) {
  const Window window = MakeWindow(extent, Dilated(kernel, dilation), stride, padding);
  return {.n = 2,
          .h = extent,
          .w = extent + 1,
          .c = 3,
          .oh = window.output,
          .ow = MakeWindow(extent + 1, Dilated(kernel, dilation), stride, padding).output,
          .f = 5,
          .kh = kernel,
          .kw = kernel,
          .stride_h = stride,
          .stride_w = stride,
          .dilation_h = dilation,
          .dilation_w = dilation,
          .pad_top = window.pad_before,
          .pad_bottom = window.pad_after,
          .pad_left = MakeWindow(extent + 1, Dilated(kernel, dilation), stride, padding).pad_before,
          .pad_right = MakeWindow(extent + 1, Dilated(kernel, dilation), stride, padding).pad_after};
}

TEST(CudnnDescriptors, CudnnAgreesOnTheNumberOfWindows) {
  for (int64_t extent : {7, 8, 13, 28}) {
    for (int64_t kernel : {1, 2, 3, 5}) {
      for (int64_t stride : {1, 2, 3}) {
        for (int64_t dilation : {1, 2}) {
          for (Padding padding : {Padding::kValid, Padding::kSame}) {
            const ConvolutionShape shape = ShapeOf(extent, kernel, stride, dilation, padding);
            if (shape.oh < 1) continue;
            const auto described = Describe(shape, ElementType::kFloat32, Precision::kTensorFloat32);
            EXPECT_TRUE(described.ok())
                << described.status() << ": extent " << extent << ", kernel " << kernel << ", stride "
                << stride << ", dilation " << dilation << ", same " << (padding == Padding::kSame);
          }
        }
      }
    }
  }
}

TEST(CudnnDescriptors, ImagesHaveTheirChannelsLast) {
  const auto described =
      Describe(ShapeOf(8, 3, 1, 1, Padding::kValid), ElementType::kBFloat16, Precision::kBFloat16);
  ASSERT_TRUE(described.ok()) << described.status();
  cudnnDataType_t type;
  std::array<int, 4> extents{}, strides{};  // [n, c, h, w]
  ASSERT_EQ(cudnnGetTensor4dDescriptor(described->source.get(), &type, &extents[0], &extents[1], &extents[2],
                                       &extents[3], &strides[0], &strides[1], &strides[2], &strides[3]),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(type, CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(extents, (std::array{2, 3, 8, 9}));
  EXPECT_EQ(strides, (std::array{8 * 9 * 3, 1, 9 * 3, 3}));
}

// TensorFlow's rule for strides puts the odd row of padding after the image.
TEST(CudnnDescriptors, UnevenPaddingIsAddedToTheImage) {
  const auto described =
      Describe(ShapeOf(8, 3, 2, 1, Padding::kSame), ElementType::kFloat32, Precision::kFloat32);
  ASSERT_TRUE(described.ok()) << described.status();
  EXPECT_TRUE(described->has_border());
  EXPECT_EQ(described->more_rows, 1);
  EXPECT_EQ(described->more_columns, 0);  // 9 columns: 5 windows, one column of padding on each side
}

TEST(CudnnDescriptors, Float32IsNotRounded) {
  for (const auto& [precision, expected] :
       {std::pair{Precision::kFloat32, CUDNN_FMA_MATH}, {Precision::kTensorFloat32, CUDNN_DEFAULT_MATH}}) {
    const auto described = Describe(ShapeOf(8, 3, 1, 1, Padding::kValid), ElementType::kFloat32, precision);
    ASSERT_TRUE(described.ok()) << described.status();
    cudnnMathType_t math;
    ASSERT_EQ(cudnnGetConvolutionMathType(described->convolution.get(), &math), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(math, expected);
  }
}

TEST(CudnnDescriptors, GroupsAreUnimplemented) {
  ConvolutionShape shape = ShapeOf(8, 3, 1, 1, Padding::kValid);
  shape.groups = 3;
  shape.f = 6;
  EXPECT_TRUE(absl::IsUnimplemented(Describe(shape, ElementType::kFloat32, Precision::kFloat32).status()));
}

}  // namespace
}  // namespace cairn::kernels::cuda
