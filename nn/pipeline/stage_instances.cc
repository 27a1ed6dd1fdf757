#include "nn/pipeline/stage_instances.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/pipeline/pipeline_schedule.h"

namespace cairn::nn {
namespace {

// The fault of a micro-batch that begins with example `begin` of the batch.
absl::Status FromExample(int64_t begin, const absl::Status& status) {
  return begin == 0 ? status : Annotate(status, absl::StrCat("from example ", begin, " on"));
}

// The index of a stage's node among its outputs.
size_t OutputOf(const PipelineStage& stage, int node) {
  return static_cast<size_t>(std::find(stage.outputs.begin(), stage.outputs.end(), node) -
                             stage.outputs.begin());
}

}  // namespace

PipelineLocations PipelineLocations::OfDevices(absl::Span<const int> device_of) {
  PipelineLocations locations = {
      .location_of = {device_of.begin(), device_of.end()}, .device_of = {}, .task_of = {}};
  locations.device_of.resize(static_cast<size_t>(*std::max_element(device_of.begin(), device_of.end())) + 1);
  std::iota(locations.device_of.begin(), locations.device_of.end(), 0);
  locations.task_of.resize(locations.device_of.size());
  return locations;
}

PipelineShape::PipelineShape(const Model& of_model, const Objective& of_objective,
                             const PipelineLocations& locations, TraceRecorder* of_trace,
                             RemoteStages* of_remote_stages)
    : model(of_model),
      objective(of_objective),
      trace(of_trace),
      remote_stages(of_remote_stages),
      stages(SplitModel(of_model, locations.location_of)) {
  stages_with.resize(model.variables().size());
  readers.resize(stages.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto location =
        static_cast<size_t>(locations.location_of[static_cast<size_t>(stages[stage].begin)]);
    device_of_stage.push_back(locations.device_of[location]);
    task_of_stage.push_back(locations.task_of[location]);
    if (device_of_stage.back() >= 0) task = task_of_stage.back();
    for (const int variable : stages[stage].variables) {
      stages_with[static_cast<size_t>(variable)].push_back(static_cast<int>(stage));
    }
    readers[stage].resize(stages[stage].outputs.size());
    leaves.emplace_back(stages[stage].outputs.size());
  }
  std::vector<std::map<int, std::set<int>>> outputs(stages.size()),
      gradients(stages.size());  // [stage][task]
  for (size_t stage = stages.size(); stage-- > 0;) {
    for (size_t input = 0; input < stages[stage].inputs.size(); ++input) {
      const int node = stages[stage].inputs[input];
      if (node < 0) continue;
      const auto from = static_cast<size_t>(StageOfNode(stages, node));
      const size_t output = OutputOf(stages[from], node);
      if (device_of_stage[from] != device_of_stage[stage]) leaves[from][output] = true;
      const bool crosses = task_of_stage[from] != task_of_stage[stage];
      if (crosses) outputs[from][task_of_stage[stage]].insert(static_cast<int>(output));
      if (!stages[stage].input_needs_gradient[input]) continue;
      if (crosses) gradients[stage][task_of_stage[from]].insert(static_cast<int>(input));
      readers[from][output].push_back({static_cast<int>(stage), static_cast<int>(input)});
    }
  }
  const auto exports = [](const std::map<int, std::set<int>>& by_task) {
    std::vector<Export> listed;
    for (const auto& [to, slots] : by_task) listed.push_back({to, {slots.begin(), slots.end()}});
    return listed;
  };
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    outputs_to.push_back(exports(outputs[stage]));
    input_gradients_to.push_back(exports(gradients[stage]));
  }
}

