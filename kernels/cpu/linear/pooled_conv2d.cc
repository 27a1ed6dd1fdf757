// A convolution, its relu and 2x2 max pooling as one op, with our own loops: after a pooling, three quarters
// of the gradients are 0, and a convolution that skips them has a quarter of the work. The unpooled image is
// never written. docs/benchmarks.md has the speed.
#include "kernels/cpu/linear/pooled_conv2d.h"

#include <omp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/cpu/loops/instruction_sets.h"
#include "kernels/cpu/loops/pooled_conv2d_loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/window.h"

namespace cairn::kernels::cpu {
namespace {

int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// A batch is divided into at most this number of pieces. Each piece sums its kernel gradients separately, so
// that the result does not depend on the number of threads.
constexpr int64_t kMaxPieces = 16;
// Images with at most this number of channels are planar. If only the kernel's gradient is needed, their
// backward loops use lanes along the filters, because neither a pixel nor a row of the kernel would fill the
// lanes.
constexpr int64_t kFewChannels = 4;

// Whether this op is faster than oneDNN's convolution followed by pooling: measured on shapes of 1 to 256
// channels, with AVX-512 and with AVX2. Beyond these sizes, the kernel and its gradient no longer fit the
// second-level cache, or four rows of the image and of its gradient no longer fit the first-level cache.
bool Fits(const Conv2DParams& params, const Shape& unpooled) {
  constexpr int64_t kMaxWeights = 96 << 10, kMaxFloatsOfRows = 16 << 10;
  const int64_t channels = params.input.shape[3];
  return params.kernel_height * params.kernel_width * channels * params.filters <= kMaxWeights &&
         (params.kernel_height + 1) * (unpooled[2] + params.kernel_width - 1) * channels <= kMaxFloatsOfRows;
}

// The number of rows of windows that are processed at once: the part of the image that they cover, and its
// gradient, must fit the first-level cache. All rows are divided into equal parts.
int64_t RowsAtOnce(const PooledShape& shape) {
  constexpr int64_t kFloats = 8 << 10;
  const int64_t in_row = shape.columns * shape.channels;
  const int64_t most = std::max<int64_t>((kFloats / in_row - shape.kernel_height + 1) / 2, 1);
  const int64_t parts = (shape.out_height + most - 1) / most;
  return (shape.out_height + parts - 1) / parts;
}

class PooledConv2D final : public LinearOp {
 public:
  PooledConv2D(onednn::Context& context, const Conv2DParams& params, const Shape& unpooled)
      : context_(context),
        input_(params.input),
        filters_(params.filters),
        needs_input_gradient_(params.needs_input_gradient),
        code_(CAIRN_BEST_LOOPS(PooledLoops)),
        planar_(params.input.shape[3] <= kFewChannels),
        lanes_along_filters_(planar_ && !params.needs_input_gradient),
        shape_({.channels = input_.shape[3],
                .blocks = RoundUp(filters_, code_.lanes) / code_.lanes,
                .kernel_height = params.kernel_height,
                .kernel_width = params.kernel_width,
                .rows = unpooled[1] + params.kernel_height - 1,
                .columns = unpooled[2] + params.kernel_width - 1,
                .out_height = unpooled[1] / 2,
                .out_width = unpooled[2] / 2}),
        pad_top_(MakeWindow(input_.shape[1], params.kernel_height, 1, params.padding).pad_before),
        pad_left_(MakeWindow(input_.shape[2], params.kernel_width, 1, params.padding).pad_before),
        output_({.shape = {input_.shape[0], shape_.out_height, shape_.out_width, filters_},
                 .layout = code_.lanes == 16 ? Layout::kBlocked16 : Layout::kBlocked8}),
        form_(planar_ ? Form::kPlanar : Form::kBlocked),
        in_place_(form_ == Form::kBlocked && params.padding == Padding::kValid &&
                  input_.layout == output_.layout),
        span_(RoundUp(shape_.kernel_width * shape_.channels, code_.lanes)),
        rows_at_once_(RowsAtOnce(shape_)),
        pieces_(std::min(input_.shape[0], kMaxPieces)),
        argmax_(static_cast<size_t>(output_.num_floats())),
        kernel_(std::max(blocks_kernel_floats(), rows_kernel_floats())),
        bias_(padded_filters()),
        partial_(pieces_ * partial_floats()) {
    for (int64_t c = 0; c < shape_.channels; ++c) {
      for (int64_t i = 0; i < shape_.kernel_height; ++i) {
        for (int64_t j = 0; j < shape_.kernel_width; ++j) {
          offsets_.push_back(OffsetIn(form_, i, j, c));
        }
      }
    }
    for (int thread = 0; thread < context.threads(); ++thread) {
      const int64_t rows_floats = lanes_along_filters_ ? 0 : image_floats(Form::kRows);
      scratch_.push_back({.image = AlignedBuffer(in_place_ ? 0 : image_floats(form_)),
                          .rows = AlignedBuffer(rows_floats),
                          .drows = AlignedBuffer(needs_input_gradient_ ? rows_floats : 0),
                          .passed = std::vector<Passed>(static_cast<size_t>(
                              lanes_along_filters_ ? 0 : code_.lanes * shape_.windows()))});
    }
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, const float* kernel, const float* bias, float* y) override {
    PackKernel(kernel);
    if (bias != nullptr) std::copy(bias, bias + filters_, bias_.data());
    ForEachImage([&](int64_t n, Scratch& scratch) {
      const int64_t to = n * output_floats();
      const float* image = x + n * input_floats();
      if (!in_place_) image = CopyIn(form_, image, scratch.image.data());
      (planar_ ? code_.forward_planar : code_.forward_blocked)(shape_, image, offsets_.data(), kernel_.data(),
                                                               bias_.data(), y + to, argmax_.data() + to);
      ClearPaddingFilters(y + to);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* x, const float* kernel, const float* y, float* dy, float* dx,
                        float* dkernel, float* dbias) override {
    if (needs_input_gradient_) PackKernelRows(kernel);
    context_.UseThreads();
#pragma omp parallel for schedule(static)
    for (int64_t piece = 0; piece < pieces_; ++piece) {
      Scratch& scratch = scratch_[static_cast<size_t>(omp_get_thread_num())];
      float* const dbias_sum = partial_.data() + piece * partial_floats();
      float* const dkernel_sum = dbias_sum + padded_filters();
      std::fill(dbias_sum, dbias_sum + partial_floats(), 0.0f);
      for (int64_t n = FirstOf(piece); n < FirstOf(piece + 1); ++n) {
        const int64_t from = n * output_floats();
        code_.bias_gradient(shape_, y + from, dy + from, dbias_sum);
        ImageBackward(x + n * input_floats(), y + from, dy + from, argmax_.data() + from, scratch,
                      dx == nullptr ? nullptr : dx + n * input_floats(), dkernel_sum);
      }
    }
    SumPartials(dkernel, dbias);
    return absl::OkStatus();
  }

 private:
  // The layout of a padded image in working memory.
  enum class Form {
    kPlanar,   // [channels, rows, columns]
    kBlocked,  // [channel blocks, rows, columns, lanes]
    kRows,     // [rows, columns, channels]
  };

  // Working memory of one thread. Each image buffer holds only one form, so that its padding stays 0.
  struct Scratch {
    AlignedBuffer image;         // in the layout `form_`
    AlignedBuffer rows, drows;   // the image and its gradient as Form::kRows
    std::vector<Passed> passed;  // [lanes, windows]
  };

  int64_t padded_filters() const { return shape_.blocks * code_.lanes; }
  int64_t blocks_kernel_floats() const { return padded_filters() * shape_.taps(); }
  int64_t rows_kernel_floats() const {
    return lanes_along_filters_ ? 0 : padded_filters() * shape_.kernel_height * span_;
  }
  int64_t partial_floats() const {
    return padded_filters() + (lanes_along_filters_ ? blocks_kernel_floats() : rows_kernel_floats());
  }
  // The size of an image's buffer, with slack for the last vector of the last row.
  int64_t image_floats(Form form) const {
    const int64_t channels = form == Form::kBlocked ? RoundUp(shape_.channels, code_.lanes) : shape_.channels;
    return shape_.rows * shape_.columns * channels + code_.lanes;
  }
  int64_t OffsetIn(Form form, int64_t row, int64_t column, int64_t c) const {
    const int64_t plane = shape_.rows * shape_.columns, pixel = row * shape_.columns + column;
    switch (form) {
      case Form::kPlanar:
        return c * plane + pixel;
      case Form::kBlocked:
        return (c / code_.lanes * plane + pixel) * code_.lanes + c % code_.lanes;
      case Form::kRows:
        return pixel * shape_.channels + c;
    }
    return 0;
  }
  // Clears the outputs of padding filters. Where the image is infinite or NaN they are not 0, because 0 *
  // infinity is NaN.
  void ClearPaddingFilters(float* y) const {
    const int64_t filters = filters_ % code_.lanes;
    if (filters == 0) return;
    float* block = y + (shape_.blocks - 1) * shape_.windows() * code_.lanes;
    for (int64_t window = 0; window < shape_.windows(); ++window, block += code_.lanes) {
      std::fill(block + filters, block + code_.lanes, 0.0f);
    }
  }
  int64_t input_floats() const { return input_.num_floats() / input_.shape[0]; }
  int64_t output_floats() const { return output_.num_floats() / output_.shape[0]; }
  int64_t FirstOf(int64_t piece) const { return piece * input_.shape[0] / pieces_; }

  template <typename Body>
  void ForEachImage(const Body& body) {
    context_.UseThreads();
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < input_.shape[0]; ++n) {
      body(n, scratch_[static_cast<size_t>(omp_get_thread_num())]);
    }
  }

  // Calls visit(offset in the input, offset in a padded image, channels) for the runs of channels that are
  // adjacent both in the input and in the lanes of a block.
  template <typename Visit>
  void ForEachRun(Form form, const Visit& visit) const {
    const int64_t height = input_.shape[1], width = input_.shape[2], channels = shape_.channels;
    const int64_t block = input_.layout == Layout::kRowMajor ? channels : BlockOf(input_.layout);
    const int64_t run = std::min(block, code_.lanes);
    for (int64_t c = 0; c < channels; c += run) {
      for (int64_t h = 0; h < height; ++h) {
        for (int64_t w = 0; w < width; ++w) {
          visit((c / block * height * width + h * width + w) * block + c % block,
                OffsetIn(form, h + pad_top_, w + pad_left_, c), std::min(run, channels - c));
        }
      }
    }
  }

  // Copies an image of the input into a padded one. Returns `image`.
  const float* CopyIn(Form form, const float* x, float* image) const {
    const int64_t stride = form == Form::kPlanar ? shape_.rows * shape_.columns : 1;
    ForEachRun(form, [&](int64_t from, int64_t to, int64_t channels) {
      for (int64_t i = 0; i < channels; ++i) image[to + i * stride] = x[from + i];
    });
    return image;
  }

  // Copies the gradient of a padded image to dx. Padding channels of dx become 0.
  void CopyOut(const float* rows, float* dx) const {
    if (input_.num_floats() != input_.shape.num_elements()) std::fill(dx, dx + input_floats(), 0.0f);
    ForEachRun(Form::kRows, [&](int64_t to, int64_t from, int64_t channels) {
      std::copy(rows + from, rows + from + channels, dx + to);
    });
  }

  void ImageBackward(const float* x, const float* y, const float* dy, const WindowIndex* argmax,
                     Scratch& scratch, float* dx, float* dkernel) const {
    if (lanes_along_filters_) {
      CopyIn(form_, x, scratch.image.data());
      code_.kernel_gradient(shape_, scratch.image.data(), offsets_.data(), y, dy, argmax, dkernel);
      return;
    }
    CopyIn(Form::kRows, x, scratch.rows.data());
    float* const drows = dx == nullptr ? nullptr : scratch.drows.data();
    if (drows != nullptr) std::fill(drows, drows + scratch.drows.size(), 0.0f);
    code_.passed_gradient(shape_, scratch.rows.data(), kernel_.data(), y, dy, argmax, span_ / code_.lanes,
                          rows_at_once_, scratch.passed.data(), dkernel, drows);
    if (drows != nullptr) CopyOut(drows, dx);
  }

  // The position of the element [i, j, c, 0] of Keras' kernel in a packed kernel. BlocksTap() returns the
  // position in [blocks, taps, lanes], where the taps are in the order of `offsets_`; RowsTap() returns it in
  // [blocks, lanes, kernel_height, span].
  int64_t BlocksTap(int64_t i, int64_t j, int64_t c) const {
    return ((c * shape_.kernel_height + i) * shape_.kernel_width + j) * code_.lanes;
  }
  int64_t RowsTap(int64_t i, int64_t j, int64_t c) const { return i * span_ + j * shape_.channels + c; }

  // Calls visit(index, i, j, c) for each tap. `index` is the position of [i, j, c, 0] in Keras' kernel.
  template <typename Visit>
  void ForEachTap(const Visit& visit) const {
    int64_t tap = 0;
    for (int64_t i = 0; i < shape_.kernel_height; ++i) {
      for (int64_t j = 0; j < shape_.kernel_width; ++j) {
        for (int64_t c = 0; c < shape_.channels; ++c) visit(filters_ * tap++, i, j, c);
      }
    }
  }

  void PackKernel(const float* kernel) {
    ForEachTap([&](int64_t from, int64_t i, int64_t j, int64_t c) {
      float* const to = kernel_.data() + BlocksTap(i, j, c);
      for (int64_t block = 0; block < shape_.blocks; ++block) {
        const float* const of_block = kernel + from + block * code_.lanes;
        const int64_t lanes = std::min(code_.lanes, filters_ - block * code_.lanes);
        float* const packed = to + block * shape_.taps() * code_.lanes;
        std::copy(of_block, of_block + lanes, packed);
        std::fill(packed + lanes, packed + code_.lanes, 0.0f);
      }
    });
  }

  void PackKernelRows(const float* kernel) {
    std::fill(kernel_.data(), kernel_.data() + rows_kernel_floats(), 0.0f);
    ForEachTap([&](int64_t from, int64_t i, int64_t j, int64_t c) {
      float* const to = kernel_.data() + RowsTap(i, j, c);
      for (int64_t f = 0; f < filters_; ++f) to[f * shape_.kernel_height * span_] = kernel[from + f];
    });
  }

  // Sums the partial gradients of the pieces, in order.
  void SumPartials(float* dkernel, float* dbias) {
    float* const sum = partial_.data();
    for (int64_t piece = 1; piece < pieces_; ++piece) {
      const float* const addend = sum + piece * partial_floats();
      for (int64_t i = 0; i < partial_floats(); ++i) sum[i] += addend[i];
    }
    if (dbias != nullptr) std::copy(sum, sum + filters_, dbias);
    const float* const packed = sum + padded_filters();
    ForEachTap([&](int64_t to, int64_t i, int64_t j, int64_t c) {
      if (lanes_along_filters_) {
        for (int64_t f = 0; f < filters_; ++f) {
          const int64_t block = f / code_.lanes, lane = f % code_.lanes;
          dkernel[to + f] = packed[block * shape_.taps() * code_.lanes + BlocksTap(i, j, c) + lane];
        }
      } else {
        const float* const from = packed + RowsTap(i, j, c);
        for (int64_t f = 0; f < filters_; ++f) dkernel[to + f] = from[f * shape_.kernel_height * span_];
      }
    });
  }

  onednn::Context& context_;
  const TensorDesc input_;
  const int64_t filters_;
  const bool needs_input_gradient_;
  const PooledCode code_;
  const bool planar_;               // the forward pass uses planar images
  const bool lanes_along_filters_;  // the backward pass uses lanes along the filters
  const PooledShape shape_;
  const int64_t pad_top_, pad_left_;
  const TensorDesc output_;
  const Form form_;      // the layout of images in the forward pass
  const bool in_place_;  // the input already has this layout
  const int64_t span_;   // floats of a row of the kernel, rounded up to whole vectors
  const int64_t rows_at_once_;
  const int64_t pieces_;
  std::vector<int64_t> offsets_;     // [tap] its offset in an image of `form_`
  std::vector<WindowIndex> argmax_;  // [output, padding filters included]
  AlignedBuffer kernel_;             // packed, for forward or for backward
  AlignedBuffer bias_;               // [padded filters]
  AlignedBuffer partial_;            // [piece] its dbias, then its dkernel
  std::vector<Scratch> scratch_;     // [thread]
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinearOp>> MakePooledConv2D(onednn::Context& context,
                                                           const Conv2DParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape unpooled, OutputShape(params));
  if (params.pool_height != 2 || params.pool_width != 2 || std::min(unpooled[1], unpooled[2]) < 2 ||
      !params.relu || params.groups != 1 || !Fits(params, unpooled) ||
      std::max({params.stride_height, params.stride_width, params.dilation_height, params.dilation_width}) >
          1) {
    return absl::UnimplementedError("pooling cannot be fused with this convolution");
  }
  return std::make_unique<PooledConv2D>(context, params, unpooled);
}

}  // namespace cairn::kernels::cpu
