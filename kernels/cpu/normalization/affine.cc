// y = x * scale + offset by constants: rescaling and normalization of inputs.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuAffine final : public UnaryOp {
 public:
  CpuAffine(onednn::Context& context, TensorDesc output, std::vector<float> scale, std::vector<float> offset)
      : context_(context),
        output_(std::move(output)),
        rows_(output_.shape.num_elements() / static_cast<int64_t>(scale.size())),
        scale_(std::move(scale)),
        offset_(std::move(offset)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(const float* x, float* y) override {
    ForRows([=, this](int64_t row, int64_t width) {
      const float* from = x + row * width;
      float* to = y + row * width;
      for (int64_t j = 0; j < width; ++j)
        to[j] = from[j] * scale_[static_cast<size_t>(j)] + offset_[static_cast<size_t>(j)];
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const float* /*x*/, const float* /*y*/, const float* dy, float* dx) override {
    ForRows([=, this](int64_t row, int64_t width) {
      const float* from = dy + row * width;
      float* to = dx + row * width;
      for (int64_t j = 0; j < width; ++j) to[j] = from[j] * scale_[static_cast<size_t>(j)];
    });
    return absl::OkStatus();
  }

 private:
  template <typename Body>
  void ForRows(const Body& body) const {
    const auto width = static_cast<int64_t>(scale_.size());
    ParallelFor(context_, rows_, 1 + kElementGrain / width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) body(row, width);
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t rows_;
  const std::vector<float> scale_, offset_;  // [width]
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(onednn::Context& context, const AffineParams& params) {
  const Shape& shape = params.input.shape;
  const int64_t width = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const auto widen = [&](const std::vector<float>& values) {
    return values.size() == 1 ? std::vector<float>(static_cast<size_t>(width), values[0]) : values;
  };
  std::vector<float> scale = widen(params.scale), offset = widen(params.offset);
  if (params.input.layout != Layout::kRowMajor || width < 1 || static_cast<int64_t>(scale.size()) != width ||
      static_cast<int64_t>(offset.size()) != width) {
    return absl::InvalidArgumentError(absl::StrCat(params.scale.size(), " scales and ", params.offset.size(),
                                                   " offsets do not fit input ", params.input.ToString()));
  }
  return std::make_unique<CpuAffine>(context, params.input, std::move(scale), std::move(offset));
}

}  // namespace cairn::kernels::cpu
