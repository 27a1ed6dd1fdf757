#include "nn/replica/gradient_buffers.h"

#include <algorithm>
#include <set>

#include "common/core/status.h"
#include "nn/replica/device_copy.h"

namespace cairn::nn {

using kernels::ElementType;

namespace {

struct Assignment {
  std::vector<GradientBuffers::Written> written{};   // [step]
  std::vector<int> buffer_of{};                      // [value] -1: none
  std::vector<int> own_inputs{};                     // inputs with buffers of their own
  std::vector<int64_t> sizes{};                      // [buffer] floats; first the buffers of `own_inputs`
  std::set<std::pair<ElementType, int64_t>> sums{};  // the type and floats of the arrays that are added
  int64_t most_added = 0;                            // the most floats that one step adds
};

// Visits the steps in the order of the backward pass, and assigns a buffer to every gradient for the time
// between its first writer and its reader.
class Assigner {
 public:
  Assigner(const StepGraph& graph, const Model& model, const PipelineStage& stage)
      : graph_(graph),
        model_(model),
        stage_(stage),
        own_(graph.values.size(), -1),
        first_user_(graph.values.size(), kNoStep),
        seen_(model.variables().size()),
        last_step_(seen_.size()) {
    result_.buffer_of.resize(graph.values.size(), -1);
    for (const StepGraph::Step& step : graph.steps) {
      GradientBuffers::Written& written = result_.written.emplace_back();
      written.adds.resize(step.inputs.size());
      written.skips.resize(step.inputs.size());
      written.inputs.resize(step.inputs.size());
      written.adds_to_variable.resize(step.variables.size());
      written.variables.resize(step.variables.size());
    }
  }

  Assignment Assign() {
    FindOwnBuffers();
    for (const int output : graph_.outputs) {
      const StepGraph::Value& value = graph_.values[static_cast<size_t>(output)];
      if (!stage_.last && !value.needs_gradient) continue;
      Acquire(output);
      if (!stage_.last) result_.sums.insert({ElementType::kFloat32, value.desc.num_floats()});
    }
    for (size_t step = graph_.steps.size(); step-- > 0;) {
      if (graph_.output_of(graph_.steps[step]).needs_gradient) AssignStep(step);
    }
    for (const int variable : stage_.variables) {
      result_.written[last_step_[static_cast<size_t>(variable)]].completes.push_back(variable);
    }
    for (const int input : result_.own_inputs) {
      result_.written[LastWriter(input)].completes_inputs.push_back(input);
    }
    return std::move(result_);
  }

 private:
  static constexpr size_t kNoStep = static_cast<size_t>(-1);

  int& buffer_of(int value) { return result_.buffer_of[static_cast<size_t>(value)]; }
  int& own(int value) { return own_[static_cast<size_t>(value)]; }
  size_t& first_user(int value) { return first_user_[static_cast<size_t>(value)]; }

  // Gives inputs of the model that need a gradient buffers of their own, which no other value shares except views of
  // the input. A view shares the buffer if its backward pass is the first that writes the gradient of the input.
  void FindOwnBuffers() {
    for (size_t input = 0; input < stage_.inputs.size(); ++input) {
      if (stage_.inputs[input] >= 0 || !stage_.input_needs_gradient[input]) continue;
      own_[input] = static_cast<int>(result_.sizes.size());
      result_.sizes.push_back(0);
      result_.own_inputs.push_back(static_cast<int>(input));
    }
    std::vector<size_t> last_user(graph_.values.size(), kNoStep);
    for (size_t step = 0; step < graph_.steps.size(); ++step) {
      for (const int input : graph_.steps[step].inputs) {
        last_user[static_cast<size_t>(input)] = step;
        first_user(input) = std::min(first_user(input), step);
      }
    }
    for (size_t index = 0; index < graph_.steps.size(); ++index) {
      const StepGraph::Step& step = graph_.steps[index];
      if (!step.op->is_view() || last_user[static_cast<size_t>(step.inputs[0])] != index) continue;
      own(step.output) = own(step.inputs[0]);
    }
  }

  // The step whose backward pass is the last that writes the gradient of an input with an own buffer.
  size_t LastWriter(int value) {
    const size_t step = first_user(value);
    const int output = graph_.steps[step].output;
    return own(output) < 0 || first_user(output) == kNoStep ? step : LastWriter(output);
  }

  void Acquire(int value) {
    if (own(value) >= 0) {
      buffer_of(value) = own(value);
      return;
    }
    if (free_.empty()) {
      free_.push_back(static_cast<int>(result_.sizes.size()));
      result_.sizes.push_back(0);
    }
    buffer_of(value) = free_.back();
    int64_t& size = result_.sizes[static_cast<size_t>(free_.back())];
    size = std::max(size, graph_.values[static_cast<size_t>(value)].desc.num_floats());
    free_.pop_back();
  }

