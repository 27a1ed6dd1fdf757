// The CUDA backend: NVIDIA's libraries for convolutions and matrix products, where they are fast, and our own
// kernels for the rest.
#include "kernels/cuda/device.h"

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/ranges.h"

namespace cairn::kernels::cuda {
namespace {

class CudaOps final : public OpFactory {
 public:
  explicit CudaOps(Context& context) : context_(context) {}
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(const Conv2DParams& params) override {
    return cuda::MakeConv2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(
      const Conv2DTransposeParams& params) override {
    return cuda::MakeConv2DTranspose(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(const DenseParams& params) override {
    return cuda::MakeDense(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(const EmbeddingParams& params) override {
    return cuda::MakeEmbedding(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(const TensorDesc& input,
                                                          const ActivationParams& params) override {
    return cuda::MakeActivation(context_, input, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(const AffineParams& params) override {
    return cuda::MakeAffine(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(const StandardizeParams& params) override {
    return cuda::MakeStandardize(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakePool2D(const Pool2DParams& params) override {
    return cuda::MakePool2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(Pooling pooling, const TensorDesc& input) override {
    return cuda::MakeGlobalPool(context_, pooling, input);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(const TensorDesc& input) override {
    return cuda::MakeSoftmax(context_, input);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(const PairDotsParams& params) override {
    return cuda::MakePairDots(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeDepthWindows(const DepthWindowsParams& params) override {
    return cuda::MakeDepthWindows(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeTranspose(const TransposeParams& params) override {
    return cuda::MakeTranspose(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUnitNorm(const UnitNormParams& params) override {
    return cuda::MakeUnitNorm(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUpsample2D(const Upsample2DParams& params) override {
    return cuda::MakeUpsample2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(const ZeroPad2DParams& params) override {
    return cuda::MakeZeroPad2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(const TensorDesc& input, int inputs) override {
    return cuda::MakeAdd(context_, input, inputs);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(const TensorDesc& input, int inputs) override {
    return cuda::MakeMultiply(context_, input, inputs);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(const MergeParams& params) override {
    return cuda::MakeBroadcastMerge(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(absl::Span<const TensorDesc> inputs,
                                                          int axis) override {
    return cuda::MakeConcatenate(context_, inputs, axis);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeCumulativeSum(const CumulativeSumParams& params) override {
    return cuda::MakeCumulativeSum(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeComparison(const ComparisonParams& params) override {
    return cuda::MakeComparison(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeRotary(const RotaryParams& params) override {
    return cuda::MakeRotary(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeStepMask(const StepMaskParams& params) override {
    return cuda::MakeStepMask(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeMaskedMean(const MaskedMeanParams& params) override {
    return cuda::MakeMaskedMean(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeIdCounts(const IdCountsParams& params) override {
    return cuda::MakeIdCounts(context_, params);
  }
  absl::StatusOr<std::unique_ptr<BagPool>> MakeBagPool(const BagPoolParams& params) override {
    return cuda::MakeBagPool(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Attention>> MakeAttention(const AttentionParams& params) override {
    return cuda::MakeAttention(context_, params);
  }
  absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(const BatchNormParams& params) override {
    return cuda::MakeBatchNorm(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(const LayerNormParams& params) override {
    return cuda::MakeLayerNorm(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Recurrence>> MakeRecurrence(const RecurrenceParams& params) override {
    return cuda::MakeRecurrence(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(const DropoutParams& params) override {
    return cuda::MakeDropout(context_, params);
  }
  absl::StatusOr<std::unique_ptr<ImageWarp>> MakeImageWarp(const ImageWarpParams& params) override {
    return cuda::MakeImageWarp(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Dropout>> MakeNoise(const NoiseParams& params) override {
    return cuda::MakeNoise(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(int64_t elements, float l1,
                                                               float l2) override {
    return cuda::MakeRegularizer(context_, elements, l1, l2);
  }
  absl::StatusOr<std::unique_ptr<GaussianSample>> MakeGaussianSample(
      const GaussianSampleParams& params) override {
    return cuda::MakeGaussianSample(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LossScaler>> MakeLossScaler(const LossScalerParams& params) override {
    return cuda::MakeLossScaler(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(const TensorDesc& from,
                                                       const TensorDesc& to) override {
    return cuda::MakeReorder(context_, from, to);
  }
  absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(const LossParams& params) override {
    return cuda::MakeLoss(context_, params);
  }

 private:
  Context& context_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::string description, std::unique_ptr<Context> context)
      : description_(std::move(description)), context_(std::move(context)), ops_(*context_) {}

  const std::string& name() const override { return context_->name(); }
  std::string Description() const override { return description_; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t num_floats,
                                                         absl::string_view what) override {
    return context_->Allocate(num_floats, what);
  }
  absl::Status CopyToDevice(const void* host, void* device, int64_t bytes) override {
    return context_->CopyToDevice(host, device, bytes);
  }
  absl::Status CopyToHost(const void* device, void* host, int64_t bytes) override {
    return context_->CopyToHost(device, host, bytes);
  }
  absl::Status CopyOnDevice(const float* from, float* to, int64_t count) override {
    return context_->CopyOnDevice(from, to, count * int64_t{sizeof(float)});
  }
  absl::Status Synchronize() override {
    ranges_.Begin("wait for the device");
    const absl::Status status = context_->Synchronize();
    ranges_.End();
    return status;
  }
  absl::Status SeedRandom(uint64_t seed, int64_t first_example) override {
    return context_->SeedRandom({.seed = seed, .first_example = static_cast<uint64_t>(first_example)});
  }
  absl::StatusOr<std::unique_ptr<PinnedMemory>> Pin(const void* host, int64_t bytes) override {
    return context_->Pin(host, bytes);
  }
  absl::StatusOr<std::unique_ptr<Marker>> MakeMarker() override { return context_->MakeMarker(); }
  absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()> work) override {
    return context_->Record(work);
  }
  bool host_memory_is_device_memory() const override { return false; }
  void BeginRange(const char* name) override { ranges_.Begin(name); }
  void EndRange() override { ranges_.End(); }
  ElementType compute_type() const override { return context_->compute_type(); }
  OpFactory& ops() override { return ops_; }

 private:
  const std::string description_;
  const std::unique_ptr<Context> context_;
  Ranges ranges_;
  CudaOps ops_;
};

const char* PrecisionText(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return "float32";
    case Precision::kTensorFloat32:
      return "TensorFloat-32";
    case Precision::kBFloat16:
      return "bfloat16";
    case Precision::kFloat16:
      return "float16";
  }
  return "";
}

}  // namespace

absl::StatusOr<int> CountDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    int driver = 0;
    static_cast<void>(cudaDriverGetVersion(&driver));
    if (driver == 0) return absl::NotFoundError("no usable GPU: no NVIDIA driver");
    if (error == cudaErrorNoDevice) return absl::NotFoundError("no usable GPU: the driver shows no device");
    return absl::FailedPreconditionError(absl::StrFormat(
        "no usable GPU: the driver is for CUDA %d.%d, older than this build's %d.%d", driver / 1000,
        driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
  }
  CAIRN_RETURN_IF_ERROR(ToStatus(error, "cudaGetDeviceCount"));
  return count;
}

absl::StatusOr<CudaDeviceInfo> DescribeDevice(int index) {
  cudaDeviceProp properties{};
  CAIRN_CUDA(cudaGetDeviceProperties(&properties, index));
  CudaDeviceInfo info = {.name = properties.name,
                         .major = properties.major,
                         .minor = properties.minor,
                         .total_bytes = static_cast<int64_t>(properties.totalGlobalMem)};
  int clock_khz = 0;
  CAIRN_CUDA(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, index));
  info.memory_clock_khz = clock_khz;
  char bus_id[32] = {};
  CAIRN_CUDA(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), index));
  info.pci_bus_id = bus_id;
  CAIRN_CUDA(cudaSetDevice(index));
  size_t free_bytes = 0, total_bytes = 0;
  CAIRN_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  info.free_bytes = static_cast<int64_t>(free_bytes);
  return info;
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const CudaOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const CudaDeviceInfo info, DescribeDevice(options.index));
  CAIRN_ASSIGN_OR_RETURN(auto context, Context::Create(options));
  std::string description = absl::StrFormat(
      "/gpu:%d: %s, compute capability %d.%d, %s by deterministic algorithms, %.1f GiB of memory, %.1f free",
      options.index, info.name, info.major, info.minor, PrecisionText(options.precision),
      static_cast<double>(info.total_bytes) / (1 << 30), static_cast<double>(info.free_bytes) / (1 << 30));
  return std::make_unique<CudaDevice>(std::move(description), std::move(context));
}

}  // namespace cairn::kernels::cuda