std::vector<PipelineShape::Import> PipelineShape::Imports() const {
  std::vector<Import> imports;
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    const auto index = static_cast<size_t>(stage);
    if (is_here(stage)) continue;
    for (const bool backward : {false, true}) {
      for (const Export& one : backward ? input_gradients_to[index] : outputs_to[index]) {
        if (one.task != task) continue;
        for (const int slot : one.slots) {
          const int node =
              (backward ? stages[index].inputs : stages[index].outputs)[static_cast<size_t>(slot)];
          imports.push_back({.what = {.stage = stage, .slot = slot, .backward = backward},
                             .row = model.nodes()[static_cast<size_t>(node)].output_shape.num_elements()});
        }
      }
    }
  }
  return imports;
}

StageInstances::StageInstances(const PipelineShape& shape, int64_t examples, int64_t micro_batches)
    : shape_(shape),
      begins_(EvenParts(examples, std::min(examples, micro_batches))),
      instances_(shape.stages.size()) {}

absl::Status StageInstances::Make(int stage, PipelineDevice& pipeline_device) {
  instances_[static_cast<size_t>(stage)].resize(static_cast<size_t>(micro_batches()));
  for (int m = 0; m < micro_batches(); ++m) CAIRN_RETURN_IF_ERROR(MakeInstance(stage, m, pipeline_device));
  return absl::OkStatus();
}

void StageInstances::Destroy(int stage) {
  instances_[static_cast<size_t>(stage)].clear();
}

PipelineDevice::Contribution StageInstances::ContributionOf(int variable, int stage, int micro_batch) const {
  const std::vector<int>& with = shape_.stages_with[static_cast<size_t>(variable)];
  return {.first = micro_batch == 0 && stage == with.back(),
          .last = micro_batch + 1 == micro_batches() && stage == with.front(),
          .share =
              static_cast<float>(static_cast<double>(SizeOf(micro_batch)) / static_cast<double>(examples()))};
}

absl::Status StageInstances::MakeInstance(int stage, int micro_batch, PipelineDevice& pipeline_device) {
  const PipelineStage& here = shape_.stages[static_cast<size_t>(stage)];
  kernels::Device& device = pipeline_device.device();
  StageInstance& instance = At(stage, micro_batch);
  const int64_t size = SizeOf(micro_batch);
  Plan::Spec spec = {.stage = here, .batch = size, .mean_over = examples()};
  spec.trace = {.recorder = shape_.trace, .device = shape_.device_of_stage[static_cast<size_t>(stage)]};
  for (const int variable : here.variables) {
    if (ContributionOf(variable, stage, micro_batch).first) spec.penalized.push_back(variable);
  }
  CAIRN_ASSIGN_OR_RETURN(instance.plan,
                         Plan::Create(shape_.model, shape_.objective, device, std::move(spec)));
  CAIRN_RETURN_IF_ERROR(MakeBorders(stage, instance, device));
  if (!here.last) return absl::OkStatus();
  const int64_t targets = size * shape_.objective.TargetsPerExample(shape_.model);
  CAIRN_ASSIGN_OR_RETURN(instance.targets, DeviceCopy::Create(device, targets, "targets"));
  CAIRN_ASSIGN_OR_RETURN(
      instance.weights,
      DeviceCopy::Create(device, size * shape_.objective.WeightsPerExample(shape_.model), "weights"));
  return absl::OkStatus();
}

