// The steps of a model, or of one of its pipeline stages, for one batch size on one device: an op for each
// layer, a reorder where a layer needs row-major input, and memory for the outputs.
//
// BuildStepGraph() makes it once; a Plan owns it and sets the addresses in it at each run. Used by the plan's
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/trace/trace.h"
#include "kernels/device.h"
#include "nn/layer/decoding.h"
#include "nn/layer/layer.h"
#include "nn/model.h"
#include "nn/replica/device_trace.h"
#include "nn/replica/pipeline_stage.h"

namespace cairn::nn {

struct StepGraph {
  // An activation, or an input. Views share the value of their input.
  struct Value {
    kernels::TensorDesc desc;
    float* memory =
        nullptr;  // in a buffer that may serve several values in turn; null for an input or a view
    const float* data = nullptr;  // for an input or a view, set at each run
    // True if it depends on a variable, or on an input of the model that needs a gradient.
    bool needs_gradient = false;
    bool ragged = false;  // a ragged input of the model
  };
  // A layer, or a reorder between two layers.
  struct Step {
    std::string what;  // "layer 'conv2d'", for messages
    // The same text, owned by the timeline's recorder; null without a recorder.
    const char* kept = nullptr;
    const char* name() const { return kept == nullptr ? what.c_str() : kept; }
    std::unique_ptr<LayerOp> op{};
    std::vector<int> inputs{};  // indices of values
    int output = -1;
    std::vector<int> variables{};  // indices in the model
    // Set at each run.
    std::vector<const float*> input_pointers{}, variable_pointers{};
  };

  const Value& output_of(const Step& step) const { return values[static_cast<size_t>(step.output)]; }
  const Value& input_of(const Step& step, size_t input) const {
    return values[static_cast<size_t>(step.inputs[input])];
  }

  std::vector<Value> values;  // the stage's inputs come first
  std::vector<Step> steps;
  std::vector<int> outputs;                                     // [output of the stage] index of the value
  std::vector<std::unique_ptr<kernels::DeviceMemory>> buffers;  // see activation_buffers.h
};

// The examples of a step: `batch` >= 1, of those over which losses are averaged. 0: the batch.
struct StepExamples {
  int64_t batch = 0, mean_over = 0;
  BatchSync* sync = nullptr;  // as in LayerOpParams
};

// The steps of a sequence that a graph computes (nn/decoding).
struct DecodedSteps {
  int64_t count = 0;               // steps of a run
  int64_t length = 0;              // steps of a whole sequence
  const int64_t* first = nullptr;  // where the position of a run's first step is read
  absl::Span<const DecodedInput> kind_of_input{}, kind_of_node{};  // of the model
  absl::Span<const StepUse> uses{};                                // [node]
  absl::Span<DecodingCache> caches{};                              // [node]
};

// Some of a stage's nodes. The stage's inputs may be nodes that are left out.
struct InferenceNodes {
  std::vector<bool> has{};              // [node of the model]
  const DecodedSteps* steps = nullptr;  // null: the inputs are as the model has them
};

// `recorder` may be null. `device` must outlive the graph. RESOURCE_EXHAUSTED if an output has no place on any machine.
absl::StatusOr<StepGraph> BuildStepGraph(const Model& model, const PipelineStage& stage,
                                         StepExamples examples, kernels::Device& device,
                                         TraceRecorder* recorder);
// The same for some of the stage's nodes, without gradients.
absl::StatusOr<StepGraph> BuildInferenceGraph(const Model& model, const PipelineStage& stage, int64_t batch,
                                              kernels::Device& device, const InferenceNodes& nodes);

struct ForwardRun {
  absl::Span<const float* const> values;  // [variable of the model], device memory
  absl::Span<const float* const> inputs;  // [input of the stage], device memory
  bool training = false;
  DeviceTrace trace{};
};
// Runs the steps forward. `await` is called before a variable is read; if it returns false, the result is CANCELLED.
absl::Status RunForward(StepGraph& graph, const ForwardRun& run, kernels::Device& device,
                        absl::FunctionRef<bool(int variable)> await);

}  // namespace cairn::nn
