#include "worker/nn/pipeline_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace cairn::nn {

int PartOfNode(absl::Span<const ModelPart> parts, int node) {
  const auto part = std::find_if(parts.begin(), parts.end(),
                                 [&](const ModelPart& candidate) { return node < candidate.end; });
  return static_cast<int>(part - parts.begin());
}

PipelineSchedule::PipelineSchedule(absl::Span<const ModelPart> parts, absl::Span<const int> device_of,
                                   int micro_batches, bool training)
    : parts_(static_cast<int>(parts.size())), micro_batches_(micro_batches) {
  for (const bool backward : {false, true}) {
    for (int part = 0; part < parts_; ++part) {
      for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        const Task task = {part, micro_batch, backward, entries_.size()};
        entries_.emplace_back().task = task;
      }
    }
  }
  OrderForward(parts);
  if (training) OrderBackward(parts);

  of_device_.resize(static_cast<size_t>(*std::max_element(device_of.begin(), device_of.end())) + 1);
  for (const Entry& entry : entries_) {
    const auto part = static_cast<size_t>(entry.task.part);
    if (entry.task.backward && !(training && parts[part].needs_gradient)) continue;
    if (device_of[part] < 0) continue;
    of_device_[static_cast<size_t>(device_of[part])].push_back(entry.task.index);
  }
  const auto preference = [this](size_t index) {
    const Task& task = entries_[index].task;
    return std::tuple(!task.backward, task.micro_batch, task.backward ? -task.part : task.part);
  };
  for (std::vector<size_t>& tasks : of_device_) {
    std::sort(tasks.begin(), tasks.end(), [&](size_t a, size_t b) { return preference(a) < preference(b); });
  }
}

size_t PipelineSchedule::IndexOf(int part, int micro_batch, bool backward) const {
  return static_cast<size_t>((part + (backward ? parts_ : 0)) * micro_batches_ + micro_batch);
}

void PipelineSchedule::Order(size_t first, size_t second) {
  entries_[first].waited_for_by.push_back(second);
  ++entries_[second].waits_for;
}

void PipelineSchedule::OrderForward(absl::Span<const ModelPart> parts) {
  for (int part = 0; part < parts_; ++part) {
    for (int m = 0; m < micro_batches_; ++m) {
      const size_t task = IndexOf(part, m, false);
      if (m > 0) Order(IndexOf(part, m - 1, false), task);
      for (const int input : parts[static_cast<size_t>(part)].inputs) {
        if (input >= 0) Order(IndexOf(PartOfNode(parts, input), m, false), task);
      }
    }
  }
}

void PipelineSchedule::OrderBackward(absl::Span<const ModelPart> parts) {
  std::map<int, std::vector<int>> users;  // [variable] stages, ascending
  for (int part = 0; part < parts_; ++part) {
    const ModelPart& here = parts[static_cast<size_t>(part)];
    if (!here.needs_gradient) continue;
    for (const int variable : here.variables) users[variable].push_back(part);
    for (int m = 0; m < micro_batches_; ++m) {
      Order(IndexOf(part, m, false), IndexOf(part, m, true));
      if (m > 0) Order(IndexOf(part, m - 1, true), IndexOf(part, m, true));
      for (size_t i = 0; i < here.inputs.size(); ++i) {
        if (!here.input_needs_gradient[i]) continue;
        Order(IndexOf(part, m, true), IndexOf(PartOfNode(parts, here.inputs[i]), m, true));
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

void PipelineSchedule::FinishRemotely(int part, int micro_batch, bool backward) {
  Finish(entries_[IndexOf(part, micro_batch, backward)].task);
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
