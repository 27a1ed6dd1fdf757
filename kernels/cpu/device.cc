#include "kernels/cpu/device.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/memory/aligned_buffer.h"
#include "common/memory/memory_size.h"
#include "common/memory/out_of_memory.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"

namespace cairn::kernels {
namespace {

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos) return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "unknown processor";
}

const char* InstructionSetName() {
  switch (onednn::AvailableInstructionSet()) {
    case onednn::InstructionSet::kBasic:
      return "no AVX2";
    case onednn::InstructionSet::kAvx2:
      return "AVX2";
    case onednn::InstructionSet::kAvx512:
      return "AVX-512";
  }
  return "";
}

class CpuMemory final : public DeviceMemory {
 public:
  CpuMemory(int64_t num_floats, std::atomic<int64_t>& bytes_in_use)
      : bytes_in_use_(bytes_in_use), buffer_(num_floats) {
    bytes_in_use_ += bytes();
  }
  ~CpuMemory() override { bytes_in_use_ -= bytes(); }
  float* data() override { return buffer_.data(); }
  int64_t num_floats() const override { return buffer_.size(); }

 private:
  int64_t bytes() const { return buffer_.size() * static_cast<int64_t>(sizeof(float)); }
  std::atomic<int64_t>& bytes_in_use_;
  AlignedBuffer buffer_;
};

