// Convolutions by cuDNN's legacy calls, channels last.
//
// The graph API is not used: its kernels for these shapes are the same, and the heuristics of the legacy API
// need only one call.
#include <cudnn.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/linear/convert.h"
#include "kernels/cuda/linear/convolution.h"
#include "kernels/cuda/linear/cudnn_descriptors.h"
#include "kernels/cuda/linear/relu_bias.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/cuda/runtime/library_status.h"

namespace cairn::kernels::cuda {
namespace {

constexpr int64_t kMaxWorkspace = int64_t{256} << 20;

// Chooses the first of cuDNN's proposals, fastest first, that works, is deterministic, and fits the
// workspace. UNIMPLEMENTED if there is none.
template <typename Performance>
absl::StatusOr<Performance> Choose(const std::vector<Performance>& proposals) {
  for (const Performance& proposal : proposals) {
    if (proposal.status == CUDNN_STATUS_SUCCESS && proposal.determinism == CUDNN_DETERMINISTIC &&
        static_cast<int64_t>(proposal.memory) <= kMaxWorkspace) {
      return proposal;
    }
  }
  return absl::UnimplementedError("cuDNN has no algorithm for this convolution");
}

class CudnnConvolution final : public Convolution {
 public:
  static absl::StatusOr<std::unique_ptr<Convolution>> Create(Context& context,
                                                             const ConvolutionParams& params) {
    CAIRN_ASSIGN_OR_RETURN(auto descriptors, Describe(params.shape, params.type, context.precision()));
    std::unique_ptr<CudnnConvolution> convolution(
        new CudnnConvolution(context, params, std::move(descriptors)));
    CAIRN_RETURN_IF_ERROR(convolution->ChooseAlgorithms());
    CAIRN_RETURN_IF_ERROR(convolution->AllocateStaging());
    return convolution;
  }

  absl::Status SetKernel(const float* kernel) override {
    return KernelToCudnn(context_, kernel, type_, kernel_->data(), shape_.kh * shape_.kw,
                         shape_.c / shape_.groups, shape_.f);
  }

  absl::Status Forward(const void* source, const float* bias, void* destination) override {
    CAIRN_RETURN_IF_ERROR(Pad(source));
    const void* const from = Padded(source);
    const float one = 1, zero = 0;
    CAIRN_RETURN_IF_ERROR(UseMath(forward_.mathType));
    CAIRN_CUDNN(cudnnConvolutionForward(dnn_, &one, d_.source.get(), from, d_.filter.get(), kernel_->data(),
                                        d_.convolution.get(), forward_.algo, context_.scratch(),
                                        forward_.memory, &zero, d_.destination.get(), destination));
    return Apply(context_,
                 {.type = type_,
                  .rows = shape_.n * shape_.oh * shape_.ow,
                  .channels = shape_.f,
                  .bias = bias,
                  .relu = params_.relu},
                 destination);
  }

  absl::Status BackwardSource(const void* ddestination, void* dsource) override {
    void* const to = padded_ == nullptr ? dsource : padded_gradient_->data();
    const float one = 1, zero = 0;
    CAIRN_RETURN_IF_ERROR(UseMath(backward_source_.mathType));
    CAIRN_CUDNN(cudnnConvolutionBackwardData(dnn_, &one, d_.filter.get(), kernel_->data(),
                                             d_.destination.get(), ddestination, d_.convolution.get(),
                                             backward_source_.algo, context_.scratch(),
                                             backward_source_.memory, &zero, d_.source.get(), to));
    if (padded_ == nullptr) return absl::OkStatus();
    return pad_->Backward(nullptr, nullptr, padded_gradient_->data(), static_cast<float*>(dsource));
  }

  absl::Status BackwardKernel(const void* source, const void* ddestination, float* dkernel) override {
    if (!params_.forward) CAIRN_RETURN_IF_ERROR(Pad(source));  // otherwise Forward() has padded the source
    const void* const from = Padded(source);
    const float one = 1, zero = 0;
    CAIRN_RETURN_IF_ERROR(UseMath(backward_kernel_.mathType));
    CAIRN_CUDNN(cudnnConvolutionBackwardFilter(dnn_, &one, d_.source.get(), from, d_.destination.get(),
                                               ddestination, d_.convolution.get(), backward_kernel_.algo,
                                               context_.scratch(), backward_kernel_.memory, &zero,
                                               d_.filter.get(), kernel_gradient_->data()));
    return KernelFromCudnn(context_, type_, kernel_gradient_->data(), dkernel, shape_.kh * shape_.kw,
                           shape_.c / shape_.groups, shape_.f);
  }

