#include "nn/replica/step_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/memory_size.h"
#include "nn/layers/layer_ops.h"
#include "nn/replica/activation_buffers.h"

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

class Builder {
 public:
  Builder(const Model& model, const PipelineStage& stage, StepExamples examples, kernels::Device& device)
      : model_(model),
        stage_(stage),
        batch_(examples.batch),
        mean_over_(examples.mean_over),
        sync_(examples.sync),
        device_(device) {}

  void Record(TraceRecorder* recorder) { recorder_ = recorder; }
  void LeaveOutOthers(const InferenceNodes& nodes) {
    nodes_ = &nodes;
    steps_ = nodes.steps;
  }

  absl::StatusOr<StepGraph> Build() {
    IndexNodes();
    AddInputs();
    for (int node = stage_.begin; node < stage_.end;) {
      if (nodes_ != nullptr && !nodes_->has[static_cast<size_t>(node)]) {
        ++node;
        continue;
      }
      CAIRN_ASSIGN_OR_RETURN(const int added, AddNode(static_cast<size_t>(node)));
      node += added;
    }
    for (const int output : stage_.outputs) {
      if (!stage_.last && IsInteger(value(ValueOf(output)).desc.type)) {
        return absl::UnimplementedError(absl::StrCat(
            "layer '", model_.nodes()[static_cast<size_t>(output)].layer->name(),
            "' passes integers to a layer on another device, and only floats pass between devices: "
            "place both on one device"));
      }
      CAIRN_ASSIGN_OR_RETURN(graph_.outputs.emplace_back(), Plain(ValueOf(output)));
    }
    CAIRN_RETURN_IF_ERROR(AllocateOutputs(graph_, device_));
    return std::move(graph_);
  }

 private:
  using Value = StepGraph::Value;

  Value& value(int index) { return graph_.values[static_cast<size_t>(index)]; }

  // Counts the users of the nodes, and numbers the stage's inputs.
  void IndexNodes() {
    users_.resize(model_.nodes().size());
    for (const Node& node : model_.nodes()) {
      for (const int input : node.inputs) {
        if (input >= 0) ++users_[static_cast<size_t>(input)];
      }
    }
    for (const int input : stage_.inputs)
      value_of_input_.emplace(input, static_cast<int>(value_of_input_.size()));
    value_of_.resize(static_cast<size_t>(stage_.end - stage_.begin));
  }

  void AddInputs() {
    for (size_t i = 0; i < stage_.inputs.size(); ++i) {
      const int input = stage_.inputs[i];
      TensorDesc desc;
      bool ragged = false;
      if (input < 0) {
        const ModelInput& of_model = model_.inputs()[static_cast<size_t>(Node::OfModelInput(input))];
        desc = {.shape = WithBatch(batch_, of_model.shape), .type = of_model.dtype};
        ragged = of_model.ragged;
      } else {
        desc = {.shape = WithBatch(batch_, model_.nodes()[static_cast<size_t>(input)].output_shape)};
      }
      if (steps_ != nullptr && KindOf(input) != DecodedInput::kWhole) {
        Shape some = {batch_, steps_->count};
        for (int axis = 2; axis < desc.shape.rank(); ++axis) some.Append(desc.shape[axis]);
        desc.shape = std::move(some);
      }
      graph_.values.push_back(
          {.desc = std::move(desc), .needs_gradient = stage_.input_needs_gradient[i], .ragged = ragged});
    }
  }

  // Returns the index of the value for `input`, which is in the numbering of Node::inputs.
  int ValueOf(int input) const {
    const auto found = value_of_input_.find(input);
    if (found != value_of_input_.end()) return found->second;
    return value_of_[static_cast<size_t>(input - stage_.begin)];
  }
  DecodedInput KindOf(int input) const {
    return input < 0 ? steps_->kind_of_input[static_cast<size_t>(Node::OfModelInput(input))]
                     : steps_->kind_of_node[static_cast<size_t>(input)];
  }

