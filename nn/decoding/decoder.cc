#include "nn/decoding/decoder.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "nn/batch.h"

namespace cairn::nn {
namespace {

// The stage of the nodes of one kind: those of steps, or those that are computed once per sequence.
PipelineStage StageOf(const Model& model, const DecodedValues& values, DecodedInput kind) {
  PipelineStage stage;
  stage.end = static_cast<int>(model.nodes().size());
  stage.last = true;
  const auto is_inside = [&](int value) {
    return value >= 0 && values.nodes[static_cast<size_t>(value)] == kind;
  };
  for (int node = 0; node < stage.end; ++node) {
    const auto index = static_cast<size_t>(node);
    if (!values.needed[index]) continue;
    for (const int input : model.nodes()[index].inputs) {
      if (is_inside(node)) {
        if (!is_inside(input) && !absl::c_linear_search(stage.inputs, input)) stage.inputs.push_back(input);
      } else if (is_inside(input) && !absl::c_linear_search(stage.outputs, input)) {
        stage.outputs.push_back(input);
      }
    }
  }
  if (is_inside(values.output)) stage.outputs.push_back(values.output);
  stage.input_needs_gradient.resize(stage.inputs.size());
  return stage;
}

}  // namespace

Decoder::Decoder(const Args& args, DecodedValues values, kernels::Device& device)
    : model_(args.model),
      sequence_(args.sequence),
      batch_(args.batch),
      length_(args.model.inputs()[static_cast<size_t>(args.sequence)].shape[0]),
      values_(std::move(values)),
      device_(device),
      whole_stage_(StageOf(model_, values_, DecodedInput::kWhole)),
      step_stage_(StageOf(model_, values_, DecodedInput::kSteps)),
      variables_(model_.variables().size()),
      inputs_(model_.inputs().size()),
      input_addresses_(model_.inputs().size()),
      outputs_(batch_ * model_.outputs()[0].shape[1]) {}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const Args& args, kernels::Device& device) {
  if (device.compute_type() != kernels::ElementType::kFloat32)
    return absl::UnimplementedError("a device of reduced precision does not decode step by step");
  std::vector<DecodedInput> inputs(args.inputs.begin(), args.inputs.end());
  inputs.resize(args.model.inputs().size(), DecodedInput::kWhole);
  inputs[static_cast<size_t>(args.sequence)] = DecodedInput::kSteps;
  CAIRN_ASSIGN_OR_RETURN(DecodedValues values, ValuesOfSteps(args.model, inputs));
  std::unique_ptr<Decoder> decoder(new Decoder(args, std::move(values), device));
  CAIRN_RETURN_IF_ERROR(decoder->Prepare(args.parameters));
  return decoder;
}

absl::Status Decoder::Prepare(absl::Span<const float> parameters) {
  CAIRN_ASSIGN_OR_RETURN(parameters_, DeviceCopy::Create(device_, model_.num_parameters(), "parameters"));
  CAIRN_ASSIGN_OR_RETURN(const float* const first,
                         parameters_->Upload(parameters.data(), model_.num_parameters()));
  for (size_t i = 0; i < variables_.size(); ++i) variables_[i] = first + model_.variables()[i].offset;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (values_.inputs[i] == DecodedInput::kOnes) continue;
    CAIRN_ASSIGN_OR_RETURN(inputs_[i],
                           DeviceCopy::Create(device_, InputFloats(model_.inputs()[i], batch_), "inputs"));
  }
  caches_.reserve(model_.nodes().size());  // ops have addresses of caches
  while (caches_.size() < model_.nodes().size()) caches_.emplace_back(batch_, device_);
  CAIRN_ASSIGN_OR_RETURN(whole_, Build(whole_stage_, /*steps=*/nullptr));
  return absl::OkStatus();
}