class CpuOps final : public OpFactory {
 public:
  explicit CpuOps(onednn::Context& context) : context_(context) {}
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2D(const Conv2DParams& params) override {
    return cpu::MakeConv2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeConv2DTranspose(
      const Conv2DTransposeParams& params) override {
    return cpu::MakeConv2DTranspose(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeDense(const DenseParams& params) override {
    return cpu::MakeDense(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LinearOp>> MakeEmbedding(const EmbeddingParams& params) override {
    return cpu::MakeEmbedding(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeActivation(const TensorDesc& input,
                                                          const ActivationParams& params) override {
    return cpu::MakeActivation(context_, input, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeAffine(const AffineParams& params) override {
    return cpu::MakeAffine(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Standardize>> MakeStandardize(const StandardizeParams& params) override {
    return cpu::MakeStandardize(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakePool2D(const Pool2DParams& params) override {
    return params.pooling == Pooling::kMax ? cpu::MakeMaxPool2D(context_, params)
                                           : cpu::MakeAveragePool2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeGlobalPool(Pooling pooling, const TensorDesc& input) override {
    return cpu::MakeGlobalPool(context_, pooling, input);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeSoftmax(const TensorDesc& input) override {
    return cpu::MakeSoftmax(context_, input);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakePairDots(const PairDotsParams& params) override {
    return cpu::MakePairDots(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeDepthWindows(const DepthWindowsParams& params) override {
    return cpu::MakeDepthWindows(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeTranspose(const TransposeParams& params) override {
    return cpu::MakeTranspose(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUnitNorm(const UnitNormParams& params) override {
    return cpu::MakeUnitNorm(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeUpsample2D(const Upsample2DParams& params) override {
    return cpu::MakeUpsample2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeZeroPad2D(const ZeroPad2DParams& params) override {
    return cpu::MakeZeroPad2D(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeAdd(const TensorDesc& input, int inputs) override {
    return cpu::MakeAdd(context_, input, inputs);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeMultiply(const TensorDesc& input, int inputs) override {
    return cpu::MakeMultiply(context_, input, inputs);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeBroadcastMerge(const MergeParams& params) override {
    return cpu::MakeBroadcastMerge(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeConcatenate(absl::Span<const TensorDesc> inputs,
                                                          int axis) override {
    return cpu::MakeConcatenate(context_, inputs, axis);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeCumulativeSum(const CumulativeSumParams& params) override {
    return cpu::MakeCumulativeSum(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeComparison(const ComparisonParams& params) override {
    return cpu::MakeComparison(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeRotary(const RotaryParams& params) override {
    return cpu::MakeRotary(context_, params);
  }
  absl::StatusOr<std::unique_ptr<UnaryOp>> MakeStepMask(const StepMaskParams& params) override {
    return cpu::MakeStepMask(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeMaskedMean(const MaskedMeanParams& params) override {
    return cpu::MakeMaskedMean(context_, params);
  }
  absl::StatusOr<std::unique_ptr<NaryOp>> MakeIdCounts(const IdCountsParams& params) override {
    return cpu::MakeIdCounts(params);
  }
  absl::StatusOr<std::unique_ptr<BagPool>> MakeBagPool(const BagPoolParams& params) override {
    return cpu::MakeBagPool(params);
  }
  absl::StatusOr<std::unique_ptr<Attention>> MakeAttention(const AttentionParams& params) override {
    return cpu::MakeAttention(context_, params);
  }
  absl::StatusOr<std::unique_ptr<BatchNorm>> MakeBatchNorm(const BatchNormParams& params) override {
    return cpu::MakeBatchNorm(context_, params);
  }
  absl::StatusOr<std::unique_ptr<LayerNorm>> MakeLayerNorm(const LayerNormParams& params) override {
    return cpu::MakeLayerNorm(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Recurrence>> MakeRecurrence(const RecurrenceParams& params) override {
    return cpu::MakeRecurrence(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Dropout>> MakeDropout(const DropoutParams& params) override {
    return cpu::MakeDropout(context_, params);
  }
  absl::StatusOr<std::unique_ptr<ImageWarp>> MakeImageWarp(const ImageWarpParams& params) override {
    return cpu::MakeImageWarp(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Dropout>> MakeNoise(const NoiseParams& params) override {
    return cpu::MakeNoise(context_, params);
  }
  absl::StatusOr<std::unique_ptr<Regularizer>> MakeRegularizer(int64_t elements, float l1,
                                                               float l2) override {
    return cpu::MakeRegularizer(context_, elements, l1, l2);
  }
  absl::StatusOr<std::unique_ptr<GaussianSample>> MakeGaussianSample(
      const GaussianSampleParams& params) override {
    return cpu::MakeGaussianSample(params);
  }
  absl::StatusOr<std::unique_ptr<LossScaler>> MakeLossScaler(const LossScalerParams&) override {
    return absl::UnimplementedError("loss scaling is for float16, which /cpu:0 does not compute in");
  }
  absl::StatusOr<std::unique_ptr<Reorder>> MakeReorder(const TensorDesc& from,
                                                       const TensorDesc& to) override {
    return cpu::MakeReorder(context_, from, to);
  }
  absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(const LossParams& params) override {
    return cpu::MakeLoss(context_, params);
  }

 private:
  onednn::Context& context_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(int index, int threads, int64_t memory_limit_bytes, ElementType operands)
      : name_(absl::StrCat("/cpu:", index)),
        memory_limit_bytes_(memory_limit_bytes > 0 ? memory_limit_bytes : UsableMemory()),
        context_(threads, operands),
        ops_(context_) {}

  const std::string& name() const override { return name_; }

  std::string Description() const override {
    const CpuDeviceInfo info = DescribeCpu();
    return absl::StrFormat("%s: %s, %s%s, %s, %d thread%s, %.1f GiB of memory", name_, info.processor,
                           info.instruction_set, context_.operands() == ElementType::kBFloat16 ? " BF16" : "",
                           info.library, context_.threads(), context_.threads() == 1 ? "" : "s",
                           static_cast<double>(memory_limit_bytes_) / (1 << 30));
  }

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t num_floats,
                                                         absl::string_view what) override {
    const int64_t in_use = bytes_in_use_, limit = memory_limit_bytes_;
    if (num_floats < 0 || num_floats > (limit - in_use) / static_cast<int64_t>(sizeof(float))) {
      return absl::ResourceExhaustedError(absl::StrCat(what, " on ", name_, ": no memory for ",
                                                       InGiB(static_cast<double>(num_floats) * sizeof(float)),
                                                       ": ", InGiB(static_cast<double>(in_use)), " of ",
                                                       InGiB(static_cast<double>(limit)), " are in use"));
    }
    return CatchOutOfMemory(absl::StrCat(what, " on ", name_),
                            [&]() -> absl::StatusOr<std::unique_ptr<DeviceMemory>> {
                              return std::make_unique<CpuMemory>(num_floats, bytes_in_use_);
                            });
  }

  absl::Status CopyToDevice(const void* host, void* device, int64_t bytes) override {
    return Copy(host, device, bytes);
  }
  absl::Status CopyToHost(const void* device, void* host, int64_t bytes) override {
    return Copy(device, host, bytes);
  }
  absl::Status CopyOnDevice(const float* from, float* to, int64_t count) override {
    return Copy(from, to, count * static_cast<int64_t>(sizeof(float)));
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status SeedRandom(uint64_t seed, int64_t first_example) override {
    context_.set_seed(seed, first_example);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PinnedMemory>> Pin(const void*, int64_t) override { return nullptr; }
  absl::StatusOr<std::unique_ptr<Marker>> MakeMarker() override { return nullptr; }
  absl::StatusOr<std::unique_ptr<Recording>> Record(absl::FunctionRef<absl::Status()>) override {
    return nullptr;
  }
  bool host_memory_is_device_memory() const override { return true; }
  ElementType compute_type() const override { return ElementType::kFloat32; }
  OpFactory& ops() override { return ops_; }

 private:
  static absl::Status Copy(const void* from, void* to, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }

  const std::string name_;
  const int64_t memory_limit_bytes_;
  std::atomic<int64_t> bytes_in_use_ = 0;
  onednn::Context context_;
  CpuOps ops_;
};

}  // namespace

CpuDeviceInfo DescribeCpu() {
  return {.processor = ProcessorName(),
          .instruction_set = InstructionSetName(),
          .bfloat16 = onednn::MultipliesBFloat16(),
          .library = absl::StrCat("oneDNN ", onednn::Version()),
          .memory_bytes = UsableMemory()};
}

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int index, int threads, int64_t memory_limit_bytes,
                                                        ElementType operands) {
  if (index < 0 || threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("/cpu:", index, " with ", threads, " threads: expected at least 1 thread"));
  }
  if (operands != ElementType::kFloat32 && operands != ElementType::kBFloat16) {
    return absl::InvalidArgumentError(absl::StrCat("/cpu:", index, " cannot compute in ", NameOf(operands)));
  }
  if (operands == ElementType::kBFloat16 && !onednn::MultipliesBFloat16()) {
    return absl::FailedPreconditionError(
        absl::StrCat("/cpu:", index, ": ", ProcessorName(), " has neither AVX-512 BF16 nor AMX"));
  }
  return std::make_unique<CpuDevice>(index, threads, memory_limit_bytes, operands);
}

}  // namespace cairn::kernels
