#include "nn/pipeline/pipeline_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace cairn::nn {

int StageOfNode(absl::Span<const PipelineStage> stages, int node) {
  const auto stage = std::find_if(stages.begin(), stages.end(),
                                  [&](const PipelineStage& candidate) { return node < candidate.end; });
  return static_cast<int>(stage - stages.begin());
}

PipelineSchedule::PipelineSchedule(absl::Span<const PipelineStage> stages, absl::Span<const int> device_of,
                                   int micro_batches, bool training)
    : num_stages_(static_cast<int>(stages.size())), micro_batches_(micro_batches) {
  for (const bool backward : {false, true}) {
    for (int stage = 0; stage < num_stages_; ++stage) {
      for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        const Task task = {stage, micro_batch, backward, entries_.size()};
        entries_.emplace_back().task = task;
      }
    }
  }
  OrderForward(stages);
  if (training) OrderBackward(stages);

  of_device_.resize(static_cast<size_t>(*std::max_element(device_of.begin(), device_of.end())) + 1);
  for (const Entry& entry : entries_) {
    const auto stage = static_cast<size_t>(entry.task.stage);
    if (entry.task.backward && !(training && stages[stage].needs_gradient)) continue;
    if (device_of[stage] < 0) continue;
    of_device_[static_cast<size_t>(device_of[stage])].push_back(entry.task.index);
  }
  const auto preference = [this](size_t index) {
    const Task& task = entries_[index].task;
    return std::tuple(!task.backward, task.micro_batch, task.backward ? -task.stage : task.stage);
  };
  for (std::vector<size_t>& tasks : of_device_) {
    std::sort(tasks.begin(), tasks.end(), [&](size_t a, size_t b) { return preference(a) < preference(b); });
  }
}

size_t PipelineSchedule::IndexOf(int stage, int micro_batch, bool backward) const {
  return static_cast<size_t>((stage + (backward ? num_stages_ : 0)) * micro_batches_ + micro_batch);
}

void PipelineSchedule::Order(size_t first, size_t second) {
  entries_[first].waited_for_by.push_back(second);
  ++entries_[second].waits_for;
}

void PipelineSchedule::OrderForward(absl::Span<const PipelineStage> stages) {
  for (int stage = 0; stage < num_stages_; ++stage) {
    for (int m = 0; m < micro_batches_; ++m) {
      const size_t task = IndexOf(stage, m, false);
      if (m > 0) Order(IndexOf(stage, m - 1, false), task);
      for (const int input : stages[static_cast<size_t>(stage)].inputs) {
        if (input >= 0) Order(IndexOf(StageOfNode(stages, input), m, false), task);
      }
    }
  }
}

void PipelineSchedule::OrderBackward(absl::Span<const PipelineStage> stages) {
  std::map<int, std::vector<int>> users;  // [variable] stages, ascending
  for (int stage = 0; stage < num_stages_; ++stage) {
    const PipelineStage& here = stages[static_cast<size_t>(stage)];
    if (!here.needs_gradient) continue;
    for (const int variable : here.variables) users[variable].push_back(stage);
    for (int m = 0; m < micro_batches_; ++m) {
      Order(IndexOf(stage, m, false), IndexOf(stage, m, true));
      if (m > 0) Order(IndexOf(stage, m - 1, true), IndexOf(stage, m, true));
      for (size_t i = 0; i < here.inputs.size(); ++i) {
        if (!here.input_needs_gradient[i] || here.inputs[i] < 0) continue;
        Order(IndexOf(stage, m, true), IndexOf(StageOfNode(stages, here.inputs[i]), m, true));
      }
    }
  }
  for (const auto& [variable, in_parts] : users) {
    for (int m = 0; m < micro_batches_; ++m) {
      for (size_t i = in_parts.size(); i-- > 1;) {
        Order(IndexOf(in_parts[i], m, true), IndexOf(in_parts[i - 1], m, true));
      }
      if (in_parts.size() > 1 && m + 1 < micro_batches_) {
        Order(IndexOf(in_parts.front(), m, true), IndexOf(in_parts.back(), m + 1, true));
      }
    }
  }
}

void PipelineSchedule::Start() {
  MutexLock lock(mutex_);
  status_ = absl::OkStatus();
  waits_for_.resize(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) waits_for_[i] = entries_[i].waits_for;
  left_.resize(of_device_.size());
  for (size_t i = 0; i < of_device_.size(); ++i) left_[i] = of_device_[i].size();
}

std::optional<PipelineSchedule::Task> PipelineSchedule::Take(int device) {
  if (over(device)) return std::nullopt;
  for (const size_t index : of_device_[static_cast<size_t>(device)]) {
    if (waits_for_[index] != 0) continue;
    waits_for_[index] = -1;
    --left_[static_cast<size_t>(device)];
    return entries_[index].task;
  }
  return std::nullopt;
}

std::optional<PipelineSchedule::Task> PipelineSchedule::TryNext(int device) {
  MutexLock lock(mutex_);
  return Take(device);
}

std::optional<PipelineSchedule::Task> PipelineSchedule::Next(int device) {
  MutexLock lock(mutex_);
  for (;;) {
    const std::optional<Task> task = Take(device);
    if (task.has_value() || over(device)) return task;
    changed_.Wait(mutex_);
  }
}

void PipelineSchedule::Finish(const Task& task) {
  MutexLock lock(mutex_);
  for (const size_t next : entries_[task.index].waited_for_by) --waits_for_[next];
  changed_.NotifyAll();
}

void PipelineSchedule::FinishRemotely(int stage, int micro_batch, bool backward) {
  Finish(entries_[IndexOf(stage, micro_batch, backward)].task);
}

void PipelineSchedule::Fail(const absl::Status& status) {
  MutexLock lock(mutex_);
  status_.Update(status);
  changed_.NotifyAll();
}

absl::Status PipelineSchedule::status() {
  MutexLock lock(mutex_);
  return status_;
}

}  // namespace cairn::nn