absl::StatusOr<StepGraph> Decoder::Build(const PipelineStage& stage, const DecodedSteps* steps) {
  const DecodedInput kind = steps == nullptr ? DecodedInput::kWhole : DecodedInput::kSteps;
  InferenceNodes nodes = {.has = values_.needed, .steps = steps};
  for (size_t i = 0; i < nodes.has.size(); ++i) nodes.has[i] = nodes.has[i] && values_.nodes[i] == kind;
  return BuildInferenceGraph(model_, stage, batch_, device_, nodes);
}

absl::StatusOr<StepGraph*> Decoder::GraphFor(int64_t count) {
  const auto found = graphs_.find(count);
  if (found != graphs_.end()) return &found->second;
  if (count > 1) std::erase_if(graphs_, [](const auto& graph) { return graph.first > 1; });
  const DecodedSteps steps = {.count = count,
                              .length = length_,
                              .first = &position_,
                              .kind_of_input = values_.inputs,
                              .kind_of_node = values_.nodes,
                              .uses = values_.uses,
                              .caches = absl::MakeSpan(caches_)};
  CAIRN_ASSIGN_OR_RETURN(StepGraph graph, Build(step_stage_, &steps));
  return &graphs_.emplace(count, std::move(graph)).first->second;
}

absl::Status Decoder::Run(StepGraph& graph, absl::Span<const float* const> inputs) {
  return RunForward(graph, {.values = variables_, .inputs = inputs}, device_, [](int) { return true; });
}

absl::Status Decoder::Begin(absl::Span<const TensorView> inputs) {
  position_ = 0;
  std::vector<const float*> addresses;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (values_.inputs[i] != DecodedInput::kWhole) continue;
    CAIRN_ASSIGN_OR_RETURN(input_addresses_[i], inputs_[i]->Upload(inputs[i]));
  }
  for (const int input : whole_stage_.inputs) addresses.push_back(AddressOf(input));
  return Run(whole_, addresses);
}

const float* Decoder::AddressOf(int value) const {
  if (values_.Of(value) == DecodedInput::kOnes) return nullptr;
  if (value < 0) return input_addresses_[static_cast<size_t>(Node::OfModelInput(value))];
  const auto output = absl::c_find(whole_stage_.outputs, value) - whole_stage_.outputs.begin();
  return whole_.values[static_cast<size_t>(whole_.outputs[static_cast<size_t>(output)])].data;
}

absl::StatusOr<absl::Span<const float>> Decoder::Append(const TensorView& ids) {
  const int64_t count = ids.shape[1], width = model_.outputs()[0].shape[1];
  if (count < 1 || position_ + count > length_) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot append ", count, " steps to ", position_, " of at most ", length_));
  }
  const auto sequence = static_cast<size_t>(sequence_);
  CAIRN_ASSIGN_OR_RETURN(StepGraph * graph, GraphFor(count));
  CAIRN_ASSIGN_OR_RETURN(input_addresses_[sequence], inputs_[sequence]->Upload(ids));
  std::vector<const float*> addresses;
  for (const int input : step_stage_.inputs) addresses.push_back(AddressOf(input));
  CAIRN_RETURN_IF_ERROR(Run(*graph, addresses));
  position_ += count;
  const float* const outputs = graph->values[static_cast<size_t>(graph->outputs[0])].data;
  for (int64_t example = 0; example < batch_; ++example) {
    CAIRN_RETURN_IF_ERROR(device_.CopyToHost(outputs + ((example + 1) * count - 1) * width,
                                             outputs_.data() + example * width,
                                             width * static_cast<int64_t>(sizeof(float))));
  }
  CAIRN_RETURN_IF_ERROR(device_.Synchronize());
  return outputs_.span();
}

absl::Status Decoder::Reorder(absl::Span<const int64_t> from) {
  for (DecodingCache& cache : caches_) CAIRN_RETURN_IF_ERROR(cache.Reorder(from));
  return absl::OkStatus();
}

bool Decoder::masks_zero() const {
  return absl::c_linear_search(values_.nodes, DecodedInput::kOnes);
}

}  // namespace cairn::nn