  void AssignStep(size_t index) {
    const StepGraph::Step& step = graph_.steps[index];
    GradientBuffers::Written& written = result_.written[index];
    int64_t added = 0;
    const auto add = [&](ElementType type, int64_t floats) {
      added += PaddedFloats(floats);
      result_.sums.insert({type, floats});
    };
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const StepGraph::Value& input = graph_.input_of(step, i);
      if (!input.needs_gradient) continue;
      const bool exists = buffer_of(step.inputs[i]) >= 0;
      written.skips[i] = exists && step.op->ignores_inputs();
      written.adds[i] = exists && !written.skips[i];
      if (written.skips[i]) continue;
      if (written.adds[i]) {
        add(input.desc.type, input.desc.num_floats());
      } else if (step.op->is_view()) {
        buffer_of(step.inputs[i]) = buffer_of(step.output);  // a view passes the gradient on unchanged
      } else {
        Acquire(step.inputs[i]);
      }
    }
    for (size_t i = 0; i < step.variables.size(); ++i) {
      const auto variable = static_cast<size_t>(step.variables[i]);
      written.adds_to_variable[i] = seen_[variable];
      if (!seen_[variable]) written.begins.push_back(step.variables[i]);
      if (seen_[variable]) add(ElementType::kFloat32, model_.variables()[variable].shape.num_elements());
      seen_[variable] = true;
      last_step_[variable] = index;
    }
    result_.most_added = std::max(result_.most_added, added);
    const bool passed_on = step.op->is_view() && !written.adds[0] && graph_.input_of(step, 0).needs_gradient;
    if (!passed_on) free_.push_back(buffer_of(step.output));
  }

  const StepGraph& graph_;
  const Model& model_;
  const PipelineStage& stage_;
  Assignment result_;
  std::vector<int> own_;            // [value] the buffer that is an input's own; -1: none
  std::vector<size_t> first_user_;  // [value] the first step, in the order of the forward pass, that reads it
  std::vector<int> free_;           // buffers whose gradients have been read
  std::vector<bool> seen_;          // [variable of the model] a later step has the variable
  // [variable of the model] The last step with the variable, in the order of the backward pass.
  std::vector<size_t> last_step_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientBuffers>> GradientBuffers::Create(const StepGraph& graph,
                                                                         const Model& model,
                                                                         const PipelineStage& stage,
                                                                         kernels::Device& device) {
  Assignment assigned = Assigner(graph, model, stage).Assign();
  std::unique_ptr<GradientBuffers> made(new GradientBuffers(graph, model));
  made->written_ = std::move(assigned.written);
  made->buffer_of_ = std::move(assigned.buffer_of);
  made->own_inputs_ = std::move(assigned.own_inputs);
  for (const auto& [type, floats] : assigned.sums) {
    const int64_t elements = floats * int64_t{sizeof(float)} / BytesOf(type);
    CAIRN_ASSIGN_OR_RETURN(auto adder, device.ops().MakeAdd({.shape = {elements}, .type = type}, 2));
    made->adders_.emplace(Sum{type, floats}, std::move(adder));
  }
  made->addresses_.resize(assigned.sizes.size());
  for (size_t buffer = made->own_inputs_.size(); buffer < assigned.sizes.size(); ++buffer) {
    CAIRN_ASSIGN_OR_RETURN(made->buffers_.emplace_back(),
                           device.Allocate(assigned.sizes[buffer], "gradients of activations"));
    made->addresses_[buffer] = made->buffers_.back()->data();
  }
  if (assigned.most_added > 0) {
    CAIRN_ASSIGN_OR_RETURN(made->addend_,
                           device.Allocate(assigned.most_added, "gradients that are added up"));
  }
  return made;
}

const GradientBuffers::Written& GradientBuffers::Bind(size_t index, Gradients gradients) {
  const StepGraph::Step& step = graph_.steps[index];
  Written& written = written_[index];
  float* addend = addend_ == nullptr ? nullptr : addend_->data();
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    written.inputs[i] = written.skips[i] ? nullptr : written.adds[i] ? addend : of(step.inputs[i]);
    if (written.adds[i]) addend += PaddedFloats(graph_.input_of(step, i).desc.num_floats());
  }
  for (size_t i = 0; i < step.variables.size(); ++i) {
    const auto variable = static_cast<size_t>(step.variables[i]);
    written.variables[i] = written.adds_to_variable[i] ? addend : gradients[variable];
    if (written.adds_to_variable[i]) {
      addend += PaddedFloats(model_.variables()[variable].shape.num_elements());
    }
  }
  // A view writes nothing: the gradient of its output is added.
  if (step.op->is_view() && written.adds[0]) written.inputs[0] = of(step.output);
  return written;
}

absl::Status GradientBuffers::AddUp(size_t index, Gradients gradients) {
  const StepGraph::Step& step = graph_.steps[index];
  const Written& written = written_[index];
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    if (!written.adds[i]) continue;
    const kernels::TensorDesc& desc = graph_.input_of(step, i).desc;
    CAIRN_RETURN_IF_ERROR(Add(of(step.inputs[i]), written.inputs[i], {desc.type, desc.num_floats()}));
  }
  for (size_t i = 0; i < step.variables.size(); ++i) {
    if (!written.adds_to_variable[i]) continue;
    const auto variable = static_cast<size_t>(step.variables[i]);
    CAIRN_RETURN_IF_ERROR(Add(gradients[variable], written.variables[i],
                              {ElementType::kFloat32, model_.variables()[variable].shape.num_elements()}));
  }
  return absl::OkStatus();
}

absl::Status GradientBuffers::AddToOutput(int output, const float* addend) {
  const kernels::TensorDesc& desc = graph_.values[static_cast<size_t>(output)].desc;
  return Add(of(output), addend, {ElementType::kFloat32, desc.num_floats()});
}

absl::Status GradientBuffers::Add(float* sum, const float* addend, Sum kind) {
  const float* const terms[] = {sum, addend};
  return adders_.at(kind)->Forward(terms, sum);
}

}  // namespace cairn::nn
