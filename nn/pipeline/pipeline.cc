#include "nn/pipeline/pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::nn {

Pipeline::Pipeline(const Options& options)
    : shape_(options.model, options.objective, options.locations, options.trace, options.remote_stages),
      threads_(options.threads.begin(), options.threads.end()),
      pipeline_devices_(options.threads.size()),
      micro_batches_(options.micro_batches) {}

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Create(Options options) {
  CAIRN_RETURN_IF_ERROR(options.objective.CheckOutputs(options.model));
  for (const DeviceThread* const thread : options.threads) {
    if (thread->device().compute_type() != kernels::ElementType::kFloat16) continue;
    return absl::UnimplementedError(
        absl::StrCat(thread->device().name(),
                     " computes in float16, whose loss scaling needs the whole model on one device"));
  }
  if (options.micro_batches > 1) {
    CAIRN_RETURN_IF_ERROR(
        options.model.CheckBatchMayBeDivided(absl::StrCat(options.micro_batches, " micro-batches")));
  }
  std::unique_ptr<Pipeline> pipeline(new Pipeline(options));
  CAIRN_RETURN_IF_ERROR(pipeline->CheckInputGradients());
  CAIRN_RETURN_IF_ERROR(pipeline->MakeDevices());
  return pipeline;
}

absl::Status Pipeline::CheckInputGradients() const {
  for (size_t index = 0; index < shape_.model.inputs().size(); ++index) {
    const ModelInput& input = shape_.model.inputs()[index];
    if (!input.needs_gradient) continue;
    if (shape_.remote_stages != nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("the gradient of input '", input.name,
                       "' is needed, but a model divided among processes has none"));
    }
    const int value = Node::OfModelInput(static_cast<int>(index));
    const auto readers = absl::c_count_if(shape_.stages, [&](const PipelineStage& stage) {
      return absl::c_linear_search(stage.inputs, value);
    });
    if (readers == 1) continue;
    return absl::UnimplementedError(absl::StrCat("the gradient of input '", input.name, "' is needed, but ",
                                                 readers, " pipeline stages read the input: only one may"));
  }
  return absl::OkStatus();
}

Pipeline::~Pipeline() {
  Unpin();
  OnEach([&](size_t device) {
    for (auto& [examples, prepared] : prepared_) {
      if (prepared != nullptr) ForStagesOf(device, [&](int stage) { prepared->instances.Destroy(stage); });
    }
    pipeline_devices_[device] = nullptr;
  });
}

template <typename Work>
void Pipeline::OnEach(const Work& work) {
  for (size_t device = 0; device < threads_.size(); ++device) {
    threads_[device]->Run([&] { work(device); });
  }
}

template <typename Work>
void Pipeline::ForStagesOf(size_t device, const Work& work) const {
  for (size_t stage = 0; stage < shape_.stages.size(); ++stage) {
    if (shape_.device_of_stage[stage] == static_cast<int>(device)) work(static_cast<int>(stage));
  }
}

absl::Status Pipeline::FirstFault(const std::vector<absl::Status>& statuses) const {
  for (size_t device = 0; device < statuses.size(); ++device) {
    if (!statuses[device].ok()) return Annotate(statuses[device], threads_[device]->device().name());
  }
  return absl::OkStatus();
}

absl::Status Pipeline::MakeDevices() {
  std::vector<absl::Status> made(threads_.size());
  OnEach([&](size_t device) {
    std::vector<int> variables;
    ForStagesOf(device, [&](int stage) {
      const std::vector<int>& of_stage = shape_.stages[static_cast<size_t>(stage)].variables;
      variables.insert(variables.end(), of_stage.begin(), of_stage.end());
    });
    std::sort(variables.begin(), variables.end());
    variables.erase(std::unique(variables.begin(), variables.end()), variables.end());
    auto pipeline_device =
        PipelineDevice::Create(shape_.model, threads_[device]->device(), std::move(variables));
    made[device] = pipeline_device.status();
    if (pipeline_device.ok()) pipeline_devices_[device] = *std::move(pipeline_device);
  });
  return FirstFault(made);
}

absl::StatusOr<Pipeline::Prepared*> Pipeline::PreparedFor(int64_t examples) {
  std::unique_ptr<Prepared>& prepared = prepared_[examples];
  if (prepared != nullptr) return prepared.get();
  StageInstances instances(shape_, examples, micro_batches_);
  const int micro_batches = instances.micro_batches();
  auto made =
      std::unique_ptr<Prepared>(new Prepared{std::move(instances),
                                             {shape_.stages, shape_.device_of_stage, micro_batches, true},
                                             {shape_.stages, shape_.device_of_stage, micro_batches, false}});
  std::vector<absl::Status> statuses(threads_.size());
  OnEach([&](size_t device) {
    ForStagesOf(device, [&](int stage) {
      statuses[device].Update(made->instances.Make(stage, *pipeline_devices_[device]));
    });
  });
  if (const absl::Status fault = FirstFault(statuses); !fault.ok()) {
    OnEach([&](size_t device) { ForStagesOf(device, [&](int stage) { made->instances.Destroy(stage); }); });
    return Annotate(fault, absl::StrCat("a batch of ", examples));
  }
  prepared = std::move(made);
  return prepared.get();
}

