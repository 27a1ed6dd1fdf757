#include "nn/replica/activation_buffers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {
namespace {

class OutputAssigner {
 public:
  explicit OutputAssigner(const StepGraph& graph)
      : graph_(graph), owner_(graph.values.size()), uses_(graph.values.size()) {
    for (size_t value = 0; value < owner_.size(); ++value) owner_[value] = static_cast<int>(value);
    for (size_t index = 0; index < graph_.steps.size(); ++index) FindUses(index);
    for (const int output : graph_.outputs) uses_of(output).kept = true;
    buffer_of_.resize(graph_.values.size(), -1);
    for (size_t index = 0; index < graph_.steps.size(); ++index) AssignStep(index);
  }

  // [value] index of a buffer; -1: an input, or a view.
  const std::vector<int>& buffer_of() const { return buffer_of_; }
  // [buffer] floats.
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  // How long a value that has memory is needed.
  struct Uses {
    size_t last_step = 0;  // of the forward pass, that writes or reads it
    bool kept = false;     // beyond the forward pass
  };

  // The uses of the value whose memory `value` shares.
  Uses& uses_of(int value) { return uses_[static_cast<size_t>(owner_[static_cast<size_t>(value)])]; }
  int& buffer_of(int value) { return buffer_of_[static_cast<size_t>(value)]; }

  void FindUses(size_t index) {
    const StepGraph::Step& step = graph_.steps[index];
    if (step.op->is_view()) {
      owner_[static_cast<size_t>(step.output)] = owner_[static_cast<size_t>(step.inputs[0])];
      return;
    }
    const bool backward = graph_.output_of(step).needs_gradient;
    const BackwardReads reads = step.op->backward_reads();
    uses_of(step.output) = {.last_step = index, .kept = backward && reads.output};
    for (const int input : step.inputs) {
      Uses& uses = uses_of(input);
      uses.last_step = index;
      uses.kept |= backward && reads.inputs;
    }
  }

  bool EndsAt(int value, size_t index) {
    const Uses& uses = uses_of(value);
    return !uses.kept && uses.last_step == index;
  }

  void AssignStep(size_t index) {
    const StepGraph::Step& step = graph_.steps[index];
    if (step.op->is_view()) return;
    const int64_t floats = graph_.output_of(step).desc.num_floats();
    std::vector<int> ending;  // buffers that no later step needs
    for (const int input : step.inputs) {
      const int owner = owner_[static_cast<size_t>(input)];
      if (buffer_of(owner) < 0 || !EndsAt(owner, index)) continue;
      if (std::find(ending.begin(), ending.end(), buffer_of(owner)) == ending.end())
        ending.push_back(buffer_of(owner));
    }
    const bool in_place = step.op->forwards_in_place() && ending.size() == 1 && step.inputs.size() == 1 &&
                          graph_.input_of(step, 0).desc.num_floats() == floats;
    if (in_place) {
      buffer_of(step.output) = ending[0];
      ending.clear();
    } else {
      buffer_of(step.output) = Acquire(floats);
    }
    if (EndsAt(step.output, index)) ending.push_back(buffer_of(step.output));  // no step uses it
    free_.insert(free_.end(), ending.begin(), ending.end());
  }

  // The smallest free buffer that is large enough, else the largest one, made larger, else a new one.
  int Acquire(int64_t floats) {
    auto best = free_.end();
    for (auto buffer = free_.begin(); buffer != free_.end(); ++buffer) {
      if (best == free_.end() || IsBetter(SizeOf(*buffer), SizeOf(*best), floats)) best = buffer;
    }
    if (best == free_.end()) {
      sizes_.push_back(floats);
      return static_cast<int>(sizes_.size()) - 1;
    }
    const int taken = *best;
    free_.erase(best);
    int64_t& size = sizes_[static_cast<size_t>(taken)];
    size = std::max(size, floats);
    return taken;
  }
  int64_t SizeOf(int buffer) const { return sizes_[static_cast<size_t>(buffer)]; }
  static bool IsBetter(int64_t size, int64_t than, int64_t floats) {
    if ((size >= floats) != (than >= floats)) return size >= floats;
    return size >= floats ? size < than : size > than;
  }

  const StepGraph& graph_;
  std::vector<int> owner_;  // [value] the value whose memory it shares: its own index unless it is a view
  std::vector<Uses> uses_;  // [value] of owners
  std::vector<int> buffer_of_;
  std::vector<int64_t> sizes_;
  std::vector<int> free_;  // buffers
};

}  // namespace

absl::Status AllocateOutputs(StepGraph& graph, kernels::Device& device) {
  const OutputAssigner assigned(graph);
  graph.buffers.resize(assigned.sizes().size());
  const auto buffer_of = [&](const StepGraph::Step& step) {
    return assigned.buffer_of()[static_cast<size_t>(step.output)];
  };
  // The step with the largest output in a buffer is the one to name if there is no memory.
  for (const StepGraph::Step& step : graph.steps) {
    if (buffer_of(step) < 0) continue;
    const auto index = static_cast<size_t>(buffer_of(step));
    const int64_t floats = graph.output_of(step).desc.num_floats();
    if (graph.buffers[index] != nullptr || floats < assigned.sizes()[index]) continue;
    CAIRN_ASSIGN_OR_RETURN(graph.buffers[index],
                           device.Allocate(floats, absl::StrCat(step.what, ": output")));
  }
  for (const StepGraph::Step& step : graph.steps) {
    if (buffer_of(step) < 0) continue;
    StepGraph::Value& output = graph.values[static_cast<size_t>(step.output)];
    output.memory = graph.buffers[static_cast<size_t>(buffer_of(step))]->data();
    output.data = output.memory;
  }
  return absl::OkStatus();
}

}  // namespace cairn::nn
