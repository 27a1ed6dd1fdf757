// Sums and products of tensors of one shape and layout.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"

namespace cairn::kernels::cpu {
namespace {

class CpuAdd final : public NaryOp {
 public:
  CpuAdd(onednn::Context& context, TensorDesc output) : context_(context), output_(std::move(output)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    ParallelFor(context_, output_.num_floats(), kElementGrain, [&](int64_t begin, int64_t end) {
      const float* a = xs[0];
      const float* b = xs[1];
      for (int64_t i = begin; i < end; ++i) y[i] = a[i] + b[i];
      for (const float* x : xs.subspan(2)) {
        for (int64_t i = begin; i < end; ++i) y[i] += x[i];
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(absl::Span<const float* const>, const float* dy,
                        absl::Span<float* const> dxs) override {
    ParallelFor(context_, output_.num_floats(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (float* dx : dxs) {
        if (dx != nullptr)
          std::memcpy(dx + begin, dy + begin, static_cast<size_t>(end - begin) * sizeof(float));
      }
    });
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
};

class CpuMultiply final : public NaryOp {
 public:
  CpuMultiply(onednn::Context& context, TensorDesc output) : context_(context), output_(std::move(output)) {}

  const TensorDesc& output() const override { return output_; }

  absl::Status Forward(absl::Span<const float* const> xs, float* y) override {
    ParallelFor(context_, output_.num_floats(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = xs[0][i] * xs[1][i];
      for (const float* x : xs.subspan(2)) {
        for (int64_t i = begin; i < end; ++i) y[i] *= x[i];
      }
    });
    return absl::OkStatus();
  }

  absl::Status Backward(absl::Span<const float* const> xs, const float* dy,
                        absl::Span<float* const> dxs) override {
    ParallelFor(context_, output_.num_floats(), kElementGrain, [&](int64_t begin, int64_t end) {
      for (size_t k = 0; k < dxs.size(); ++k) {
        if (dxs[k] == nullptr) continue;
        std::memcpy(dxs[k] + begin, dy + begin, static_cast<size_t>(end - begin) * sizeof(float));
        for (size_t other = 0; other < xs.size(); ++other) {
          if (other == k) continue;
          for (int64_t i = begin; i < end; ++i) dxs[k][i] *= xs[other][i];
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  onednn::Context& context_;
  const TensorDesc output_;
};

absl::Status CheckInputs(const TensorDesc& input, int inputs) {
  if (inputs >= 2 && input.shape.num_elements() >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(inputs, " inputs of ", input.ToString(), ": expected two or more"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(onednn::Context& context, const TensorDesc& input,
                                                int inputs) {
  if (absl::Status status = CheckInputs(input, inputs); !status.ok()) return status;
  return std::make_unique<CpuAdd>(context, input);
}

absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(onednn::Context& context, const TensorDesc& input,
                                                     int inputs) {
  if (absl::Status status = CheckInputs(input, inputs); !status.ok()) return status;
  return std::make_unique<CpuMultiply>(context, input);
}

}  // namespace cairn::kernels::cpu
