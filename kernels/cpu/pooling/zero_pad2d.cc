// Adds a border of zeros around every image.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuZeroPad2D final : public UnaryOp {
 public:
  CpuZeroPad2D(onednn::Context& context, TensorDesc output, const ZeroPad2DParams& params)
      : context_(context),
        output_(std::move(output)),
        top_(params.top),
        left_(params.left),
        height_(params.input.shape[1]),
        width_(params.input.shape[2]),
        lanes_(params.input.layout == Layout::kRowMajor ? params.input.shape[3]
                                                        : BlockOf(params.input.layout)),
        slabs_(params.input.num_floats() / (height_ * width_ * lanes_)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ForRows([=, this](int64_t in, int64_t out) { std::memcpy(y + out, x + in, RowBytes()); },
            [=, this](int64_t slab, int64_t floats) { std::fill_n(y + slab * floats, floats, 0.0f); });
    return absl::OkStatus();
  }
  absl::Status Backward(const float*, const float*, const float* dy, float* dx) override {
    ForRows([=, this](int64_t in, int64_t out) { std::memcpy(dx + in, dy + out, RowBytes()); },
            [](int64_t, int64_t) {});
    return absl::OkStatus();
  }

 private:
  size_t RowBytes() const { return static_cast<size_t>(width_ * lanes_) * sizeof(float); }

  // Calls begin_slab(slab, floats of an output slab), then copy(offset in the input, offset in the output)
  // for each of its rows.
  template <typename Copy, typename BeginSlab>
  void ForRows(const Copy& copy, const BeginSlab& begin_slab) const {
    const int64_t out_height = output_.shape[1], out_width = output_.shape[2];
    ParallelFor(context_, slabs_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        begin_slab(slab, out_height * out_width * lanes_);
        for (int64_t row = 0; row < height_; ++row) {
          copy((slab * height_ + row) * width_ * lanes_,
               ((slab * out_height + row + top_) * out_width + left_) * lanes_);
        }
      }
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t top_, left_, height_, width_;
  const int64_t lanes_;  // channels that are adjacent
  const int64_t slabs_;  // number of slabs [height, width, lanes]
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(onednn::Context& context,
                                                       const ZeroPad2DParams& params) {
  const Shape& input = params.input.shape;
  if (input.rank() != 4 || input.num_elements() < 1 ||
      std::min({params.top, params.bottom, params.left, params.right}) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot add padding of ", params.top, ", ", params.bottom,
                                                   ", ", params.left, " and ", params.right, " around ",
                                                   params.input.ToString()));
  }
  TensorDesc output = {.shape = {input[0], input[1] + params.top + params.bottom,
                                 input[2] + params.left + params.right, input[3]},
                       .layout = params.input.layout};
  return std::make_unique<CpuZeroPad2D>(context, std::move(output), params);
}

}  // namespace cairn::kernels::cpu
