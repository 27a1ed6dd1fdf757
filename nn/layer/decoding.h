// Decoding: a sequence is computed some steps at a time, each step once. Its steps are the first axis after the batch.
// An op whose steps depend on earlier ones keeps what it needs of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/device.h"

namespace cairn::nn {

// The kind of a layer's input while a sequence is decoded.
enum class DecodedInput {
  kSteps,  // steps of the sequence
  kWhole,  // the same for all steps, such as the output of an encoder
  kOnes,   // a mask of steps of the sequence, of which none is masked. It has no memory: its address is null.
};

// The use that a layer makes of the steps of its input.
enum class StepUse {
  kMixes,  // an output depends on steps in a way that is not decoded
  kEach,   // computes each step alone and in the same way. MakeOp() makes an op for any number of steps.
  // The steps depend on their positions, or on earlier steps. MakeOp() takes LayerOpParams::decoding.
  kDecodes,
};

// For a layer that computes each step alone, on a condition.
inline StepUse UseOfSteps(bool each) {
  return each ? StepUse::kEach : StepUse::kMixes;
}

// The memory that the ops of one call of a layer share, for all numbers of steps. Used by the device's thread.
class DecodingCache {
 public:
  // `device` must outlive the cache.
  DecodingCache(int64_t batch, kernels::Device& device) : batch_(batch), device_(device) {}

  // Makes memory [batch, floats] of zeros, unless there is memory with this index.
  absl::Status Reserve(size_t index, int64_t floats, absl::string_view what);
  // The memory with this index, until the next Reorder().
  float* at(size_t index) const { return kept_[index].memory->data(); }
  // Example i gets the memory of example from[i].
  absl::Status Reorder(absl::Span<const int64_t> from);

 private:
  struct Kept {
    int64_t floats = 0;  // of an example
    std::unique_ptr<kernels::DeviceMemory> memory{}, spare{};
  };
  const int64_t batch_;
  kernels::Device& device_;
  std::vector<Kept> kept_;
};

// The state of an op that computes some steps of a sequence.
struct Decoding {
  int64_t length = 0;                       // steps of a whole sequence
  const int64_t* first = nullptr;           // the position of the first step of the next Forward()
  absl::Span<const DecodedInput> inputs{};  // [input], as LayerOpParams::inputs; valid during MakeOp()
  DecodingCache* cache = nullptr;
};

// An op without a gradient.
absl::Status NoGradientOfDecoding();

// Copies `steps` [batch, count, floats] to the positions from `first` on of `sequence` [batch, length, floats].
struct StepCopy {
  int64_t batch, count, length, floats;
};
absl::Status CopySteps(const StepCopy& copy, const float* steps, int64_t first, float* sequence,
                       kernels::Device& device);

}  // namespace cairn::nn
