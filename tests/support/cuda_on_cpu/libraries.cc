// Replaces NVIDIA's libraries. There are no convolutions, so the backend's own loops compute them, and matrix
// products follow their definition.
#include "kernels/cuda/runtime/libraries.h"

#include <type_traits>

#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/linear/convolution.h"
#include "kernels/cuda/linear/matmul.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {

absl::StatusOr<std::unique_ptr<Libraries>> Libraries::Create(cudaStream_t /*stream*/) {
  return std::unique_ptr<Libraries>(new Libraries());
}

Libraries::~Libraries() = default;

absl::StatusOr<std::unique_ptr<Convolution>> MakeCudnnConvolution(Context& /*context*/,
                                                                  const ConvolutionParams& /*params*/) {
  return absl::UnimplementedError("there is no cuDNN here");
}

namespace {

class DefinedMatmul final : public Matmul {
 public:
  DefinedMatmul(Context& context, const MatmulParams& params) : context_(context), params_(params) {}

  absl::Status Run(const void* a, const void* b, const void* bias, void* c) override {
    cuda_on_cpu::Enqueue(context_.stream(), [=, this] { Compute(a, b, bias, c); });
    return absl::OkStatus();
  }

 private:
  void Compute(const void* a, const void* b, const void* bias, void* c) const {
    VisitType(params_.operands, [&](auto* operand) {
      VisitType(params_.result, [&](auto* result) {
        using In = std::remove_pointer_t<decltype(operand)>;
        using Out = std::remove_pointer_t<decltype(result)>;
        Multiply(static_cast<const In*>(a), static_cast<const In*>(b), static_cast<const Out*>(bias),
                 static_cast<Out*>(c));
      });
    });
  }

  template <typename In, typename Out>
  void Multiply(const In* a, const In* b, const Out* bias, Out* c) const {
    for (int64_t i = 0; i < params_.m; ++i) {
      for (int64_t j = 0; j < params_.n; ++j) {
        float sum = bias == nullptr ? 0.0f : ToFloat(bias[j]);
        for (int64_t k = 0; k < params_.k; ++k) {
          sum += ToFloat(a[params_.transpose_a ? k * params_.m + i : i * params_.k + k]) *
                 ToFloat(b[params_.transpose_b ? j * params_.k + k : k * params_.n + j]);
        }
        c[i * params_.n + j] = FromFloat<Out>(sum);
      }
    }
  }

  Context& context_;
  const MatmulParams params_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Matmul>> Matmul::Create(Context& context, const MatmulParams& params) {
  return std::make_unique<DefinedMatmul>(context, params);
}

}  // namespace cairn::kernels::cuda
