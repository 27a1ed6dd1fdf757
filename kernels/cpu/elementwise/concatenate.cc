// Concatenates tensors along an axis.
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

// In memory every input is [rows, its width], and the output contains their rows side by side.
class CpuConcatenate final : public NaryOp {
 public:
  CpuConcatenate(onednn::Context& context, TensorDesc output, int64_t rows, std::vector<int64_t> widths)
      : context_(context), output_(std::move(output)), rows_(rows), widths_(std::move(widths)) {
    for (int64_t width : widths_) width_ += width;
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    ForParts(
        [&](size_t k, int64_t in, int64_t out, size_t bytes) { std::memcpy(y + out, xs[k] + in, bytes); });
    return absl::OkStatus();
  }

  absl::Status Backward(absl::Span<const float* const>, const float* dy,
                        absl::Span<float* const> dxs) override {
    ForParts([&](size_t k, int64_t in, int64_t out, size_t bytes) {
      if (dxs[k] != nullptr) std::memcpy(dxs[k] + in, dy + out, bytes);
    });
    return absl::OkStatus();
  }

 private:
  // Calls body(input, offset in the input, offset in the output, bytes).
  template <typename Body>
  void ForParts(const Body& body) const {
    ParallelFor(context_, rows_, 1 + kElementGrain / width_, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t out = row * width_;
        for (size_t k = 0; k < widths_.size(); ++k) {
          body(k, row * widths_[k], out, static_cast<size_t>(widths_[k]) * sizeof(float));
          out += widths_[k];
        }
      }
    });
  }

  onednn::Context& context_;
  const TensorDesc output_;
  const int64_t rows_;
  const std::vector<int64_t> widths_;  // [input] floats of a row
  int64_t width_ = 0;                  // floats of a row of the output
};

// Whether blocked images can be joined along the channels: there must be no padding channels in between.
bool CanJoinBlocks(absl::Span<const TensorDesc> inputs, int axis) {
  const int64_t block = BlockOf(inputs[0].layout);
  for (const TensorDesc& input : inputs.first(inputs.size() - 1)) {
    if (axis != 3 || input.shape[3] % block != 0) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(onednn::Context& context,
                                                        absl::Span<const TensorDesc> inputs, int axis) {
  if (inputs.size() < 2) return absl::InvalidArgumentError("cannot concatenate fewer than two inputs");
  const Shape& first = inputs[0].shape;
  int64_t extent = 0;
  for (const TensorDesc& input : inputs) {
    bool fits = input.layout == inputs[0].layout && input.shape.rank() == first.rank() && axis >= 0 &&
                axis < first.rank();
    for (int other = 0; fits && other < first.rank(); ++other) {
      fits = input.shape[other] >= 1 && (other == axis || input.shape[other] == first[other]);
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("cannot concatenate ", inputs[0].ToString(), " and ",
                                                     input.ToString(), " along axis ", axis));
    }
    extent += input.shape[axis];
  }
  const bool blocked = inputs[0].layout != Layout::kRowMajor;
  if (blocked && !CanJoinBlocks(inputs, axis)) {
    return absl::UnimplementedError(
        absl::StrCat("cannot concatenate ", inputs[0].ToString(), " along axis ", axis));
  }
  TensorDesc output = {.shape = {}, .layout = inputs[0].layout};
  for (int other = 0; other < first.rank(); ++other)
    output.shape.Append(other == axis ? extent : first[other]);
  int64_t rows = 1;
  for (int before = 0; before < (blocked ? 1 : axis); ++before) rows *= first[before];
  std::vector<int64_t> widths;
  for (const TensorDesc& input : inputs) widths.push_back(input.num_floats() / rows);
  return std::make_unique<CpuConcatenate>(context, std::move(output), rows, std::move(widths));
}

}  // namespace cairn::kernels::cpu
