// Losses and their gradients with the shared formulas; sums over examples are in double.
#include <algorithm>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/blocks/reduce.h"
#include "kernels/cuda/blocks/rows.h"
#include "kernels/cuda/elementwise/loss_formulas.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/fault.h"
#include "kernels/cuda/runtime/handles.h"
#include "kernels/formulas.h"

namespace cairn::kernels::cuda {
namespace {

// The arguments of a launch, except the formula. A row consists of the outputs that share a sum: the classes
// of a categorical loss, otherwise all outputs of an example. A long row is divided into pieces.
struct Batch {
  int64_t width = 0;        // outputs in a row
  int64_t piece = 0;        // outputs in a piece; the last piece of a row may have fewer
  int64_t pieces = 1;       // pieces in a row
  int64_t row_targets = 0;  // floats in the target of a row
  // Floats from an example to the next.
  int64_t output_stride = 0, target_stride = 0, weight_stride = 0;
  int64_t example_rows = 1;  // rows in an example
  double terms = 1;          // the divisor of an example's sum
  float scale = 1;           // the factor of a term's gradient, if the example has weight 1
  int64_t examples = 0;
  bool masked = false, ignores = false;
  bool row_weights = false;  // each row of an example has a weight
  float ignored = 0;         // the label of rows that are left out
  const float* outputs = nullptr;
  const float* targets = nullptr;
  const float* weights = nullptr;     // or null
  float* doutputs = nullptr;          // or null
  const float* row_weight = nullptr;  // of rows that are not left out; null: 1

  __device__ bool LeavesOut(int64_t example, int64_t row) const {
    if (masked && outputs[example * output_stride + example_rows * width + row] == 0) return true;
    return ignores && targets[example * target_stride + row] == ignored;
  }
};

// Writes the weight of each row that is not left out: all rows over these, or 0 if there are none. One block.
// Deterministic.
__global__ void WeighRows(Batch batch, float* row_weight) {
  double kept = 0;
  const int64_t rows = batch.examples * batch.example_rows;
  for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
    const int64_t example = i / batch.example_rows;
    if (!batch.LeavesOut(example, i - example * batch.example_rows)) kept += 1;
  }
  kept = ReduceBlock(kept, Sum());
  if (threadIdx.x == 0) *row_weight = kept == 0 ? 0 : static_cast<float>(static_cast<double>(rows) / kept);
}

// The threads are mapped to rows or their pieces. Blocks write their sums to `partials` [blocks], and the
// last block adds them and writes the host's `loss`. An invalid label is reported to `fault` and adds
// nothing. Deterministic.
template <int kUnit, typename Formula>
__global__ void RunLoss(RowPlan plan, Batch batch, Formula formula, double* partials, unsigned* counter,
                        FaultWord* fault, double* loss) {
  double sum = 0;
  for (int64_t round = 0; round < plan.rounds; ++round) {
    const int64_t index = plan.Row(round);
    Piece piece = {.present = index < plan.rows, .output = batch.outputs, .doutput = batch.doutputs};
    double weight = 0;
    bool left_out = false;
    if (piece.present) {
      const int64_t row = batch.pieces == 1 ? index : index / batch.pieces;
      const int64_t begin = (index - row * batch.pieces) * batch.piece;
      const int64_t example = batch.example_rows == 1 ? row : row / batch.example_rows;
      const int64_t left = batch.width - begin;
      piece.width = left < batch.piece ? left : batch.piece;
      const int64_t in_example = row - example * batch.example_rows;
      const int64_t place = example * batch.output_stride + in_example * batch.width + begin;
      piece.output += place;
      piece.target = batch.targets + example * batch.target_stride + in_example * batch.row_targets + begin;
      if (batch.doutputs != nullptr) piece.doutput += place;
      float w = 1;
      if (batch.weights != nullptr)
        w = batch.weights[example * batch.weight_stride + (batch.row_weights ? in_example : 0)];
      if (batch.row_weight != nullptr) {
        left_out = batch.LeavesOut(example, in_example);
        piece.present = !left_out;
        w *= *batch.row_weight;
      }
      piece.scale = w * batch.scale;
      weight = double{w};
      if constexpr (Formula::kLabels) {
        if (piece.present && !IsClassIndex(*piece.target, batch.width)) {
          if (plan.rank() == 0) NoteFault(fault, row, *piece.target);
          piece.present = false;
        }
      }
    }
    const double part = formula.template Run<kUnit>(plan, piece);
    if (piece.present) sum += weight * part;
    if (left_out && piece.doutput != nullptr) {
      // A factor of 0 is not enough: outputs may be infinite.
      plan.ForEach<kUnit>(piece.width, [&](int64_t j) {
        for (int k = 0; k < kUnit; ++k) piece.doutput[j + k] = 0;
      });
    }
  }
  if (SumOverGrid(sum, partials, counter)) *loss = sum / batch.terms;
}

// The results for the host.
struct Results {
  Fault fault;
  PinnedArray<double> loss;
};

class CudaLoss final : public Loss, public Delivery {
 public:
  CudaLoss(Context& context, const LossParams& params, const Batch& batch, const RowPlan& plan, bool packed,
           std::unique_ptr<DeviceMemory> counter, Results results)
      : context_(context),
        params_(params),
        batch_(batch),
        plan_(plan),
        packed_(packed),
        counter_(std::move(counter)),
        results_(std::move(results)) {}