 private:
  CudnnConvolution(Context& context, const ConvolutionParams& params, CudnnDescriptors descriptors)
      : context_(context),
        dnn_(context.libraries().dnn()),
        params_(params),
        shape_(params.shape),
        type_(params.type),
        d_(std::move(descriptors)) {}

  absl::Status Pad(const void* source) {
    if (pad_ == nullptr) return absl::OkStatus();
    return pad_->Forward(static_cast<const float*>(source), padded_->data());
  }
  const void* Padded(const void* source) const { return padded_ == nullptr ? source : padded_->data(); }

  // cuDNN proposes a kind of arithmetic with each algorithm, but expects it as a setting of the convolution.
  // If float32 was requested, the setting stays as it is, so that nothing is rounded.
  absl::Status UseMath(cudnnMathType_t math) {
    if (context_.precision() == Precision::kFloat32) return absl::OkStatus();
    CAIRN_CUDNN(cudnnSetConvolutionMathType(d_.convolution.get(), math));
    return absl::OkStatus();
  }

  absl::Status ChooseAlgorithms() {
    constexpr int kProposals = 16;
    int count = 0;
    int64_t workspace = 0;
    if (params_.forward) {
      std::vector<cudnnConvolutionFwdAlgoPerf_t> proposals(kProposals);
      CAIRN_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(dnn_, d_.source.get(), d_.filter.get(),
                                                         d_.convolution.get(), d_.destination.get(),
                                                         kProposals, &count, proposals.data()));
      proposals.resize(static_cast<size_t>(count));
      CAIRN_ASSIGN_OR_RETURN(forward_, Choose(proposals));
      workspace = std::max(workspace, static_cast<int64_t>(forward_.memory));
    }
    if (params_.backward_source) {
      std::vector<cudnnConvolutionBwdDataAlgoPerf_t> proposals(kProposals);
      CAIRN_CUDNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn_, d_.filter.get(), d_.destination.get(),
                                                              d_.convolution.get(), d_.source.get(),
                                                              kProposals, &count, proposals.data()));
      proposals.resize(static_cast<size_t>(count));
      CAIRN_ASSIGN_OR_RETURN(backward_source_, Choose(proposals));
      workspace = std::max(workspace, static_cast<int64_t>(backward_source_.memory));
    }
    std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> proposals(kProposals);
    CAIRN_CUDNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn_, d_.source.get(), d_.destination.get(),
                                                              d_.convolution.get(), d_.filter.get(),
                                                              kProposals, &count, proposals.data()));
    proposals.resize(static_cast<size_t>(count));
    CAIRN_ASSIGN_OR_RETURN(backward_kernel_, Choose(proposals));
    workspace = std::max(workspace, static_cast<int64_t>(backward_kernel_.memory));
    return context_.ReserveScratch(workspace);
  }

  absl::Status AllocateStaging() {
    const auto allocate = [&](int64_t elements) {
      return context_.Allocate(TensorDesc{.shape = {elements}, .type = type_}.num_floats(), "convolution");
    };
    CAIRN_ASSIGN_OR_RETURN(kernel_, allocate(shape_.kernel_elements()));
    CAIRN_ASSIGN_OR_RETURN(kernel_gradient_, allocate(shape_.kernel_elements()));
    if (d_.has_border()) {
      CAIRN_ASSIGN_OR_RETURN(
          pad_, MakeZeroPad2D(context_,
                              {.input = {.shape = {shape_.n, shape_.h, shape_.w, shape_.c}, .type = type_},
                               .bottom = d_.more_rows,
                               .right = d_.more_columns}));
      const int64_t floats = pad_->output().num_floats();
      CAIRN_ASSIGN_OR_RETURN(padded_, context_.Allocate(floats, "padded image"));
      CAIRN_ASSIGN_OR_RETURN(padded_gradient_, context_.Allocate(floats, "gradient of padded image"));
    }
    return absl::OkStatus();
  }

  Context& context_;
  const cudnnHandle_t dnn_;
  const ConvolutionParams params_;
  const ConvolutionShape shape_;
  const ElementType type_;
  const CudnnDescriptors d_;
  cudnnConvolutionFwdAlgoPerf_t forward_{};
  cudnnConvolutionBwdDataAlgoPerf_t backward_source_{};
  cudnnConvolutionBwdFilterAlgoPerf_t backward_kernel_{};
  std::unique_ptr<DeviceMemory> kernel_, kernel_gradient_;  // [f, kh, kw, c]
  // The source with its border, and the op that adds it; null if there is no border.
  std::unique_ptr<UnaryOp> pad_;
  std::unique_ptr<DeviceMemory> padded_, padded_gradient_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeCudnnConvolution(Context& context,
                                                                  const ConvolutionParams& params) {
  return CudnnConvolution::Create(context, params);
}

}  // namespace cairn::kernels::cuda
