#include "nn/replica/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"
#include "nn/layers/layer_ops.h"

namespace cairn::nn {
namespace {

using kernels::Layout;
using kernels::TensorDesc;

Shape WithBatch(int64_t batch, const Shape& shape) {
  Shape with_batch = {batch};
  for (int64_t extent : shape.dims()) with_batch.Append(extent);
  return with_batch;
}

// Ops compute with the sizes of activations, also in bytes. Beyond this size they could overflow, and no
// machine has so much memory.
absl::Status CheckSize(const Shape& output) {
  constexpr int64_t kMaxElements = int64_t{1} << 42;
  if (output.num_elements() <= kMaxElements) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("no memory for an output of ", output.ToString(),
                                                   ", more than ",
                                                   InGiB(static_cast<double>(kMaxElements) * sizeof(float))));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Plan>> Plan::Create(const Model& model, const LossSpec& loss,
                                                   kernels::Device& device, Spec spec) {
  auto plan = std::unique_ptr<Plan>(new Plan(model, device, std::move(spec)));
  CAIRN_RETURN_IF_ERROR(plan->AddSteps());
  CAIRN_RETURN_IF_ERROR(plan->AddRegularizers());
  CAIRN_RETURN_IF_ERROR(plan->PlanGradients());
  CAIRN_RETURN_IF_ERROR(plan->AddLossScaler());
  if (!plan->spec_.stage.last) return plan;
  kernels::LossParams params = MakeLossParams(loss, model.output_shape(), plan->spec_.batch);
  params.mean_over = plan->spec_.mean_over;
  CAIRN_ASSIGN_OR_RETURN(plan->loss_, device.ops().MakeLoss(params));
  return plan;
}

absl::StatusOr<std::unique_ptr<Plan>> Plan::Create(const Model& model, const LossSpec& loss,
                                                   kernels::Device& device, int64_t batch,
                                                   DeviceTrace trace) {
  Spec spec = {.stage = WholeModel(model), .batch = batch};
  spec.trace = trace;
  spec.penalized = spec.stage.variables;
  return Create(model, loss, device, std::move(spec));
}

int Plan::ValueOf(int input) const {
  const PipelineStage& stage = spec_.stage;
  if (input >= stage.begin) return value_of_[static_cast<size_t>(input - stage.begin)];
  return value_of_input_.at(input);
}

void Plan::IndexGraph() {
  users_.resize(model_.nodes().size());
  for (const Node& node : model_.nodes()) {
    for (const int input : node.inputs) {
      if (input >= 0) ++users_[static_cast<size_t>(input)];
    }
  }
  for (const int input : spec_.stage.inputs)
    value_of_input_.emplace(input, static_cast<int>(value_of_input_.size()));
}

absl::Status Plan::AddSteps() {
  const PipelineStage& stage = spec_.stage;
  IndexGraph();
  for (size_t i = 0; i < stage.inputs.size(); ++i) {
    const int input = stage.inputs[i];
    const Shape& shape = input < 0 ? model_.inputs()[static_cast<size_t>(Node::OfModelInput(input))].shape
                                   : model_.nodes()[static_cast<size_t>(input)].output_shape;
    values_.push_back(
        {.desc = {.shape = WithBatch(spec_.batch, shape)}, .needs_gradient = stage.input_needs_gradient[i]});
  }
  value_of_.resize(static_cast<size_t>(stage.end - stage.begin));
  for (auto index = static_cast<size_t>(stage.begin); index < static_cast<size_t>(stage.end); ++index) {
    const Node& node = model_.nodes()[index];
    std::vector<int> inputs;
    std::vector<Shape> shapes;
    bool blocked = false, mixed = false;
    for (int input : node.inputs) {
      const int value = ValueOf(input);
      inputs.push_back(value);
      const TensorDesc& desc = values_[static_cast<size_t>(value)].desc;
      shapes.emplace_back(desc.shape.dims().subspan(1));
      const TensorDesc& first = values_[static_cast<size_t>(inputs[0])].desc;
      blocked |= desc.layout != Layout::kRowMajor;
      mixed |= desc.layout != first.layout || desc.type != first.type;
    }
    if (mixed || (blocked && !node.layer->accepts_blocked(shapes))) {
      for (int& input : inputs) {
        CAIRN_ASSIGN_OR_RETURN(input, Plain(input));
      }
    }
    std::vector<TensorDesc> descs;
    bool needs_gradients = false;
    for (int input : inputs) {
      descs.push_back(values_[static_cast<size_t>(input)].desc);
      needs_gradients |= values_[static_cast<size_t>(input)].needs_gradient;
    }
    std::string what = absl::StrCat("layer '", node.layer->name(), "'");
    CAIRN_RETURN_IF_ERROR(Annotate(CheckSize(WithBatch(spec_.batch, node.output_shape)), what));
    const LayerOpParams params = {.inputs = descs, .needs_input_gradients = needs_gradients};
    absl::StatusOr<std::unique_ptr<LayerOp>> op = absl::UnimplementedError("alone");
    const bool chained = IsOnlyUsedByNext(index);
    if (chained) op = node.layer->MakeFusedOp(params, *model_.nodes()[index + 1].layer, device_);
    const bool fused = !absl::IsUnimplemented(op.status());
    if (!fused) op = node.layer->MakeOp(params, device_);
    if (!op.ok()) return Annotate(op.status(), what);
    CAIRN_RETURN_IF_ERROR(AddStep(std::move(what), *std::move(op), std::move(inputs), node.variables));
    value_of_[index - static_cast<size_t>(stage.begin)] = steps_.back().output;
    if (fused) value_of_[++index - static_cast<size_t>(stage.begin)] = steps_.back().output;
  }
  for (const int output : stage.outputs) {
    CAIRN_ASSIGN_OR_RETURN(outputs_.emplace_back(), Plain(ValueOf(output)));
  }
  return absl::OkStatus();
}

bool Plan::IsOnlyUsedByNext(size_t index) const {
  const std::vector<Node>& nodes = model_.nodes();
  if (static_cast<int>(index) + 1 == spec_.stage.end || !nodes[index + 1].variables.empty()) return false;
  return users_[index] == 1 && nodes[index + 1].inputs == std::vector<int>{static_cast<int>(index)};
}

absl::StatusOr<int> Plan::Plain(int value) {
  const TensorDesc desc = values_[static_cast<size_t>(value)].desc;
  if (desc.is_plain()) return value;
  const auto [found, fresh] = plain_.try_emplace(value, -1);
  if (fresh) {
    CAIRN_ASSIGN_OR_RETURN(auto op, ReorderOp::Create(desc, device_));
    CAIRN_RETURN_IF_ERROR(AddStep("reorder", std::move(op), {value}, {}));
    found->second = steps_.back().output;
  }
  return found->second;
}

absl::Status Plan::AddStep(std::string what, std::unique_ptr<LayerOp> op, std::vector<int> inputs,
                           std::vector<int> variables) {
  Value value = {.desc = op->output(), .needs_gradient = !variables.empty()};
  for (int input : inputs) value.needs_gradient |= values_[static_cast<size_t>(input)].needs_gradient;
  if (!op->is_view()) {
    CAIRN_ASSIGN_OR_RETURN(value.memory,
                           device_.Allocate(value.desc.num_floats(), absl::StrCat(what, ": output")));
    value.data = value.memory->data();
  }
  const char* const kept = spec_.trace.recorder == nullptr ? nullptr : spec_.trace.recorder->Keep(what);
  Step step = {.what = std::move(what),
               .kept = kept,
               .op = std::move(op),
               .inputs = std::move(inputs),
               .variables = std::move(variables)};
  step.output = static_cast<int>(values_.size());
  step.adds.resize(step.inputs.size());
  step.adds_to_variable.resize(step.variables.size());
  step.input_pointers.resize(step.inputs.size());
  step.input_gradient_pointers.resize(step.inputs.size());
  step.variable_pointers.resize(step.variables.size());
  step.gradient_pointers.resize(step.variables.size());
  values_.push_back(std::move(value));
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status Plan::AddRegularizers() {
  regularizers_.resize(model_.variables().size());
  penalties_.resize(model_.variables().size());
  for (const int index : spec_.penalized) {
    const auto i = static_cast<size_t>(index);
    const ModelVariable& variable = model_.variables()[i];
    const RegularizerSpec& penalty = variable.regularizer;
    if (penalty.l1 == 0 && penalty.l2 == 0) continue;
    CAIRN_ASSIGN_OR_RETURN(regularizers_[i], device_.ops().MakeRegularizer(variable.shape.num_elements(),
                                                                           penalty.l1, penalty.l2));
  }
  return absl::OkStatus();
}

absl::Status Plan::AddLossScaler() {
  if (device_.compute_type() != kernels::ElementType::kFloat16) return absl::OkStatus();
  kernels::LossScalerParams params = {
      .outputs = values_[static_cast<size_t>(outputs_[0])].desc.shape.num_elements(), .gradients = {}};
  for (const ModelVariable& variable : model_.variables()) {
    if (!variable.trainable()) continue;  // statistics come from the forward pass and are not scaled
    const int64_t begin = variable.offset, end = begin + variable.shape.num_elements();
    if (!params.gradients.empty() && params.gradients.back().end == begin) {
      params.gradients.back().end = end;
    } else {
      params.gradients.push_back({.begin = begin, .end = end});
    }
  }
  CAIRN_ASSIGN_OR_RETURN(scaler_, device_.ops().MakeLossScaler(params));
  return absl::OkStatus();
}

absl::Status Plan::AddAdder(kernels::ElementType type, int64_t floats) {
  std::unique_ptr<kernels::NaryOp>& adder = adders_[{type, floats}];
  if (adder != nullptr) return absl::OkStatus();
  const int64_t elements = floats * int64_t{sizeof(float)} / kernels::BytesOf(type);
  CAIRN_ASSIGN_OR_RETURN(adder, device_.ops().MakeAdd({.shape = {elements}, .type = type}, 2));
  return absl::OkStatus();
}

// Visits the steps in the same order as Backward().
absl::Status Plan::PlanGradients() {
  std::vector<int64_t> sizes;  // [gradient_memory_]
  std::vector<int> free;
  const auto acquire = [&](int value) {
    Value& wanted = values_[static_cast<size_t>(value)];
    if (free.empty()) {
      free.push_back(static_cast<int>(sizes.size()));
      sizes.push_back(0);
    }
    wanted.gradient = free.back();
    free.pop_back();
    int64_t& size = sizes[static_cast<size_t>(wanted.gradient)];
    size = std::max(size, wanted.desc.num_floats());
  };
  for (const int output : outputs_) {
    if (!spec_.stage.last && !values_[static_cast<size_t>(output)].needs_gradient) continue;
    acquire(output);
    if (spec_.stage.last) continue;
    CAIRN_RETURN_IF_ERROR(
        AddAdder(kernels::ElementType::kFloat32, values_[static_cast<size_t>(output)].desc.num_floats()));
  }
  int64_t most_added = 0;
  std::vector<bool> seen(model_.variables().size());
  // [variable] The last step with the variable, in the order of Backward().
  std::vector<size_t> last_step(model_.variables().size());
  for (size_t index = steps_.size(); index-- > 0;) {
    Step& step = steps_[index];
    Value& output = values_[static_cast<size_t>(step.output)];
    if (!output.needs_gradient) continue;
    int64_t added = 0;
    const auto add = [&](kernels::ElementType type, int64_t floats) -> absl::Status {
      added += PaddedFloats(floats);
      return AddAdder(type, floats);
    };
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      Value& input = values_[static_cast<size_t>(step.inputs[i])];
      if (!input.needs_gradient) continue;
      step.adds[i] = input.gradient >= 0;
      if (step.adds[i]) {
        CAIRN_RETURN_IF_ERROR(add(input.desc.type, input.desc.num_floats()));
      } else if (step.op->is_view()) {
        input.gradient = output.gradient;  // a view passes the gradient on unchanged
      } else {
        acquire(step.inputs[i]);
      }
    }
    for (size_t i = 0; i < step.variables.size(); ++i) {
      const auto variable = static_cast<size_t>(step.variables[i]);
      step.adds_to_variable[i] = seen[variable];
      if (seen[variable]) {
        CAIRN_RETURN_IF_ERROR(
            add(kernels::ElementType::kFloat32, model_.variables()[variable].shape.num_elements()));
      }
      seen[variable] = true;
      last_step[variable] = index;
    }
    most_added = std::max(most_added, added);
    const bool handed_on =
        step.op->is_view() && !step.adds[0] && values_[static_cast<size_t>(step.inputs[0])].needs_gradient;
    if (!handed_on) free.push_back(output.gradient);
  }
  for (const int variable : spec_.stage.variables) {
    steps_[last_step[static_cast<size_t>(variable)]].completes.push_back(variable);
  }
  for (int64_t size : sizes) {
    CAIRN_ASSIGN_OR_RETURN(gradient_memory_.emplace_back(),
                           device_.Allocate(size, "gradients of activations"));
  }
  if (most_added > 0) {
    CAIRN_ASSIGN_OR_RETURN(addend_, device_.Allocate(most_added, "gradients that are added up"));
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