  absl::Status Run(const float* outputs, const float* targets, const float* weights, LossSums* sums,
                   float* doutputs) override {
    Batch batch = batch_;
    batch.outputs = outputs;
    batch.targets = targets;
    batch.weights = weights;
    batch.doutputs = doutputs;
    if (params_.leaves_out_rows()) {
      float* const row_weight = counter_->data() + 1;
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(WeighRows, 1, kBlock, 0, context_.stream(), batch, row_weight));
      batch.row_weight = row_weight;
    }
    CAIRN_RETURN_IF_ERROR(Launch(batch));
    to_ = sums;
    context_.Expect(*this);
    return absl::OkStatus();
  }

  // Copies the factors of classes to the device, if the loss has them.
  absl::Status CopyClassAlphas() {
    const auto count = static_cast<int64_t>(params_.class_alphas.size());
    if (count == 0) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(class_alphas_, context_.Allocate(count, "loss: alpha"));
    return context_.CopyToDevice(params_.class_alphas.data(), class_alphas_->data(),
                                 count * int64_t{sizeof(float)});
  }

  absl::Status Deliver() override {
    if (const auto noted = results_.fault.Take(); noted.has_value()) {
      return BadLabelError(params_, noted->place, noted->value);
    }
    *to_ = {.loss = results_.loss[0], .examples = params_.batch};
    return absl::OkStatus();
  }

 private:
  absl::Status Launch(const Batch& batch) const {
    const LabelSmoothing smooth = MakeSmoothing(params_);
    switch (params_.kind) {
      case LossKind::kSparseCategoricalCrossentropy:
        return LaunchCategories<OneClass>(batch, smooth);
      case LossKind::kCategoricalCrossentropy:
        return LaunchCategories<Shares>(batch, smooth);
      case LossKind::kBinaryCrossentropy:
        if (params_.from_logits) return LaunchElements(batch, BinaryCrossentropyOfLogits{smooth});
        return LaunchElements(batch, BinaryCrossentropyOfProbabilities{smooth});
      case LossKind::kMeanSquaredError:
        return LaunchElements(batch, SquaredError());
      case LossKind::kMeanAbsoluteError:
        return LaunchElements(batch, AbsoluteError());
      case LossKind::kHuber:
        return LaunchElements(batch, HuberLoss{static_cast<float>(params_.delta)});
      case LossKind::kCategoricalFocalCrossentropy: {
        const CategoricalFocal focal =
            MakeCategoricalFocal(params_, class_alphas_ == nullptr ? nullptr : class_alphas_->data());
        if (params_.from_logits) return LaunchFormula(batch, OfFocal<true>{focal});
        return LaunchFormula(batch, OfFocal<false>{focal});
      }
      case LossKind::kBinaryFocalCrossentropy:
        if (params_.from_logits) return LaunchElements(batch, BinaryFocalOfLogits{MakeBinaryFocal(params_)});
        return LaunchElements(batch, MakeBinaryFocal(params_));
      case LossKind::kIou:
      case LossKind::kGiou:
      case LossKind::kCiou:
        return LaunchFormula(batch, OfBoxes{MakeBoxLoss(params_)});
      case LossKind::kInBatchSoftmax:
        break;  // in_batch_softmax.cu
    }
    return absl::OkStatus();
  }
  template <typename Targets>
  absl::Status LaunchCategories(const Batch& batch, const LabelSmoothing& smooth) const {
    if (params_.from_logits) return LaunchFormula(batch, OfLogits<Targets>{smooth});
    return LaunchFormula(batch, OfProbabilities<Targets>{smooth});
  }
  template <typename Formula>
  absl::Status LaunchElements(const Batch& batch, const Formula& formula) const {
    return LaunchFormula(batch, OfElements<Formula>{formula});
  }
  template <typename Formula>
  absl::Status LaunchFormula(const Batch& batch, const Formula& formula) const {
    auto* const partials = static_cast<double*>(context_.scratch());
    auto* const counter = reinterpret_cast<unsigned*>(counter_->data());
    if (packed_) {
      return CAIRN_LAUNCH((RunLoss<kVector<float>, Formula>), plan_.grid, plan_.block, 0, context_.stream(),
                          plan_, batch, formula, partials, counter, results_.fault.word(),
                          results_.loss.data());
    }
    return CAIRN_LAUNCH((RunLoss<1, Formula>), plan_.grid, plan_.block, 0, context_.stream(), plan_, batch,
                        formula, partials, counter, results_.fault.word(), results_.loss.data());
  }

