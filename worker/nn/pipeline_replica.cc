#include "worker/nn/pipeline_replica.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/aligned_buffer.h"
#include "common/core/status.h"
#include "worker/nn/announcer.h"
#include "worker/nn/pipeline_cells.h"
#include "worker/nn/pipeline_lane.h"
#include "worker/nn/pipeline_schedule.h"

namespace cairn::nn {
namespace {

// What a batch size needs.
struct Prepared {
  PipelineCells cells;
  PipelineSchedule training, evaluation;
};

class PipelineReplica final : public Replica {
 public:
  PipelineReplica(const Model& model, const LossSpec& loss, absl::Span<DeviceThread* const> threads,
                  absl::Span<const int> device_of, int64_t micro_batches, TraceRecorder* trace)
      : shape_(model, loss, device_of, trace),
        threads_(threads.begin(), threads.end()),
        lanes_(threads.size()),
        micro_batches_(micro_batches),
        inputs_(model) {}

  ~PipelineReplica() override {
    Unpin();
    OnEach([&](size_t device) {
      for (auto& [examples, prepared] : prepared_) {
        if (prepared != nullptr) ForPartsOf(device, [&](int part) { prepared->cells.Destroy(part); });
      }
      lanes_[device] = nullptr;
    });
  }

  absl::Status MakeLanes() {
    std::vector<absl::Status> made(threads_.size());
    OnEach([&](size_t device) {
      std::vector<int> variables;
      ForPartsOf(device, [&](int part) {
        const std::vector<int>& of_part = shape_.parts[static_cast<size_t>(part)].variables;
        variables.insert(variables.end(), of_part.begin(), of_part.end());
      });
      std::sort(variables.begin(), variables.end());
      variables.erase(std::unique(variables.begin(), variables.end()), variables.end());
      auto lane = PipelineLane::Create(shape_.model, threads_[device]->device(), std::move(variables));
      made[device] = lane.status();
      if (lane.ok()) lanes_[device] = *std::move(lane);
    });
    return FirstFault(made);
  }

  absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters, const BatchView& batch,
                                              absl::Span<float> gradients,
                                              absl::FunctionRef<void(int variable)> on_gradient) override {
    if (static_cast<int64_t>(gradients.size()) != shape_.model.num_parameters()) {
      return absl::InvalidArgumentError(
          absl::StrCat(gradients.size(), " gradients for ", shape_.model.num_parameters(), " parameters"));
    }
    if (batch.examples == 0) {
      CAIRN_RETURN_IF_ERROR(CheckBatch(shape_.model, shape_.loss, parameters, batch));
      std::fill(gradients.begin(), gradients.end(), 0.0f);
      for (auto variable = static_cast<int>(shape_.model.variables().size()); variable-- > 0;) {
        on_gradient(variable);
      }
      return BatchResult();
    }
    return Run(parameters, batch, gradients, /*training=*/true, on_gradient);
  }

  absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters, const BatchView& batch) override {
    return Run(parameters, batch, {}, /*training=*/false, [](int) {});
  }

  // For the first device with memory of its own; it is the same memory for all that copy from it.
  absl::Status Pin(absl::Span<const float> host) override {
    const auto thread = std::find_if(threads_.begin(), threads_.end(), [](const DeviceThread* candidate) {
      return !candidate->device().host_memory_is_device_memory();
    });
    absl::Status status;
    if (thread == threads_.end()) return status;
    pinned_by_ = *thread;
    pinned_by_->Run([&] {
      auto pinned = pinned_by_->device().Pin(host.data(), static_cast<int64_t>(host.size() * sizeof(float)));
      status = pinned.status();
      if (pinned.ok()) pinned_.push_back(*std::move(pinned));
    });
    return status;
  }

  // Nothing is copied between two calls.
  void Unpin() override {
    if (pinned_by_ != nullptr) pinned_by_->Run([&] { pinned_.clear(); });
  }

 private:
  absl::StatusOr<BatchResult> Run(absl::Span<const float> parameters, const BatchView& batch,
                                  absl::Span<float> gradients, bool training,
                                  absl::FunctionRef<void(int variable)> on_gradient) {
    CAIRN_RETURN_IF_ERROR(CheckBatch(shape_.model, shape_.loss, parameters, batch));
    if (batch.examples == 0) return BatchResult();
    CAIRN_ASSIGN_OR_RETURN(Prepared * prepared, PreparedFor(batch.examples));
    const auto floats = static_cast<size_t>(batch.examples * shape_.model.output_shape().num_elements());
    if (static_cast<int64_t>(floats) > outputs_.size())
      outputs_ = AlignedBuffer(static_cast<int64_t>(floats));
    const PipelineCells::Call call = {
        .inputs = inputs_.Split(batch), .batch = batch, .training = training, .outputs = outputs_.data()};
    PipelineSchedule& schedule = training ? prepared->training : prepared->evaluation;
    schedule.Start();
    Announcer announcer(threads_.size());
    for (size_t device = 0; device < threads_.size(); ++device) {
      threads_[device]->Post([&, device] {
        RunDevice(device, parameters, gradients, call, prepared->cells, schedule, announcer);
        announcer.Done();
      });
    }
    announcer.Await(on_gradient);
    CAIRN_RETURN_IF_ERROR(schedule.status());
    BatchResult result = {.sums = prepared->cells.sums(),
                          .outputs = absl::MakeConstSpan(outputs_.data(), floats)};
    result.sums.loss += prepared->cells.penalty() * static_cast<double>(batch.examples);
    return result;
  }

