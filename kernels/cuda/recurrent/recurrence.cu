// Recurrent layers: for each step a product with the recurrent kernel and a kernel of the gates. The gradient of the
// recurrent kernel is one product over all steps. A GRU without reset_after has two products per step, with parts of
// the kernel: that of u and r, and that of the candidate.
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "common/core/status.h"
#include "kernels/cuda/blocks/element.h"
#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/linear/matmul.h"
#include "kernels/cuda/linear/relu_bias.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/recurrent/step_kernels.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/recurrence.h"

namespace cairn::kernels::cuda {
namespace {

// Columns of the recurrent kernel, and its products: with h of a step, of its transpose with a step's gradients, and of
// the gradients of all steps.
template <typename T>
struct KernelPart {
  int64_t first = 0, width = 0;
  std::unique_ptr<DeviceMemory> kernel, gradient;  // [units, width]: of type T, float32
  std::unique_ptr<Matmul> forward, backward, weights;
};

template <typename T>
class CudaRecurrence final : public Recurrence {
 public:
  static absl::StatusOr<std::unique_ptr<Recurrence>> Create(Context& context,
                                                            const RecurrenceParams& params) {
    std::unique_ptr<CudaRecurrence> op(new CudaRecurrence(context, params));
    CAIRN_RETURN_IF_ERROR(op->AllocateStates());
    const int64_t units = params.units;
    CAIRN_RETURN_IF_ERROR(op->MakePart(op->first_, 0, op->product_units() * units));
    if (op->resets_first()) CAIRN_RETURN_IF_ERROR(op->MakePart(op->second_, 2 * units, units));
    if (params.use_bias) {
      CAIRN_ASSIGN_OR_RETURN(op->bias_, ReluBias::Create(context, params.type, params.batch * params.steps,
                                                         op->product_units() * units, /*relu=*/false));
    }
    return op;
  }