absl::StatusOr<Pipeline::Result> Pipeline::Run(const Call& call, absl::FunctionRef<void()> started,
                                               absl::FunctionRef<void(int variable)> on_gradient) {
  CAIRN_ASSIGN_OR_RETURN(Prepared * prepared, PreparedFor(call.batch.examples));
  PipelineSchedule& schedule = call.training ? prepared->training : prepared->evaluation;
  schedule.Start();
  GradientQueue gradient_queue(threads_.size() + static_cast<size_t>(call.others));
  {
    MutexLock lock(mutex_);
    running_ = Running{.schedule = &schedule, .gradient_queue = &gradient_queue, .others = call.others};
  }
  started();
  for (size_t device = 0; device < threads_.size(); ++device) {
    threads_[device]->Post([&, device] {
      RunDevice(device, call, prepared->instances, schedule, gradient_queue);
      gradient_queue.Done();
    });
  }
  gradient_queue.Await(on_gradient);
  {
    MutexLock lock(mutex_);
    running_.reset();
  }
  CAIRN_RETURN_IF_ERROR(schedule.status());
  return Result{.sums = prepared->instances.sums(), .penalty = prepared->instances.penalty()};
}

// Runs a device's share of a call, on the device's thread.
void Pipeline::RunDevice(size_t device, const Call& call, StageInstances& instances,
                         PipelineSchedule& schedule, GradientQueue& gradient_queue) {
  PipelineDevice& pipeline_device = *pipeline_devices_[device];
  const StageInstances::Call work = {
      .inputs = call.inputs, .batch = call.batch, .training = call.training, .outputs = call.outputs};
  schedule.Fail(pipeline_device.Begin(call.parameters, call.gradients));  // no effect if the status is OK
  while (const auto task = schedule.Next(static_cast<int>(device))) {
    absl::Status status = task->backward
                              ? instances.Backward(task->stage, task->micro_batch, work, pipeline_device)
                              : instances.Forward(task->stage, task->micro_batch, work, pipeline_device);
    if (status.ok())
      status = pipeline_device.Announce([&](int gradient) { gradient_queue.Announce(gradient); });
    if (status.ok()) {
      schedule.Finish(*task);
    } else {
      schedule.Fail(status);
    }
  }
  schedule.Fail(pipeline_device.device().Synchronize());
  if (schedule.status().ok()) return;
  MutexLock lock(mutex_);
  DropOthers();
}

void Pipeline::DropOthers() {
  for (; running_->others > 0; --running_->others) running_->gradient_queue->Done();
}

void Pipeline::Finish(int stage, int micro_batch, bool backward) {
  MutexLock lock(mutex_);
  if (running_.has_value()) running_->schedule->FinishRemotely(stage, micro_batch, backward);
}

void Pipeline::Announce(int variable) {
  MutexLock lock(mutex_);
  if (running_.has_value()) running_->gradient_queue->Announce(variable);
}

void Pipeline::OtherDone() {
  MutexLock lock(mutex_);
  if (!running_.has_value() || running_->others == 0) return;
  --running_->others;
  running_->gradient_queue->Done();
}

void Pipeline::Fail(const absl::Status& status) {
  MutexLock lock(mutex_);
  if (!running_.has_value()) return;
  running_->schedule->Fail(status);
  DropOthers();
}

std::vector<std::pair<StageTensor, int64_t>> Pipeline::ArrivalsOf(int64_t examples) const {
  const std::vector<int64_t> begins = EvenParts(examples, std::min(examples, micro_batches_));
  std::vector<std::pair<StageTensor, int64_t>> arrivals;
  for (const PipelineShape::Import& import : shape_.Imports()) {
    for (size_t m = 0; m + 1 < begins.size(); ++m) {
      arrivals.emplace_back(import.what, import.row * (begins[m + 1] - begins[m]));
      arrivals.back().first.micro_batch = static_cast<int>(m);
    }
  }
  return arrivals;
}

DeviceThread* Pipeline::PinningThread() const {
  const auto thread = std::find_if(threads_.begin(), threads_.end(), [](const DeviceThread* candidate) {
    return !candidate->device().host_memory_is_device_memory();
  });
  return thread == threads_.end() ? nullptr : *thread;
}

absl::Status Pipeline::Pin(absl::Span<const float> host) {
  absl::Status status;
  pinned_by_ = PinningThread();
  if (pinned_by_ == nullptr) return status;
  pinned_by_->Run([&] {
    auto pinned = pinned_by_->device().Pin(host.data(), static_cast<int64_t>(host.size() * sizeof(float)));
    status = pinned.status();
    if (pinned.ok()) pinned_.push_back(*std::move(pinned));
  });
  return status;
}

// Needs no synchronization: nothing is copied between two calls.
void Pipeline::Unpin() {
  if (pinned_by_ != nullptr) pinned_by_->Run([&] { pinned_.clear(); });
}

}  // namespace cairn::nn