  // Adds the step of this node, or of this node and the next one if they are made as one op. Returns the
  // number of nodes.
  absl::StatusOr<int> AddNode(size_t index) {
    const Node& node = model_.nodes()[index];
    CAIRN_ASSIGN_OR_RETURN(std::vector<int> inputs, InputsOf(node));
    std::vector<TensorDesc> descs;
    bool needs_gradients = false;
    for (const int input : inputs) {
      descs.push_back(value(input).desc);
      needs_gradients |= value(input).needs_gradient;
    }
    std::string what = absl::StrCat("layer '", node.layer->name(), "'");
    CAIRN_RETURN_IF_ERROR(Annotate(CheckSize(WithBatch(batch_, node.output_shape)), what));
    std::vector<DecodedInput> kinds;
    const std::optional<Decoding> decoding = DecodingOf(index, kinds);
    const LayerOpParams params = {.inputs = descs,
                                  .needs_input_gradients = needs_gradients,
                                  .masked = node.masked,
                                  .ragged = value(inputs[0]).ragged,
                                  .mean_over = mean_over_ > 0 ? mean_over_ : batch_,
                                  .statistics_weight = node.statistics_weight,
                                  .sync = sync_,
                                  .decoding = decoding.has_value() ? &*decoding : nullptr};
    absl::StatusOr<std::unique_ptr<LayerOp>> op = absl::UnimplementedError("alone");
    if (IsOnlyUsedByNext(index)) {
      op = node.layer->MakeFusedOp(params, *model_.nodes()[index + 1].layer, device_);
    }
    const bool fused = !absl::IsUnimplemented(op.status());
    if (!fused && inputs.size() == 2 && inputs[0] == inputs[1]) {
      op = node.layer->MakeOpOfSameInputs(
          {.inputs = params.inputs.first(1), .needs_input_gradients = needs_gradients}, device_);
      if (!absl::IsUnimplemented(op.status())) inputs.pop_back();
    }
    if (absl::IsUnimplemented(op.status())) op = node.layer->MakeOp(params, device_);
    if (!op.ok()) return Annotate(op.status(), what);
    CAIRN_ASSIGN_OR_RETURN(const int output,
                           AddStep(std::move(what), *std::move(op), std::move(inputs), node.variables));
    if (node.layer->is_mask()) value(output).needs_gradient = false;
    const int nodes = fused ? 2 : 1;
    const auto begin = value_of_.begin() + (static_cast<int>(index) - stage_.begin);
    std::fill(begin, begin + nodes, output);
    return nodes;
  }

  // Set if the node's steps depend on each other or on their positions. `kinds` are those of its inputs.
  std::optional<Decoding> DecodingOf(size_t index, std::vector<DecodedInput>& kinds) const {
    if (steps_ == nullptr || steps_->uses[index] != StepUse::kDecodes) return std::nullopt;
    for (const int input : model_.nodes()[index].inputs) kinds.push_back(KindOf(input));
    return Decoding{
        .length = steps_->length, .first = steps_->first, .inputs = kinds, .cache = &steps_->caches[index]};
  }

  // The values that this node reads: row-major unless the layer accepts their layout, and float unless it takes
  // integers.
  absl::StatusOr<std::vector<int>> InputsOf(const Node& node) {
    std::vector<int> inputs;
    std::vector<Shape> shapes;
    bool blocked = false, mixed = false, integer = false;
    for (const int input : node.own_inputs()) {
      inputs.push_back(ValueOf(input));
      const TensorDesc& desc = value(inputs.back()).desc;
      shapes.emplace_back(desc.shape.dims().subspan(1));
      const TensorDesc& first = value(inputs[0]).desc;
      blocked |= desc.layout != Layout::kRowMajor;
      integer |= IsInteger(desc.type);
      mixed |= desc.layout != first.layout || desc.type != first.type;
    }
    const bool own_types = integer && node.layer->takes_integers();  // each input is taken as it is
    if ((!own_types && (mixed || integer)) || (blocked && !node.layer->accepts_blocked(shapes))) {
      for (int& input : inputs) {
        CAIRN_ASSIGN_OR_RETURN(input, Plain(input));
      }
    }
    for (size_t mask = inputs.size(); mask < node.inputs.size(); ++mask) {
      CAIRN_ASSIGN_OR_RETURN(inputs.emplace_back(), Plain(ValueOf(node.inputs[mask])));
    }
    return inputs;
  }

  // Whether the next node is the only user of this node, is in the same stage, and has no other input and no
  // variables.
  bool IsOnlyUsedByNext(size_t index) const {
    const std::vector<Node>& nodes = model_.nodes();
    if (static_cast<int>(index) + 1 == stage_.end || !nodes[index + 1].variables.empty()) return false;
    return users_[index] == 1 && nodes[index + 1].inputs == std::vector<int>{static_cast<int>(index)};
  }

