// Larger images by repeated or interpolated pixels, in the layout of the input. In every layout the channels of a
// block are adjacent, and the innermost loops run over these channels.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/upsample.h"

namespace cairn::kernels::cpu {
namespace {

// Images as slabs [height, width, lanes] of adjacent channels.
struct UpsampleSlabs {
  int64_t height, width, lanes, count;
  int64_t out_height, out_width;

  UpsampleSlabs(const TensorDesc& input, const Shape& output)
      : height(input.shape[1]),
        width(input.shape[2]),
        lanes(input.layout == Layout::kRowMajor ? input.shape[3] : BlockOf(input.layout)),
        count(input.num_floats() / (height * width * lanes)),
        out_height(output[1]),
        out_width(output[2]) {}
  int64_t in_floats() const { return height * width * lanes; }
  int64_t out_floats() const { return out_height * out_width * lanes; }
};

class CpuRepeat2D final : public UnaryOp {
 public:
  CpuRepeat2D(onednn::Context& context, TensorDesc output, const UpsampleSlabs& slabs)
      : context_(context),
        output_(std::move(output)),
        slabs_(slabs),
        down_(slabs.out_height / slabs.height),
        across_(slabs.out_width / slabs.width) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    const int64_t lanes = slabs_.lanes, out_row = slabs_.out_width * lanes;
    ForRows([=, this](int64_t row) {
      const float* from = x + row * slabs_.width * lanes;
      float* const first = y + row * down_ * out_row;
      for (float* to = first; to < first + out_row; from += lanes) {
        for (int64_t i = 0; i < across_; ++i, to += lanes) std::copy_n(from, lanes, to);
      }
      for (int64_t i = 1; i < down_; ++i) {
        std::memcpy(first + i * out_row, first, static_cast<size_t>(out_row) * sizeof(float));
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    const int64_t lanes = slabs_.lanes, out_row = slabs_.out_width * lanes;
    ForRows([=, this](int64_t row) {
      float* to = dx + row * slabs_.width * lanes;
      std::fill_n(to, slabs_.width * lanes, 0.0f);
      for (int64_t w = 0; w < slabs_.width; ++w, to += lanes) {
        for (int64_t i = 0; i < down_; ++i) {
          const float* from = dy + (row * down_ + i) * out_row + w * across_ * lanes;
          for (int64_t j = 0; j < across_; ++j, from += lanes) {
            for (int64_t c = 0; c < lanes; ++c) to[c] += from[c];
          }
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Calls body(row of the input) for the rows of all slabs.
  template <typename Body>
  void ForRows(const Body& body) const {
    const int64_t grain = 1 + kElementGrain / (slabs_.out_width * slabs_.lanes * down_);
    ParallelFor(context_, slabs_.count * slabs_.height, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row);
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const UpsampleSlabs slabs_;
  const int64_t down_, across_;
};

class CpuBilinear2D final : public UnaryOp {
 public:
  CpuBilinear2D(onednn::Context& context, TensorDesc output, const UpsampleSlabs& slabs)
      : context_(context), output_(std::move(output)), slabs_(slabs) {
    const int64_t down = slabs.out_height / slabs.height, across = slabs.out_width / slabs.width;
    for (int64_t o = 0; o < slabs.out_height; ++o) rows_.push_back(TapOf(o, down, slabs.height));
    for (int64_t o = 0; o < slabs.out_width; ++o) columns_.push_back(TapOf(o, across, slabs.width));
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ForSlabs([=, this](int64_t slab) {
      const float* const from = x + slab * slabs_.in_floats();
      float* to = y + slab * slabs_.out_floats();
      for (const Tap& row : rows_) {
        const float *const low = RowOf(from, row.low), *const high = RowOf(from, row.high);
        for (const Tap& column : columns_) {
          const int64_t left = column.low * slabs_.lanes, right = column.high * slabs_.lanes;
          for (int64_t c = 0; c < slabs_.lanes; ++c) {
            const float above = low[left + c] * (1 - column.share) + low[right + c] * column.share;
            const float below = high[left + c] * (1 - column.share) + high[right + c] * column.share;
            to[c] = above * (1 - row.share) + below * row.share;
          }
          to += slabs_.lanes;
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    ForSlabs([=, this](int64_t slab) {
      const float* from = dy + slab * slabs_.out_floats();
      float* const to = dx + slab * slabs_.in_floats();
      std::fill_n(to, slabs_.in_floats(), 0.0f);
      for (const Tap& row : rows_) {
        float *const low = RowOf(to, row.low), *const high = RowOf(to, row.high);
        for (const Tap& column : columns_) {
          const int64_t left = column.low * slabs_.lanes, right = column.high * slabs_.lanes;
          // Taps may be one pixel, so every sum is written before the next is read.
          AddTimes((1 - row.share) * (1 - column.share), from, low + left);
          AddTimes((1 - row.share) * column.share, from, low + right);
          AddTimes(row.share * (1 - column.share), from, high + left);
          AddTimes(row.share * column.share, from, high + right);
          from += slabs_.lanes;
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  template <typename Float>
  Float* RowOf(Float* slab, int64_t row) const {
    return slab + row * slabs_.width * slabs_.lanes;
  }
  void AddTimes(float factor, const float* from, float* to) const {
    for (int64_t c = 0; c < slabs_.lanes; ++c) to[c] += factor * from[c];
  }
  template <typename Body>
  void ForSlabs(const Body& body) const {
    ParallelFor(context_, slabs_.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) body(slab);
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const UpsampleSlabs slabs_;
  std::vector<Tap> rows_, columns_;  // [row of the output], [column of the output]
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUpsample2D(onednn::Context& context,
                                                        const Upsample2DParams& params) {
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, OutputShape(params));
  TensorDesc output = {.shape = shape, .layout = params.input.layout};
  const UpsampleSlabs slabs(params.input, shape);
  if (params.interpolation == Interpolation::kNearest) {
    return std::make_unique<CpuRepeat2D>(context, std::move(output), slabs);
  }
  return std::make_unique<CpuBilinear2D>(context, std::move(output), slabs);
}

}  // namespace cairn::kernels::cpu