  // A device's part of a call, on its thread.
  void RunDevice(size_t device, absl::Span<const float> parameters, absl::Span<float> gradients,
                 const PipelineCells::Call& call, PipelineCells& cells, PipelineSchedule& schedule,
                 Announcer& announcer) {
    PipelineLane& lane = *lanes_[device];
    schedule.Fail(lane.Begin(parameters, gradients));  // an OK status is no failure
    while (const auto task = schedule.Next(static_cast<int>(device))) {
      absl::Status status = task->backward ? cells.Backward(task->part, task->micro_batch, lane)
                                           : cells.Forward(task->part, task->micro_batch, call, lane);
      if (status.ok()) status = lane.Announce([&](int variable) { announcer.Announce(variable); });
      if (status.ok()) {
        schedule.Finish(*task);
      } else {
        schedule.Fail(status);
      }
    }
    schedule.Fail(lane.device().Synchronize());
  }

  absl::StatusOr<Prepared*> PreparedFor(int64_t examples) {
    std::unique_ptr<Prepared>& prepared = prepared_[examples];
    if (prepared != nullptr) return prepared.get();
    PipelineCells cells(shape_, examples, micro_batches_);
    const int micro_batches = cells.micro_batches();
    auto made =
        std::unique_ptr<Prepared>(new Prepared{std::move(cells),
                                               {shape_.parts, shape_.device_of_part, micro_batches, true},
                                               {shape_.parts, shape_.device_of_part, micro_batches, false}});
    std::vector<absl::Status> statuses(threads_.size());
    OnEach([&](size_t device) {
      ForPartsOf(device, [&](int part) { statuses[device].Update(made->cells.Make(part, *lanes_[device])); });
    });
    if (const absl::Status fault = FirstFault(statuses); !fault.ok()) {
      OnEach([&](size_t device) { ForPartsOf(device, [&](int part) { made->cells.Destroy(part); }); });
      return Annotate(fault, absl::StrCat("a batch of ", examples));
    }
    prepared = std::move(made);
    return prepared.get();
  }

  // Runs on every device's thread, one after another: what is made is made in one order.
  template <typename Work>
  void OnEach(const Work& work) {
    for (size_t device = 0; device < threads_.size(); ++device) {
      threads_[device]->Run([&] { work(device); });
    }
  }
  template <typename Work>
  void ForPartsOf(size_t device, const Work& work) const {
    for (size_t part = 0; part < shape_.parts.size(); ++part) {
      if (shape_.device_of_part[part] == static_cast<int>(device)) work(static_cast<int>(part));
    }
  }

  // Of the first device's that has one.
  absl::Status FirstFault(const std::vector<absl::Status>& statuses) const {
    for (size_t device = 0; device < statuses.size(); ++device) {
      if (!statuses[device].ok()) return Annotate(statuses[device], threads_[device]->device().name());
    }
    return absl::OkStatus();
  }

  const PipelineShape shape_;
  const std::vector<DeviceThread*> threads_;
  std::vector<std::unique_ptr<PipelineLane>> lanes_;  // [device] its thread's
  const int64_t micro_batches_;
  InputSplitter inputs_;
  AlignedBuffer outputs_;
  std::map<int64_t, std::unique_ptr<Prepared>> prepared_;  // [batch size]
  DeviceThread* pinned_by_ = nullptr;
  std::vector<std::unique_ptr<kernels::PinnedMemory>> pinned_;  // its thread's
};

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> MakePipelineReplica(const Model& model, const LossSpec& loss,
                                                             absl::Span<DeviceThread* const> threads,
                                                             absl::Span<const int> device_of,
                                                             int64_t micro_batches, TraceRecorder* trace) {
  CAIRN_RETURN_IF_ERROR(CheckOutput(loss, model.output_shape()));
  for (const DeviceThread* const thread : threads) {
    if (thread->device().compute_type() != kernels::ElementType::kFloat16) continue;
    return absl::UnimplementedError(
        absl::StrCat(thread->device().name(),
                     " computes in float16, which scales the loss of a model that is on one device"));
  }
  auto replica = std::make_unique<PipelineReplica>(model, loss, threads, device_of, micro_batches, trace);
  CAIRN_RETURN_IF_ERROR(replica->MakeLanes());
  return std::unique_ptr<Replica>(std::move(replica));
}

}  // namespace cairn::nn