  absl::Status Forward(const Inputs& inputs, float* z, const Outputs& outputs) override {
    CAIRN_RETURN_IF_ERROR(LoadPart(inputs, first_));
    if (resets_first()) CAIRN_RETURN_IF_ERROR(LoadPart(inputs, second_));
    RecurrentMemory<T> memory = MemoryOf(inputs, z);
    memory.last_h = As<T>(outputs.last_h);
    memory.last_c = As<T>(outputs.last_c);
    if (inputs.first_h != nullptr)
      CAIRN_RETURN_IF_ERROR(Launch(LoadFirstState<T>, StepOf(inputs, 0), memory, inputs.state_scale));
    for (int64_t index = 0; index < params_.steps; ++index) {
      RecurrentStep step = StepOf(inputs, index);
      if (step.has_product)
        CAIRN_RETURN_IF_ERROR(
            first_.forward->Run(current_->data(), first_.kernel->data(), nullptr, product_->data()));
      if (resets_first()) {
        CAIRN_RETURN_IF_ERROR(Launch(ResetForward<T>, step, memory));
        CAIRN_RETURN_IF_ERROR(
            second_.forward->Run(current_->data(), second_.kernel->data(), nullptr, product_->data()));
        step.product_units = 1;
        step.has_product = true;
      }
      CAIRN_RETURN_IF_ERROR(Launch(StepForward<T>, step, memory, NeighborsOf(index), inputs.bias, inputs.mask,
                                   inputs.state_scale, As<T>(outputs.y)));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Inputs& inputs, float* z, const OutputGradients& of_outputs,
                        const Gradients& gradients) override {
    const RecurrentMemory<T> memory = MemoryOf(inputs, z);
    CAIRN_RETURN_IF_ERROR(StartGradient(of_outputs.last_h, memory.dh));
    if (memory.dc != nullptr) CAIRN_RETURN_IF_ERROR(StartGradient(of_outputs.last_c, memory.dc));
    for (int64_t index = params_.steps; index-- > 0;) {
      const RecurrentStep step = StepOf(inputs, index);
      CAIRN_RETURN_IF_ERROR(
          Launch(StepBackward<T>, step, memory, NeighborsOf(index), inputs.mask, As<T>(of_outputs.y)));
      if (resets_first()) {
        CAIRN_RETURN_IF_ERROR(
            second_.backward->Run(current_->data(), second_.kernel->data(), nullptr, through_->data()));
        CAIRN_RETURN_IF_ERROR(
            Launch(ResetBackward<T>, step, memory, inputs.mask, through_->data(), inputs.state_scale));
      }
      if (index == 0 && gradients.first_h == nullptr) break;
      CAIRN_RETURN_IF_ERROR(
          first_.backward->Run(product_->data(), first_.kernel->data(), nullptr, through_->data()));
      CAIRN_RETURN_IF_ERROR(CAIRN_LAUNCH(AddThrough<T>, GridFor(count()), kBlock, 0, context_.stream(),
                                         count(), through_->data(), inputs.state_scale, memory.dh));
    }
    CAIRN_RETURN_IF_ERROR(StoreGradient(memory.dh, gradients.first_h));
    CAIRN_RETURN_IF_ERROR(StoreGradient(memory.dc, gradients.first_c));
    return WeightGradients(memory, gradients.kernel, gradients.bias);
  }

 private:
  CudaRecurrence(Context& context, const RecurrenceParams& params)
      : context_(context), params_(params), output_(params) {}

  bool is_gru() const { return params_.cell == RecurrentCell::kGru; }
  bool resets_first() const { return is_gru() && !params_.reset_after; }
  // The units of the product with h itself.
  int64_t product_units() const { return resets_first() ? 2 : params_.gates(); }
  int64_t count() const { return params_.batch * params_.units; }
  int64_t rows() const { return params_.batch * params_.steps; }

  // Memory for elements of type T, or float32.
  absl::Status Allocate(std::unique_ptr<DeviceMemory>& memory, int64_t elements, bool floats = false) {
    const ElementType type = floats ? ElementType::kFloat32 : params_.type;
    CAIRN_ASSIGN_OR_RETURN(memory,
                           context_.Allocate(TensorDesc{.shape = {elements}, .type = type}.num_floats(),
                                             "states of a recurrent layer"));
    return absl::OkStatus();
  }

  absl::Status AllocateStates() {
    const int64_t units = params_.units;
    CAIRN_RETURN_IF_ERROR(Allocate(product_, count() * product_units()));
    CAIRN_RETURN_IF_ERROR(Allocate(current_, count()));
    CAIRN_RETURN_IF_ERROR(Allocate(scaled_, rows() * units));
    CAIRN_RETURN_IF_ERROR(Allocate(state_, rows() * units, /*floats=*/true));
    CAIRN_RETURN_IF_ERROR(Allocate(dh_, count(), /*floats=*/true));
    CAIRN_RETURN_IF_ERROR(Allocate(through_, count(), /*floats=*/true));
    if (params_.cell == RecurrentCell::kLstm) {
      CAIRN_RETURN_IF_ERROR(Allocate(carry_, rows() * units, /*floats=*/true));
      CAIRN_RETURN_IF_ERROR(Allocate(dc_, count(), /*floats=*/true));
    }
    if (!is_gru()) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(Allocate(inner_, rows() * units));
    return Allocate(gradients_, rows() * units * product_units());
  }

  absl::Status MakePart(KernelPart<T>& part, int64_t first, int64_t width) {
    const ElementType type = params_.type;
    const int64_t batch = params_.batch, units = params_.units;
    part.first = first;
    part.width = width;
    CAIRN_RETURN_IF_ERROR(Allocate(part.kernel, units * width));
    CAIRN_RETURN_IF_ERROR(Allocate(part.gradient, units * width, /*floats=*/true));
    CAIRN_ASSIGN_OR_RETURN(
        part.forward,
        Matmul::Create(context_, {.m = batch, .n = width, .k = units, .operands = type, .result = type}));
    CAIRN_ASSIGN_OR_RETURN(
        part.backward,
        Matmul::Create(context_,
                       {.m = batch, .n = units, .k = width, .transpose_b = true, .operands = type}));
    CAIRN_ASSIGN_OR_RETURN(
        part.weights,
        Matmul::Create(context_,
                       {.m = units, .n = width, .k = rows(), .transpose_a = true, .operands = type}));
    return absl::OkStatus();
  }

  // Without the last states.
  RecurrentMemory<T> MemoryOf(const Inputs& inputs, float* z) const {
    const auto floats = [](const auto& memory) { return memory == nullptr ? nullptr : memory->data(); };
    const auto elements = [&](const auto& memory) { return reinterpret_cast<T*>(floats(memory)); };
    return {.z = reinterpret_cast<T*>(z),
            .product = elements(product_),
            .state = floats(state_),
            .carry = floats(carry_),
            .inner = elements(inner_),
            .scaled = elements(scaled_),
            .current = elements(current_),
            .gradients = elements(gradients_),
            .dh = floats(dh_),
            .dc = floats(dc_),
            .first_h = As<T>(inputs.first_h),
            .first_c = As<T>(inputs.first_c),
            .last_h = nullptr,
            .last_c = nullptr};
  }

  int64_t StepAt(int64_t index) const { return params_.backwards ? params_.steps - 1 - index : index; }
  NeighborSteps NeighborsOf(int64_t index) const {
    return {.before = index == 0 ? -1 : StepAt(index - 1),
            .after = index + 1 == params_.steps ? -1 : StepAt(index + 1)};
  }
  // The step that is processed after `index` others.
  RecurrentStep StepOf(const Inputs& inputs, int64_t index) const {
    const int64_t step = StepAt(index);
    int64_t row = params_.in_order ? index : step;
    if (!params_.sequences) row = index + 1 == params_.steps ? 0 : -1;
    return {.cell = params_.cell,
            .reset_after = params_.reset_after,
            .zeros_masked = params_.zeros_masked,
            .has_product = index > 0 || inputs.first_h != nullptr,
            .batch = params_.batch,
            .steps = params_.steps,
            .units = params_.units,
            .gates = params_.gates(),
            .step = step,
            .product_units = product_units(),
            .activation = params_.activation,
            .recurrent_activation = params_.recurrent_activation,
            .output = output_,
            .output_row = row};
  }

  template <typename... Parameters, typename... Arguments>
  absl::Status Launch(void (*kernel)(Parameters...), const Arguments&... arguments) const {
    return CAIRN_LAUNCH(kernel, GridFor(count()), kBlock, 0, context_.stream(), arguments...);
  }
  template <typename From, typename To>
  absl::Status Copy(int64_t columns, const From* from, int64_t from_stride, To* to, int64_t to_stride,
                    int64_t rows) const {
    return CAIRN_LAUNCH((CopyColumns<From, To>), GridFor(rows * columns), kBlock, 0, context_.stream(), rows,
                        columns, from, from_stride, to, to_stride);
  }

  // The gradient of a state after the last step; null: 0.
  absl::Status StartGradient(const float* last, float* to) const {
    if (last != nullptr) return Copy(count(), As<T>(last), count(), to, count(), 1);
    CAIRN_CUDA(cudaMemsetAsync(to, 0, count() * sizeof(float), context_.stream()));
    return absl::OkStatus();
  }
  // Writes the gradient of a state before the first step, unless it is not needed.
  absl::Status StoreGradient(const float* from, float* first) const {
    if (first == nullptr) return absl::OkStatus();
    return Copy(count(), from, count(), As<T>(first), count(), 1);
  }

  absl::Status LoadPart(const Inputs& inputs, const KernelPart<T>& part) const {
    return Copy(part.width, inputs.kernel + part.first, params_.gates() * params_.units,
                reinterpret_cast<T*>(part.kernel->data()), part.width, params_.units);
  }
  absl::Status StorePart(const KernelPart<T>& part, float* dkernel) const {
    return Copy(part.width, static_cast<const float*>(part.gradient->data()), part.width,
                dkernel + part.first, params_.gates() * params_.units, params_.units);
  }

  absl::Status WeightGradients(const RecurrentMemory<T>& memory, float* dkernel, float* dbias) {
    const int64_t units = params_.units;
    if (resets_first()) {  // the gradients of u and r side by side
      CAIRN_RETURN_IF_ERROR(
          Copy(2 * units, static_cast<const T*>(memory.z), 3 * units, memory.gradients, 2 * units, rows()));
    }
    const void* const gradients = is_gru() ? static_cast<const void*>(memory.gradients) : memory.z;
    CAIRN_RETURN_IF_ERROR(first_.weights->Run(memory.scaled, gradients, nullptr, first_.gradient->data()));
    CAIRN_RETURN_IF_ERROR(StorePart(first_, dkernel));
    if (dbias != nullptr) CAIRN_RETURN_IF_ERROR(bias_->Backward(nullptr, memory.gradients, dbias));
    if (!resets_first()) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(
        Copy(units, static_cast<const T*>(memory.z + 2 * units), 3 * units, memory.gradients, units, rows()));
    CAIRN_RETURN_IF_ERROR(
        second_.weights->Run(memory.inner, memory.gradients, nullptr, second_.gradient->data()));
    return StorePart(second_, dkernel);
  }

  Context& context_;
  const RecurrenceParams params_;
  const RecurrentOutput output_;
  KernelPart<T> first_, second_;  // the second one only without reset_after
  std::unique_ptr<ReluBias> bias_;
  // See RecurrentMemory. through_ [batch, units]: the gradient through U.
  std::unique_ptr<DeviceMemory> product_, current_, scaled_, inner_, gradients_, state_, carry_, dh_, dc_,
      through_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Recurrence>> MakeRecurrence(Context& context, const RecurrenceParams& params) {
  CAIRN_RETURN_IF_ERROR(Validate(params));
  return VisitType(params.type, [&](auto* p) {
    return CudaRecurrence<std::remove_pointer_t<decltype(p)>>::Create(context, params);
  });
}

}  // namespace cairn::kernels::cuda
