// Concatenates tensors along an axis. The type of the elements does not matter.
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/pack.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

// Copies `width` units of each row from one matrix into another; each matrix has its own distance between
// rows. One thread for each unit, grid-strided. Deterministic.
template <typename Unit>
__global__ void CopyColumns(int64_t rows, int64_t width, const Unit* from, int64_t from_width, Unit* to,
                            int64_t to_width) {
  const int64_t units = rows * width;
  for (int64_t i = CAIRN_GLOBAL_THREAD; i < units; i += CAIRN_GLOBAL_THREADS) {
    const int64_t row = i / width, column = i - row * width;
    to[row * to_width + column] = from[row * from_width + column];
  }
}

// In memory every input is [rows, its width], and the output contains their rows side by side.
class CudaConcatenate final : public NaryOp {
 public:
  CudaConcatenate(Context& context, TensorDesc output, int64_t rows, std::vector<int64_t> widths)
      : context_(context), output_(std::move(output)), rows_(rows), widths_(std::move(widths)) {
    for (int64_t width : widths_) {
      width_ += width;
      unit_ = std::gcd(unit_, width);
    }
  }

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    return ForParts([&](size_t k, auto* unit, int64_t width, int64_t begin, int64_t all) {
      using Unit = std::remove_pointer_t<decltype(unit)>;
      return CAIRN_LAUNCH(CopyColumns<Unit>, GridFor(rows_ * width), kBlock, 0, context_.stream(), rows_,
                          width, As<Unit>(xs[k]), width, As<Unit>(y) + begin, all);
    });
  }

  absl::Status Backward(absl::Span<const float* const> /*xs*/, const float* dy,
                        absl::Span<float* const> dxs) override {
    return ForParts([&](size_t k, auto* unit, int64_t width, int64_t begin, int64_t all) {
      using Unit = std::remove_pointer_t<decltype(unit)>;
      if (dxs[k] == nullptr) return absl::OkStatus();
      return CAIRN_LAUNCH(CopyColumns<Unit>, GridFor(rows_ * width), kBlock, 0, context_.stream(), rows_,
                          width, As<Unit>(dy) + begin, all, As<Unit>(dxs[k]), width);
    });
  }

 private:
  // Calls copy(k, unit, width of input k, its offset in a row of the output, the output's width). Widths and
  // offset are in units.
  template <typename Copy>
  absl::Status ForParts(const Copy& copy) const {
    return VisitMovedUnit(unit_, [&](auto* unit) -> absl::Status {
      constexpr int64_t kBytes = sizeof(*unit);
      int64_t begin = 0;
      for (size_t k = 0; k < widths_.size(); ++k) {
        CAIRN_RETURN_IF_ERROR(copy(k, unit, widths_[k] / kBytes, begin / kBytes, width_ / kBytes));
        begin += widths_[k];
      }
      return absl::OkStatus();
    });
  }

  Context& context_;
  const TensorDesc output_;
  const int64_t rows_;
  const std::vector<int64_t> widths_;  // [input], bytes
  int64_t width_ = 0;                  // bytes of a row of the output
  int64_t unit_ = 0;                   // greatest common divisor of all widths
};

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(Context& context, absl::Span<const TensorDesc> inputs,
                                                        int axis) {
  if (inputs.size() < 2) return absl::InvalidArgumentError("cannot concatenate fewer than two inputs");
  const Shape& first = inputs[0].shape;
  int64_t extent = 0;
  for (const TensorDesc& input : inputs) {
    bool fits = input.layout == Layout::kRowMajor && input.type == inputs[0].type &&
                input.shape.rank() == first.rank() && axis >= 0 && axis < first.rank();
    for (int other = 0; fits && other < first.rank(); ++other) {
      fits = input.shape[other] >= 1 && (other == axis || input.shape[other] == first[other]);
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat("cannot concatenate ", inputs[0].ToString(), " and ",
                                                     input.ToString(), " along axis ", axis));
    }
    extent += input.shape[axis];
  }
  Shape shape;
  for (int other = 0; other < first.rank(); ++other) shape.Append(other == axis ? extent : first[other]);
  int64_t rows = 1;
  for (int before = 0; before < axis; ++before) rows *= first[before];
  std::vector<int64_t> widths;
  for (const TensorDesc& input : inputs) {
    widths.push_back(input.shape.num_elements() / rows * BytesOf(input.type));
  }
  return std::make_unique<CudaConcatenate>(context, inputs[0].WithShape(shape), rows, std::move(widths));
}

}  // namespace cairn::kernels::cuda