absl::Status StageInstances::MakeBorders(int stage, StageInstance& instance, kernels::Device& device) const {
  const PipelineStage& here = shape_.stages[static_cast<size_t>(stage)];
  instance.input_pointers.resize(here.inputs.size());
  instance.inputs.resize(here.inputs.size());
  instance.input_gradients.resize(here.inputs.size());
  instance.model_input_gradients.resize(here.inputs.size());
  for (size_t i = 0; i < here.inputs.size(); ++i) {
    const int input = here.inputs[i];
    if (input >= 0 && shape_.same_device(StageOfNode(shape_.stages, input), stage)) continue;
    const int64_t floats = instance.plan->input_floats(i);
    CAIRN_ASSIGN_OR_RETURN(instance.inputs[i],
                           DeviceCopy::Create(device, floats, "activations from another stage"));
    if (!here.input_needs_gradient[i]) continue;
    if (input < 0) {
      CAIRN_ASSIGN_OR_RETURN(instance.model_input_gradients[i],
                             DeviceCopy::Create(device, floats, "gradients of inputs"));
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(instance.input_gradients[i], HostStaging::Create(device, floats));
  }
  instance.outputs.resize(here.outputs.size());
  instance.output_addends.resize(here.outputs.size());
  for (size_t i = 0; i < here.outputs.size(); ++i) {
    const int64_t floats = instance.plan->output_floats(i);
    if (shape_.leaves[static_cast<size_t>(stage)][i]) {
      CAIRN_ASSIGN_OR_RETURN(instance.outputs[i], HostStaging::Create(device, floats));
    }
    if (shape_.readers[static_cast<size_t>(stage)][i].size() > 1) {
      CAIRN_ASSIGN_OR_RETURN(instance.output_addends[i],
                             DeviceCopy::Create(device, floats, "gradients from another stage"));
    }
  }
  return absl::OkStatus();
}

absl::Status StageInstances::GatherInputs(int stage, int micro_batch, const Call& call) {
  const PipelineStage& here = shape_.stages[static_cast<size_t>(stage)];
  StageInstance& instance = At(stage, micro_batch);
  for (size_t i = 0; i < here.inputs.size(); ++i) {
    const int input = here.inputs[i];
    if (input < 0) {
      const auto index = static_cast<size_t>(Node::OfModelInput(input));
      CAIRN_ASSIGN_OR_RETURN(instance.input_pointers[i],
                             instance.inputs[i]->Upload(call.inputs[index].Rows(
                                 begins_[static_cast<size_t>(micro_batch)], SizeOf(micro_batch))));
      continue;
    }
    const int from = StageOfNode(shape_.stages, input);
    const size_t output = OutputOf(shape_.stages[static_cast<size_t>(from)], input);
    if (shape_.same_device(from, stage)) {
      instance.input_pointers[i] = At(from, micro_batch).plan->output(output);
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(
        const float* const host,
        shape_.is_here(from)
            ? At(from, micro_batch).outputs[output]->Receive()
            : shape_.remote_stages->Received(
                  {.stage = from, .slot = static_cast<int>(output), .micro_batch = micro_batch}));
    CAIRN_ASSIGN_OR_RETURN(instance.input_pointers[i],
                           instance.inputs[i]->Upload(host, instance.plan->input_floats(i)));
  }
  return absl::OkStatus();
}

absl::Status StageInstances::Forward(int stage, int micro_batch, const Call& call,
                                     PipelineDevice& pipeline_device) {
  const PipelineStage& here = shape_.stages[static_cast<size_t>(stage)];
  StageInstance& instance = At(stage, micro_batch);
  CAIRN_RETURN_IF_ERROR(GatherInputs(stage, micro_batch, call));
  if (call.training) SetInputGradients(stage, micro_batch, call);
  CAIRN_RETURN_IF_ERROR(pipeline_device.device().SeedRandom(
      call.batch.seed, call.batch.first_example + begins_[static_cast<size_t>(micro_batch)]));
  CAIRN_RETURN_IF_ERROR(
      FromExample(begins_[static_cast<size_t>(micro_batch)],
                  instance.plan->Forward(pipeline_device.values(), instance.input_pointers, call.training)));
  if (!call.training) CAIRN_RETURN_IF_ERROR(instance.plan->Penalties(pipeline_device.values()));
  if (here.last) return RunLoss(instance, micro_batch, call, pipeline_device);
  for (size_t i = 0; i < here.outputs.size(); ++i) {
    if (!instance.outputs[i].has_value()) continue;
    CAIRN_RETURN_IF_ERROR(instance.outputs[i]->Send(instance.plan->output(i)));
  }
  return SendToRemoteStages(stage, micro_batch, /*backward=*/false);
}

// Sends tensors that the device has just computed. Waits until they are in host memory.
absl::Status StageInstances::SendToRemoteStages(int stage, int micro_batch, bool backward) {
  StageInstance& instance = At(stage, micro_batch);
  const auto index = static_cast<size_t>(stage);
  for (const PipelineShape::Export& one :
       backward ? shape_.input_gradients_to[index] : shape_.outputs_to[index]) {
    for (const int slot : one.slots) {
      const auto at = static_cast<size_t>(slot);
      CAIRN_ASSIGN_OR_RETURN(const float* const host, backward ? instance.input_gradients[at]->Receive()
                                                               : instance.outputs[at]->Receive());
      const int64_t floats = backward ? instance.plan->input_floats(at) : instance.plan->output_floats(at);
      shape_.remote_stages->Send(
          one.task, {.stage = stage, .slot = slot, .micro_batch = micro_batch, .backward = backward},
          {host, static_cast<size_t>(floats)}, /*completes=*/slot == one.slots.back());
    }
  }
  return absl::OkStatus();
}

absl::Status StageInstances::RunLoss(StageInstance& instance, int micro_batch, const Call& call,
                                     PipelineDevice& pipeline_device) {
  const int64_t begin = begins_[static_cast<size_t>(micro_batch)], size = SizeOf(micro_batch);
  const BatchView piece = call.batch.Part(begin, size);
  Plan::Batch batch;
  CAIRN_ASSIGN_OR_RETURN(batch.targets, instance.targets->Upload(piece.targets.data(),
                                                                 static_cast<int64_t>(piece.targets.size())));
  if (!piece.weights.empty()) {
    CAIRN_ASSIGN_OR_RETURN(
        batch.weights,
        instance.weights->Upload(piece.weights.data(), static_cast<int64_t>(piece.weights.size())));
  }
  CAIRN_RETURN_IF_ERROR(FromExample(begin, instance.plan->Loss(batch, call.training)));
  const int64_t width = shape_.model.output_shape().num_elements();
  return pipeline_device.device().CopyToHost(instance.plan->output(), call.outputs + begin * width,
                                             size * width * int64_t{sizeof(float)});
}

absl::Status StageInstances::GatherGradients(int stage, int micro_batch, PipelineDevice& pipeline_device) {
  StageInstance& instance = At(stage, micro_batch);
  const auto& readers = shape_.readers[static_cast<size_t>(stage)];
  for (size_t output = 0; output < readers.size(); ++output) {
    float* const sum = instance.plan->output_gradient(output);
    const int64_t floats = instance.plan->output_floats(output);
    bool first = true;
    for (const PipelineShape::Reader& reader : readers[output]) {
      const auto input = static_cast<size_t>(reader.input);
      if (shape_.same_device(reader.stage, stage)) {
        const float* const gradient = At(reader.stage, micro_batch).plan->input_gradient(input);
        CAIRN_RETURN_IF_ERROR(first ? pipeline_device.device().CopyOnDevice(gradient, sum, floats)
                                    : instance.plan->AddToOutputGradient(output, gradient));
      } else {
        CAIRN_ASSIGN_OR_RETURN(const float* const host,
                               shape_.is_here(reader.stage)
                                   ? At(reader.stage, micro_batch).input_gradients[input]->Receive()
                                   : shape_.remote_stages->Received({.stage = reader.stage,
                                                                     .slot = reader.input,
                                                                     .micro_batch = micro_batch,
                                                                     .backward = true}));
        if (first) {
          CAIRN_RETURN_IF_ERROR(
              pipeline_device.device().CopyToDevice(host, sum, floats * int64_t{sizeof(float)}));
        } else {
          CAIRN_ASSIGN_OR_RETURN(const float* const addend,
                                 instance.output_addends[output]->Upload(host, floats));
          CAIRN_RETURN_IF_ERROR(instance.plan->AddToOutputGradient(output, addend));
        }
      }
      first = false;
    }
  }
  return absl::OkStatus();
}

absl::Span<float> StageInstances::InputGradientRows(int input, int micro_batch, const Call& call) const {
  const absl::Span<float> all = call.batch.input_gradients[static_cast<size_t>(Node::OfModelInput(input))];
  const size_t width = all.size() / static_cast<size_t>(examples());
  return all.subspan(static_cast<size_t>(begins_[static_cast<size_t>(micro_batch)]) * width,
                     static_cast<size_t>(SizeOf(micro_batch)) * width);
}

void StageInstances::SetInputGradients(int stage, int micro_batch, const Call& call) {
  StageInstance& instance = At(stage, micro_batch);
  for (size_t i = 0; i < instance.model_input_gradients.size(); ++i) {
    const std::optional<DeviceCopy>& memory = instance.model_input_gradients[i];
    if (!memory.has_value()) continue;
    const int input = shape_.stages[static_cast<size_t>(stage)].inputs[i];
    instance.plan->SetInputGradient(i, memory->Target(InputGradientRows(input, micro_batch, call).data()));
  }
}

absl::Status StageInstances::TakeInputGradient(int input, StageTensor at, const Call& call,
                                               PipelineDevice& pipeline_device) {
  StageInstance& instance = At(at.stage, at.micro_batch);
  const absl::Span<float> rows = InputGradientRows(input, at.micro_batch, call);
  const float* const computed = instance.plan->input_gradient(static_cast<size_t>(at.slot));
  if (computed != rows.data()) {
    CAIRN_RETURN_IF_ERROR(pipeline_device.device().CopyToHost(
        computed, rows.data(), static_cast<int64_t>(rows.size() * sizeof(float))));
  }
  if (at.micro_batch + 1 == micro_batches()) pipeline_device.AddInput(input);
  return absl::OkStatus();
}

absl::Status StageInstances::Backward(int stage, int micro_batch, const Call& call,
                                      PipelineDevice& pipeline_device) {
  const PipelineStage& here = shape_.stages[static_cast<size_t>(stage)];
  StageInstance& instance = At(stage, micro_batch);
  if (!here.last) CAIRN_RETURN_IF_ERROR(GatherGradients(stage, micro_batch, pipeline_device));
  std::vector<float*> targets(shape_.model.variables().size());
  for (const int variable : here.variables) {
    targets[static_cast<size_t>(variable)] =
        pipeline_device.TargetOf(variable, ContributionOf(variable, stage, micro_batch));
  }
  CAIRN_RETURN_IF_ERROR(instance.plan->Backward(pipeline_device.values(), targets, [&](int gradient) {
    if (gradient >= 0) {
      return pipeline_device.Add(gradient, ContributionOf(gradient, stage, micro_batch));
    }
    const auto slot = static_cast<int>(absl::c_find(here.inputs, gradient) - here.inputs.begin());
    return TakeInputGradient(gradient, {.stage = stage, .slot = slot, .micro_batch = micro_batch}, call,
                             pipeline_device);
  }));
  for (size_t i = 0; i < here.inputs.size(); ++i) {
    if (!instance.input_gradients[i].has_value()) continue;
    CAIRN_RETURN_IF_ERROR(instance.input_gradients[i]->Send(instance.plan->input_gradient(i)));
  }
  return SendToRemoteStages(stage, micro_batch, /*backward=*/true);
}

LossTotals StageInstances::sums() const {
  LossTotals sums;
  for (const StageInstance& instance : instances_.back()) sums += instance.plan->sums();
  return sums;
}

double StageInstances::penalty() const {
  double penalty = 0;
  for (const std::vector<StageInstance>& stage : instances_) {
    for (const StageInstance& instance : stage) penalty += instance.plan->penalty();
  }
  return penalty;
}

}  // namespace cairn::nn
