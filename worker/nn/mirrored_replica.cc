#include "worker/nn/mirrored_replica.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/aligned_buffer.h"
#include "common/core/status.h"
#include "worker/nn/announcer.h"

namespace cairn::nn {
namespace {

// The replica on one device, and what it computes in one call.
struct Mirror {
  DeviceThread* thread = nullptr;
  std::unique_ptr<Replica> replica{};  // the thread's
  AlignedBuffer gradients{};           // [num_parameters]
  absl::StatusOr<BatchResult> result = BatchResult();
};

class MirroredReplica final : public Replica {
 public:
  MirroredReplica(const Model& model, const LossSpec& loss) : model_(model), loss_(loss) {}

  ~MirroredReplica() override {
    for (Mirror& mirror : mirrors_) {
      mirror.thread->Run([&] { mirror.replica = nullptr; });
    }
  }

  absl::Status Add(DeviceThread& thread, TraceRecorder* trace) {
    Mirror mirror = {.thread = &thread, .gradients = AlignedBuffer(model_.num_parameters())};
    absl::Status status;
    thread.Run([&] {
      auto made = Replica::Create(model_, loss_, thread.device(),
                                  {.recorder = trace, .device = static_cast<int>(mirrors_.size())});
      status = made.status();
      if (!made.ok()) return;
      mirror.replica = *std::move(made);
      // That it goes slower otherwise is no reason to stop.
      static_cast<void>(mirror.replica->Pin(mirror.gradients.span()));
    });
    mirrors_.push_back(std::move(mirror));
    return status;
  }

  absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters, const BatchView& batch,
                                              absl::Span<float> gradients,
                                              absl::FunctionRef<void(int variable)> on_gradient) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(model_, loss_, parameters, batch));
    if (static_cast<int64_t>(gradients.size()) != model_.num_parameters()) {
      return absl::InvalidArgumentError(
          absl::StrCat(gradients.size(), " gradients for ", model_.num_parameters(), " parameters"));
    }
    if (batch.examples == 0) {
      std::fill(gradients.begin(), gradients.end(), 0.0f);
      for (auto variable = static_cast<int>(model_.variables().size()); variable-- > 0;)
        on_gradient(variable);
      return BatchResult();
    }
    const std::vector<int64_t> begins = Begins(batch);
    const size_t active = begins.size() - 1;
    Announcer announcer(active);
    std::vector<std::atomic<size_t>> arrived(model_.variables().size());
    RunAll(begins, announcer, [&](size_t index) {
      Mirror& mirror = mirrors_[index];
      mirror.result = mirror.replica->ForwardBackward(
          parameters, batch.Part(begins[index], begins[index + 1] - begins[index]), mirror.gradients.span(),
          [&](int variable) {
            // Whoever is last adds up, in everybody's order.
            if (arrived[static_cast<size_t>(variable)].fetch_add(1) + 1 < active) return;
            Average(variable, begins, gradients);
            announcer.Announce(variable);
          });
    });
    announcer.Await(on_gradient);
    return Join(begins);
  }

  absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters, const BatchView& batch) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(model_, loss_, parameters, batch));
    if (batch.examples == 0) return BatchResult();
    const std::vector<int64_t> begins = Begins(batch);
    Announcer announcer(begins.size() - 1);
    RunAll(begins, announcer, [&](size_t index) {
      mirrors_[index].result = mirrors_[index].replica->Evaluate(
          parameters, batch.Part(begins[index], begins[index + 1] - begins[index]));
    });
    announcer.Await([](int) {});
    return Join(begins);
  }

  // For the first device; it is the same memory for all that copy from it.
  absl::Status Pin(absl::Span<const float> host) override {
    absl::Status status;
    mirrors_[0].thread->Run([&] { status = mirrors_[0].replica->Pin(host); });
    return status;
  }

  void Unpin() override {
    for (Mirror& mirror : mirrors_) {
      mirror.thread->Run([&] { mirror.replica->Unpin(); });
    }
  }

 private:
  // Of the devices' parts, of which there are no more than examples.
  std::vector<int64_t> Begins(const BatchView& batch) const {
    return EvenParts(batch.examples, std::min(batch.examples, static_cast<int64_t>(mirrors_.size())));
  }

  // Asks for `work(index)` on each device that has a part; `announcer` is told when it is done. All that
  // `work` borrows stays until then.
  template <typename Work>
  void RunAll(const std::vector<int64_t>& begins, Announcer& announcer, const Work& work) {
    for (size_t index = 0; index + 1 < begins.size(); ++index) {
      mirrors_[index].thread->Post([index, work, &announcer] {
        work(index);
        announcer.Done();
      });
    }
  }

  void Average(int variable, const std::vector<int64_t>& begins, absl::Span<float> gradients) const {
    const ModelVariable& averaged = model_.variables()[static_cast<size_t>(variable)];
    const int64_t begin = averaged.offset, end = begin + averaged.shape.num_elements();
    float* const sum = gradients.data();
    for (size_t index = 0; index + 1 < begins.size(); ++index) {
      const float* const part = mirrors_[index].gradients.data();
      const auto share = static_cast<float>(static_cast<double>(begins[index + 1] - begins[index]) /
                                            static_cast<double>(begins.back()));
      if (index == 0) {
        for (int64_t i = begin; i < end; ++i) sum[i] = share * part[i];
      } else {
        for (int64_t i = begin; i < end; ++i) sum[i] += share * part[i];
      }
    }
  }

  absl::StatusOr<BatchResult> Join(const std::vector<int64_t>& begins) {
    const int64_t floats = begins.back() * model_.output_shape().num_elements();
    if (floats > outputs_.size()) outputs_ = AlignedBuffer(floats);
    BatchResult joined = {.outputs = absl::MakeConstSpan(outputs_.data(), static_cast<size_t>(floats))};
    float* to = outputs_.data();
    for (size_t index = 0; index + 1 < begins.size(); ++index) {
      const absl::StatusOr<BatchResult>& part = mirrors_[index].result;
      if (!part.ok()) {
        return begins[index] == 0
                   ? part.status()
                   : Annotate(part.status(), absl::StrCat("from example ", begins[index], " on"));
      }
      joined.sums.loss += part->sums.loss;
      joined.sums.examples += part->sums.examples;
      to = std::copy(part->outputs.begin(), part->outputs.end(), to);
    }
    return joined;
  }

  const Model& model_;
  const LossSpec loss_;
  std::vector<Mirror> mirrors_;
  AlignedBuffer outputs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> MakeMirroredReplica(const Model& model, const LossSpec& loss,
                                                             absl::Span<DeviceThread* const> threads,
                                                             TraceRecorder* trace) {
  auto replica = std::make_unique<MirroredReplica>(model, loss);
  for (DeviceThread* const thread : threads) CAIRN_RETURN_IF_ERROR(replica->Add(*thread, trace));
  return std::unique_ptr<Replica>(std::move(replica));
}

}  // namespace cairn::nn
