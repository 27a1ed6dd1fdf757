#include "nn/replica/mirrored_replica.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "nn/replica/gradient_queue.h"
#include "nn/replica/gradient_sum.h"
#include "nn/replica/host_batch_sync.h"

namespace cairn::nn {
namespace {

// The replica on one device, and what it computes in one call.
struct Mirror {
  DeviceThread* thread = nullptr;
  std::unique_ptr<Replica> replica{};  // used by `thread`
  absl::StatusOr<BatchResult> result = BatchResult();
};

class MirroredReplica final : public Replica {
 public:
  // `sync`: for a model that synchronizes batches on several devices; otherwise null. `workers`: for one device.
  MirroredReplica(const Model& model, const Objective& objective, std::unique_ptr<GradientSum> sum,
                  std::unique_ptr<HostBatchSync> sync, BatchSync* workers)
      : model_(model),
        objective_(objective),
        sum_(std::move(sum)),
        sync_(std::move(sync)),
        workers_(workers),
        inputs_arrived_(model.inputs().size()) {}

  ~MirroredReplica() override {
    for (Mirror& mirror : mirrors_) {
      mirror.thread->Run([&] { mirror.replica = nullptr; });
    }
  }

  absl::Status Add(DeviceThread& thread, TraceRecorder* trace, GradientMemory memory) {
    Mirror mirror = {.thread = &thread};
    absl::Status status;
    thread.Run([&] {
      const size_t device = mirrors_.size();
      auto made = Replica::Create(model_, objective_, thread.device(),
                                  {.trace = {.recorder = trace, .device = static_cast<int>(device)},
                                   .gradients = memory,
                                   .sync = sync_ == nullptr ? workers_ : sync_->of(device)});
      status = made.status();
      if (!made.ok()) return;
      mirror.replica = *std::move(made);
      // Without pinning, training is slower but works.
      if (memory == GradientMemory::kHost) static_cast<void>(mirror.replica->Pin(sum_->part(device)));
    });
    mirrors_.push_back(std::move(mirror));
    return status;
  }

  absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters, const BatchView& batch,
                                              absl::Span<float> gradients,
                                              absl::FunctionRef<void(int gradient)> on_gradient) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
    CAIRN_RETURN_IF_ERROR(CheckGradients(model_, batch, gradients));
    if (batch.examples == 0) {
      GiveNoGradients(model_, gradients, on_gradient);
      return BatchResult();
    }
    const std::vector<int64_t> begins = Begins(batch);
    GradientQueue gradient_queue(begins.size() - 1);
    const GradientSum::Step step = {
        .begins = begins, .gradients = gradients, .gradient_queue = &gradient_queue};
    CAIRN_RETURN_IF_ERROR(sum_->Begin(step));
    if (sync_ != nullptr) sync_->Begin(begins);
    for (std::atomic<size_t>& arrived : inputs_arrived_) arrived = 0;
    RunAll(begins, gradient_queue, [&](size_t index) {
      const BatchView part = batch.Part(begins[index], begins[index + 1] - begins[index]);
      mirrors_[index].result =
          mirrors_[index].replica->ForwardBackward(parameters, part, sum_->part(index), [&](int gradient) {
            if (gradient >= 0) return sum_->Add(gradient);
            const auto input = static_cast<size_t>(Node::OfModelInput(gradient));
            // The device computed the gradient of the mean loss of its own examples.
            const float share = step.share(index);
            for (float& element : part.input_gradients[input]) element *= share;
            if (inputs_arrived_[input].fetch_add(1) + 1 == step.active()) gradient_queue.Announce(gradient);
          });
      if (sync_ != nullptr && !mirrors_[index].result.ok()) sync_->Abort();
    });
    absl::Status summed;
    gradient_queue.Await([&](int announced) {
      if (announced < 0) return on_gradient(announced);  // an input, which is not added up
      summed.Update(sum_->Tell(announced, on_gradient));
    });
    auto joined = Join(begins, ModelFor(model_, batch));
    CAIRN_RETURN_IF_ERROR(joined.status());
    CAIRN_RETURN_IF_ERROR(summed);
    return joined;
  }

  absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters, const BatchView& batch) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
    if (batch.examples == 0) return BatchResult();
    const std::vector<int64_t> begins = Begins(batch);
    GradientQueue gradient_queue(begins.size() - 1);
    RunAll(begins, gradient_queue, [&](size_t index) {
      mirrors_[index].result = mirrors_[index].replica->Evaluate(
          parameters, batch.Part(begins[index], begins[index + 1] - begins[index]));
    });
    gradient_queue.Await([](int) {});
    return Join(begins, ModelFor(model_, batch));
  }

  // Pins for the first device. The memory is then pinned for all devices that copy from it.
  absl::Status Pin(absl::Span<const float> host) override {
    absl::Status status;
    mirrors_[0].thread->Run([&] { status = mirrors_[0].replica->Pin(host); });
    return status;
  }

  bool pins() const override { return mirrors_[0].replica->pins(); }

  void Unpin() override {
    for (Mirror& mirror : mirrors_) {
      mirror.thread->Run([&] { mirror.replica->Unpin(); });
    }
  }

 private:
  // The start of each device's examples. There are no more devices than examples.
  std::vector<int64_t> Begins(const BatchView& batch) const {
    return EvenParts(batch.examples, std::min(batch.examples, static_cast<int64_t>(mirrors_.size())));
  }

  // Runs `work(index)` on each device that has examples, and then calls `gradient_queue.Done()`. Everything
  // that `work` borrows must stay valid until then.
  template <typename Work>
  void RunAll(const std::vector<int64_t>& begins, GradientQueue& gradient_queue, const Work& work) {
    for (size_t index = 0; index + 1 < begins.size(); ++index) {
      mirrors_[index].thread->Post([index, work, &gradient_queue] {
        work(index);
        gradient_queue.Done();
      });
    }
  }

  // The error of the first device that has failed, except because of another one.
  absl::Status FirstFault(const std::vector<int64_t>& begins) const {
    absl::Status first;
    for (size_t index = 0; index + 1 < begins.size(); ++index) {
      absl::Status fault = mirrors_[index].result.status();
      if (fault.ok()) continue;
      if (begins[index] > 0) fault = Annotate(fault, absl::StrCat("from example ", begins[index], " on"));
      if (!absl::IsAborted(fault)) return fault;
      first.Update(fault);
    }
    return first;
  }

  // `model`: that of the batch.
  absl::StatusOr<BatchResult> Join(const std::vector<int64_t>& begins, const Model& model) {
    const int64_t floats = begins.back() * model.output_shape().num_elements();
    if (floats > outputs_.size()) outputs_ = AlignedBuffer(floats);
    BatchResult joined = {.outputs = absl::MakeConstSpan(outputs_.data(), static_cast<size_t>(floats))};
    float* to = outputs_.data();
    CAIRN_RETURN_IF_ERROR(FirstFault(begins));
    for (size_t index = 0; index + 1 < begins.size(); ++index) {
      const absl::StatusOr<BatchResult>& part = mirrors_[index].result;
      joined.sums += part->sums;
      to = std::copy(part->outputs.begin(), part->outputs.end(), to);
    }
    return joined;
  }

  const Model& model_;
  const Objective objective_;
  const std::unique_ptr<GradientSum> sum_;
  const std::unique_ptr<HostBatchSync> sync_;
  BatchSync* const workers_;
  std::vector<Mirror> mirrors_;
  std::vector<std::atomic<size_t>> inputs_arrived_;  // [model input] number of devices with its gradient
  AlignedBuffer outputs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> MakeMirroredReplica(const Model& model, const Objective& objective,
                                                             absl::Span<DeviceThread* const> threads,
                                                             MirroredOptions options) {
  std::unique_ptr<HostBatchSync> sync;
  if (threads.size() > 1 && model.synchronizes_batch()) {
    sync = std::make_unique<HostBatchSync>(threads.size(), options.workers);
  }
  const GradientMemory memory = options.group == nullptr ? GradientMemory::kHost : GradientMemory::kDevice;
  std::unique_ptr<GradientSum> sum;
  if (options.group == nullptr) {
    sum = MakeHostGradientSum(model, threads.size());
  } else {
    CAIRN_ASSIGN_OR_RETURN(sum, MakeGroupGradientSum(model, threads, std::move(options.group)));
  }
  auto replica =
      std::make_unique<MirroredReplica>(model, objective, std::move(sum), std::move(sync), options.workers);
  for (DeviceThread* const thread : threads)
    CAIRN_RETURN_IF_ERROR(replica->Add(*thread, options.trace, memory));
  return std::unique_ptr<Replica>(std::move(replica));
}

}  // namespace cairn::nn