  Context& context_;
  const LossParams params_;
  const Batch batch_;  // without pointers
  const RowPlan plan_;
  const bool packed_;                            // outputs are read 16 bytes at a time
  const std::unique_ptr<DeviceMemory> counter_;  // then the weight of rows that are not left out
  std::unique_ptr<DeviceMemory> class_alphas_;   // null: all classes have one
  Results results_;
  LossSums* to_ = nullptr;  // the destination of the last Run()
};

}  // namespace

absl::StatusOr<std::unique_ptr<Loss>> MakeLoss(Context& context, const LossParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  if (params.kind == LossKind::kInBatchSoftmax) return MakeInBatchSoftmax(context, params);
  if (params.kind == LossKind::kSparseCategoricalCrossentropy &&
      params.batch > kMaxFaultIndices / params.rows_per_example) {
    return absl::UnimplementedError("more than 2^32 labels are not supported");
  }
  Batch batch;
  // Rows that are left out, or have weights, are rows of the loss.
  const bool by_rows = HasOneTermPerRow(params.kind) || params.leaves_out_rows() || params.row_weights;
  batch.example_rows = by_rows ? params.rows_per_example : 1;
  batch.width = by_rows ? params.width : params.outputs_per_example();
  batch.examples = params.batch;
  batch.masked = params.masked;
  batch.row_weights = params.row_weights;
  batch.ignores = params.ignore_class.has_value();
  batch.ignored = static_cast<float>(params.ignore_class.value_or(0));
  batch.row_targets = params.targets_per_example() / batch.example_rows;
  constexpr int64_t kPiece = 4096;
  batch.piece = HasOneTermPerRow(params.kind) ? batch.width : std::min(batch.width, kPiece);
  batch.pieces = CeilDiv(batch.width, batch.piece);
  batch.terms = static_cast<double>(params.terms_per_example());
  batch.scale = static_cast<float>(params.weight) / static_cast<float>(params.terms());
  batch.output_stride = params.output_stride != 0 ? params.output_stride : params.outputs_per_example();
  batch.target_stride = params.target_stride != 0 ? params.target_stride : params.targets_per_example();
  batch.weight_stride = params.weight_stride != 0 ? params.weight_stride : params.weights_per_example();

  // The first of an example's outputs may be at any place among those of other losses.
  const bool packed = batch.width % kVector<float> == 0 && params.output_stride == 0;
  const int64_t rows = params.batch * batch.example_rows * batch.pieces;
  // A second block costs more than a few rounds of one block, because the blocks must wait for each other.
  constexpr int64_t kRoundsOfOneBlock = 4, kBlocksOfMultiprocessor = 8;
  const int64_t units = packed ? batch.piece / kVector<float> : batch.piece;
  RowPlan plan = RowPlan::Make(rows, units, 1);
  if (plan.rounds > kRoundsOfOneBlock) {
    plan = RowPlan::Make(rows, units, kBlocksOfMultiprocessor * context.multiprocessors());
  }
  CAIRN_RETURN_IF_ERROR(context.ReserveScratch(plan.grid * int64_t{sizeof(double)}));
  CAIRN_ASSIGN_OR_RETURN(auto counter, context.Allocate(2, "loss: counter"));
  Results results;
  CAIRN_ASSIGN_OR_RETURN(results.fault, Fault::Create());
  CAIRN_ASSIGN_OR_RETURN(results.loss, PinnedArray<double>::Create(1));
  auto loss = std::make_unique<CudaLoss>(context, params, batch, plan, packed, std::move(counter),
                                         std::move(results));
  CAIRN_RETURN_IF_ERROR(loss->CopyClassAlphas());
  return loss;
}

}  // namespace cairn::kernels::cuda