  // Returns the index of `index` in row-major float32. Adds a reorder step if the value has another layout.
  absl::StatusOr<int> Plain(int index) {
    const TensorDesc desc = value(index).desc;
    if (desc.is_plain()) return index;
    const auto [found, fresh] = plain_.try_emplace(index, -1);
    if (fresh) {
      CAIRN_ASSIGN_OR_RETURN(auto op, ReorderOp::Create(desc, device_));
      CAIRN_ASSIGN_OR_RETURN(found->second, AddStep("reorder", std::move(op), {index}, {}));
    }
    return found->second;
  }

  // Returns the index of the step's output.
  absl::StatusOr<int> AddStep(std::string what, std::unique_ptr<LayerOp> op, std::vector<int> inputs,
                              std::vector<int> variables) {
    Value made = {.desc = op->output(), .needs_gradient = nodes_ == nullptr && !variables.empty()};
    for (const int input : inputs) made.needs_gradient |= value(input).needs_gradient;
    const char* const kept = recorder_ == nullptr ? nullptr : recorder_->Keep(what);
    StepGraph::Step step = {.what = std::move(what),
                            .kept = kept,
                            .op = std::move(op),
                            .inputs = std::move(inputs),
                            .output = static_cast<int>(graph_.values.size()),
                            .variables = std::move(variables)};
    step.input_pointers.resize(step.inputs.size());
    step.variable_pointers.resize(step.variables.size());
    graph_.values.push_back(std::move(made));
    graph_.steps.push_back(std::move(step));
    return graph_.steps.back().output;
  }

  const Model& model_;
  const PipelineStage& stage_;
  const int64_t batch_, mean_over_;
  BatchSync* const sync_;
  kernels::Device& device_;
  TraceRecorder* recorder_ = nullptr;
  const InferenceNodes* nodes_ = nullptr;  // null: all nodes of the stage
  const DecodedSteps* steps_ = nullptr;    // null: whole inputs
  StepGraph graph_;
  std::vector<int> value_of_;          // [node of the stage]
  std::vector<int> users_;             // [node of the model] how often the node is an input
  std::map<int, int> value_of_input_;  // key: an input of the stage, in the numbering of Node::inputs
  std::map<int, int> plain_;           // key: a value in another layout; value: its row-major float32 version
};

}  // namespace

absl::StatusOr<StepGraph> BuildStepGraph(const Model& model, const PipelineStage& stage,
                                         StepExamples examples, kernels::Device& device,
                                         TraceRecorder* recorder) {
  Builder builder(model, stage, examples, device);
  builder.Record(recorder);
  return builder.Build();
}

absl::StatusOr<StepGraph> BuildInferenceGraph(const Model& model, const PipelineStage& stage, int64_t batch,
                                              kernels::Device& device, const InferenceNodes& nodes) {
  Builder builder(model, stage, {.batch = batch}, device);
  builder.LeaveOutOthers(nodes);
  return builder.Build();
}

absl::Status RunForward(StepGraph& graph, const ForwardRun& run, kernels::Device& device,
                        absl::FunctionRef<bool(int variable)> await) {
  for (size_t i = 0; i < run.inputs.size(); ++i) graph.values[i].data = run.inputs[i];
  for (StepGraph::Step& step : graph.steps) {
    for (size_t i = 0; i < step.inputs.size(); ++i) step.input_pointers[i] = graph.input_of(step, i).data;
    StepGraph::Value& output = graph.values[static_cast<size_t>(step.output)];
    if (step.op->is_view()) {
      output.data = step.input_pointers[0];
      continue;
    }
    for (size_t i = 0; i < step.variables.size(); ++i) {
      if (!await(step.variables[i])) return absl::CancelledError("its variables have not arrived");
      step.variable_pointers[i] = run.values[static_cast<size_t>(step.variables[i])];
    }
    const DeviceWork work(run.trace, TraceLane::kForward, step.name(), device);
    const absl::Status status = step.op->Forward({.inputs = step.input_pointers,
                                                  .variables = step.variable_pointers,
                                                  .output = output.memory,
                                                  .training = run.training});
    if (!status.ok()) return Annotate(status, step.what);
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
