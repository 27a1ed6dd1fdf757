// Runs a model of sequences step by step: each step is computed once, and layers keep what later steps need of it, such
// as the keys and values of attention. What does not depend on the sequence, such as an encoder, is computed once per
// sequence.
//
// No step of the sequence may be masked. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/tensor_view.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/device.h"
#include "nn/decoding/decoded_values.h"
#include "nn/model.h"
#include "nn/replica/device_copy.h"
#include "nn/replica/pipeline_stage.h"
#include "nn/replica/step_graph.h"

namespace cairn::nn {

class Decoder {
 public:
  struct Args {
    const Model& model;
    absl::Span<const float> parameters;  // in the model's flat order; must not change
    int sequence = 0;                    // the input of the model that is decoded, integers [length]
    // [input of the model] For other inputs than the sequence: kWhole, or kOnes for its mask.
    absl::Span<const DecodedInput> inputs{};
    int64_t batch = 1;  // sequences that are decoded together
  };
  // `args` and `device` must outlive the decoder. UNIMPLEMENTED if the model or the device cannot decode: see
  // ValuesOfSteps().
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const Args& args, kernels::Device& device);

  // Begins other sequences. `inputs` [input of the model] [batch, shape] are read where they are kWhole, and must
  // stay valid while these sequences are decoded.
  absl::Status Begin(absl::Span<const TensorView> inputs);
  // Appends `ids` [batch, count], of the type of the input. INVALID_ARGUMENT beyond length() steps.
  // Returns the outputs of the last step, [batch, width], valid until the next call. After an error, sequences must
  // begin again.
  absl::StatusOr<absl::Span<const float>> Append(const TensorView& ids);
  // Sequence i goes on from sequence from[i].
  absl::Status Reorder(absl::Span<const int64_t> from);

  int64_t position() const { return position_; }  // steps so far
  int64_t length() const { return length_; }      // the largest number of steps
  // Whether a layer masks steps with id 0, which may not be appended then.
  bool masks_zero() const;

 private:
  Decoder(const Args& args, DecodedValues values, kernels::Device& device);
  absl::Status Prepare(absl::Span<const float> parameters);
  // The graph for `count` steps; those for one step and for the last other number are kept.
  absl::StatusOr<StepGraph*> GraphFor(int64_t count);
  absl::StatusOr<StepGraph> Build(const PipelineStage& stage, const DecodedSteps* steps);
  absl::Status Run(StepGraph& graph, absl::Span<const float* const> inputs);
  // Where a value that the graph of steps reads is: null for a mask of ones.
  const float* AddressOf(int value) const;

  const Model& model_;
  const int sequence_;
  const int64_t batch_, length_;
  const DecodedValues values_;
  kernels::Device& device_;
  const PipelineStage whole_stage_, step_stage_;
  std::optional<DeviceCopy> parameters_;
  std::vector<const float*> variables_;            // [variable]
  std::vector<std::optional<DeviceCopy>> inputs_;  // [input of the model] nullopt: not read
  std::vector<const float*> input_addresses_;      // [input of the model]
  std::vector<DecodingCache> caches_;              // [node]
  StepGraph whole_;                                // of what is computed once per sequence
  std::map<int64_t, StepGraph> graphs_;            // [steps]
  int64_t position_ = 0;
  AlignedBuffer outputs_;
};

}  // namespace cairn::nn
