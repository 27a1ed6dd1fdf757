#include "nn/replica/replica.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/memory/out_of_memory.h"
#include "nn/replica/device_copy.h"
#include "nn/replica/gradient_download.h"
#include "nn/replica/loss_scale.h"
#include "nn/replica/plan.h"
#include "nn/replica/row_pool.h"

namespace cairn::nn {
namespace {

// The gradient with respect to an input, and the host memory to which a device with its own memory copies it.
struct InputGradient {
  DeviceCopy computed;
  AlignedBuffer staging{};
  std::unique_ptr<kernels::PinnedMemory> pinned_staging{};
};

// Pinned host memory of an input that changes with every batch and is as large as the batch: rows of a table that the
// host has pooled. A device copies from it while the host goes on.
struct PinnedInput {
  AlignedBuffer host{};
  std::unique_ptr<kernels::PinnedMemory> pinned{};
};

// The plan and the buffers for one batch size, and one length of sequences.
struct Prepared {
  const Model* model = nullptr;  // the replica's, or one of its shorter ones
  int64_t examples = 0;
  std::unique_ptr<Plan> plan;
  // [model input] The inputs, aligned for the device, and their addresses in the last call.
  std::vector<DeviceCopy> inputs;
  std::vector<const float*> input_pointers;
  DeviceCopy targets, weights;
  std::vector<std::optional<InputGradient>> input_gradients{};  // [model input] if it needs a gradient
  // [model input] Empty unless it needs a gradient, and the device copies it.
  std::vector<PinnedInput> pinned_inputs{};
  std::unique_ptr<RowPool> rows{};  // for batches with row_bags: makes the inputs that need a gradient
  // Where the host reads the outputs; empty if the host can read device memory.
  AlignedBuffer outputs{};
  std::unique_ptr<kernels::PinnedMemory> pinned_outputs{};
  // For a device with its own memory: the download of gradients, the recorded step (after the first run),
  // and whether it was recorded with weights.
  std::unique_ptr<GradientDownload> download{};
  std::unique_ptr<kernels::Recording> recording{};
  bool recorded_weights = false;
  float loss_scale = 0;  // the loss scale that was last set in the plan
};

// Copies of the model's flat arrays on the device.
struct FlatCopies {
  DeviceCopy parameters;
  std::optional<DeviceCopy> gradients{};  // nullopt: gradients are written to the caller's device memory
};

class DeviceReplica final : public Replica {
 public:
  DeviceReplica(const Model& model, const Objective& objective, kernels::Device& device, FlatCopies copies,
                const ReplicaOptions& options)
      : model_(model),
        objective_(objective),
        device_(device),
        trace_(options.trace),
        sync_(options.sync),
        parameters_(std::move(copies.parameters)),
        gradients_(std::move(copies.gradients)),
        values_(model.variables().size()),
        targets_(model.variables().size()) {}

  absl::StatusOr<BatchResult> ForwardBackward(absl::Span<const float> parameters, const BatchView& batch,
                                              absl::Span<float> gradients,
                                              absl::FunctionRef<void(int gradient)> on_gradient) override {
    CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
    CAIRN_RETURN_IF_ERROR(CheckGradients(model_, batch, gradients));
    if (batch.examples == 0) return NoExamples(gradients, on_gradient);
    CAIRN_ASSIGN_OR_RETURN(Prepared * prepared, PreparedFor(batch));
    last_ = prepared;
    last_seed_ = batch.seed;
    last_first_example_ = batch.first_example;
    // One range for the device's profiler. From the second step on, the step's work is a recording, so it
    // contains no smaller ranges (see Record()).
    const DeviceWork step({}, TraceLane::kStep, "step", device_);
    CAIRN_ASSIGN_OR_RETURN(const Uploaded uploaded, Upload(*prepared, parameters, batch));
    SetInputGradients(*prepared, batch);
    if (device_.host_memory_is_device_memory()) {
      const bool ahead = std::exchange(ahead_, std::nullopt) == Forwarded::Of(parameters, batch);
      if (!ahead) CAIRN_RETURN_IF_ERROR(Forward(*prepared, uploaded, batch, [](int) { return true; }));
      CAIRN_RETURN_IF_ERROR(prepared->plan->Loss(uploaded.batch, /*gradient=*/true));
      CAIRN_RETURN_IF_ERROR(
          prepared->plan->Backward(uploaded.values, GradientsFrom(gradients.data()), [&](int gradient) {
            on_gradient(gradient);
            return absl::OkStatus();
          }));
    } else {
      CAIRN_RETURN_IF_ERROR(device_.SeedRandom(batch.seed, batch.first_example));
      CAIRN_RETURN_IF_ERROR(prepared->plan->scales_loss() ? RunScaled(*prepared, uploaded, gradients)
                                                          : RunAway(*prepared, uploaded, gradients));
      if (prepared->rows != nullptr) CAIRN_RETURN_IF_ERROR(prepared->rows->Backward());
      CAIRN_RETURN_IF_ERROR(prepared->download->Announce([&](int gradient) {
        if (gradient < 0) TakeInputGradient(*prepared, Node::OfModelInput(gradient), batch);
        on_gradient(gradient);
      }));
    }
    CAIRN_ASSIGN_OR_RETURN(BatchResult result, Result(*prepared));
    if (prepared->rows != nullptr) result.row_gradients = prepared->rows->row_gradients();
    return result;
  }

  absl::Span<float> device_gradients() override {
    if (!gradients_.has_value() || device_.host_memory_is_device_memory()) return {};
    return {gradients_->Target(nullptr), static_cast<size_t>(model_.num_parameters())};
  }

  // A synchronized pass needs the other parts of the batch, which have not begun.
  bool starts_early() const override { return device_.host_memory_is_device_memory() && sync_ == nullptr; }

  void StartForward(absl::Span<const float> parameters, const BatchView& batch,
                    absl::FunctionRef<bool(int variable)> await) override {
    ahead_.reset();
    if (!starts_early() || batch.examples == 0 || !CheckBatch(model_, objective_, parameters, batch).ok())
      return;
    const auto prepared = PreparedFor(batch);
    if (!prepared.ok()) return;
    const auto uploaded = Upload(**prepared, parameters, batch);
    if (!uploaded.ok() || !Forward(**prepared, *uploaded, batch, await).ok()) return;
    ahead_ = Forwarded::Of(parameters, batch);
  }

  void DropForward() override { ahead_.reset(); }

  absl::StatusOr<BatchResult> Evaluate(absl::Span<const float> parameters, const BatchView& batch) override {
    ahead_.reset();
    CAIRN_RETURN_IF_ERROR(CheckBatch(model_, objective_, parameters, batch));
    if (batch.examples == 0) return BatchResult{};
    CAIRN_ASSIGN_OR_RETURN(Prepared * prepared, PreparedFor(batch));
    CAIRN_ASSIGN_OR_RETURN(const Uploaded uploaded, Upload(*prepared, parameters, batch));
    CAIRN_RETURN_IF_ERROR(prepared->plan->Evaluate(uploaded.values, uploaded.batch));
    CAIRN_RETURN_IF_ERROR(DownloadOutputs(*prepared));
    return Result(*prepared);
  }

  std::string FirstNonFiniteLayer() override {
    if (last_ == nullptr || !device_.SeedRandom(last_seed_, last_first_example_).ok()) return "";
    return last_->plan->FirstNonFiniteStep().value_or("");
  }

  absl::Status Pin(absl::Span<const float> host) override {
    CAIRN_ASSIGN_OR_RETURN(auto pinned,
                           device_.Pin(host.data(), static_cast<int64_t>(host.size() * sizeof(float))));
    pinned_.emplace_back(host, std::move(pinned));
    return absl::OkStatus();
  }

  bool pools_rows() const override { return !device_.host_memory_is_device_memory(); }

  bool pins() const override { return !device_.host_memory_is_device_memory(); }

  void Unpin() override {
    static_cast<void>(device_.Synchronize());  // the caller that needs the result gets the error
    for (auto& [key, prepared] : prepared_) {
      if (prepared != nullptr) prepared->recording = nullptr;  // it contains addresses of pinned memory
    }
    pinned_.clear();
  }

 private:
  struct Uploaded {
    Plan::Values values;
    Plan::Batch batch;
  };

  // Identifies the arguments of a forward pass.
  struct Forwarded {
    const float* parameters = nullptr;
    const void* inputs = nullptr;  // the first input
    int64_t examples = 0;
    uint64_t seed = 0;

    static Forwarded Of(absl::Span<const float> parameters, const BatchView& batch) {
      return {parameters.data(), batch.inputs[0].data, batch.examples, batch.seed};
    }
    friend bool operator==(const Forwarded&, const Forwarded&) = default;
  };

  // Runs the forward pass on a device that computes in host memory.
  absl::Status Forward(Prepared& prepared, const Uploaded& uploaded, const BatchView& batch,
                       absl::FunctionRef<bool(int variable)> await) {
    CAIRN_RETURN_IF_ERROR(device_.SeedRandom(batch.seed, batch.first_example));
    return prepared.plan->Forward(uploaded.values, uploaded.batch.inputs, /*training=*/true, await);
  }

  // The lookup whose pooled rows are this input; -1 if the input is given.
  static int LookupOf(const Prepared& prepared, size_t input) {
    return prepared.rows == nullptr ? -1 : prepared.rows->LookupOf(input);
  }

  // Sets where the plan writes the gradients with respect to inputs.
  static void SetInputGradients(Prepared& prepared, const BatchView& batch) {
    for (size_t i = 0; i < prepared.input_gradients.size(); ++i) {
      if (const int lookup = LookupOf(prepared, i); lookup >= 0) {
        prepared.plan->SetInputGradient(i, prepared.rows->gradient(lookup));
        continue;
      }
      const std::optional<InputGradient>& gradient = prepared.input_gradients[i];
      if (!gradient.has_value()) continue;
      prepared.plan->SetInputGradient(i, gradient->computed.Target(batch.input_gradients[i].data()));
    }
  }

  // Copies a gradient that has arrived in host memory to the caller's memory.
  static void TakeInputGradient(const Prepared& prepared, int input, const BatchView& batch) {
    const auto index = static_cast<size_t>(input);
    const absl::Span<float> to = batch.input_gradients[index];
    std::copy_n(prepared.input_gradients[index]->staging.data(), to.size(), to.data());
  }

  // A step on a device with its own memory, including the copies of gradients and outputs to the host.
  absl::Status RunAway(Prepared& prepared, const Uploaded& uploaded, absl::Span<float> gradients) {
    float* const device_gradients =
        gradients_.has_value() ? gradients_->Target(gradients.data()) : gradients.data();
    const bool weighted = uploaded.batch.weights != nullptr;
    bool again = prepared.download != nullptr && prepared.download->to() == gradients.data();
    if (!again) {
      prepared.download =
          std::make_unique<GradientDownload>(model_, device_, device_gradients, gradients.data());
    }
    const auto work = [&]() -> absl::Status {
      prepared.download->Begin();
      CAIRN_RETURN_IF_ERROR(
          prepared.plan->ForwardBackward(uploaded.values, uploaded.batch, GradientsFrom(device_gradients),
                                         [&](int gradient) { return Download(prepared, gradient); }));
      CAIRN_RETURN_IF_ERROR(prepared.download->End());
      return DownloadOutputs(prepared);
    };
    if (!again || prepared.recorded_weights != weighted) prepared.recording = nullptr;
    // The first step is not recorded, since libraries initialize themselves in it.
    if (again && prepared.recording == nullptr && CanBeRecorded(gradients)) {
      CAIRN_ASSIGN_OR_RETURN(prepared.recording, device_.Record(work));
      prepared.recorded_weights = weighted;
    }
    return prepared.recording == nullptr ? work() : prepared.recording->Run();
  }

  // Copies the gradient of a variable or an input to the host while the device computes.
  static absl::Status Download(Prepared& prepared, int gradient) {
    if (gradient >= 0) return prepared.download->Add(gradient);
    const auto input = static_cast<size_t>(Node::OfModelInput(gradient));
    if (LookupOf(prepared, input) >= 0) return absl::OkStatus();  // RowPool reads it
    InputGradient& computed = *prepared.input_gradients[input];
    return prepared.download->AddInput(
        gradient, computed.computed.Target(nullptr),
        computed.staging.span().first(static_cast<size_t>(prepared.plan->input_floats(input))));
  }

  // A step in float16. If gradients overflow, the step is repeated with a smaller scale, so that no worker
  // misses a round. Gradients that never become finite are reported as they are.
  absl::Status RunScaled(Prepared& prepared, const Uploaded& uploaded, absl::Span<float> gradients) {
    while (true) {
      if (prepared.loss_scale != loss_scale_.value()) {
        CAIRN_RETURN_IF_ERROR(prepared.plan->SetLossScale(loss_scale_.value()));
        prepared.loss_scale = loss_scale_.value();
      }
      CAIRN_RETURN_IF_ERROR(RunAway(prepared, uploaded, gradients));
      CAIRN_RETURN_IF_ERROR(device_.Synchronize());
      if (prepared.plan->gradients_finite()) break;
      if (!loss_scale_.Halve()) return absl::OkStatus();
    }
    loss_scale_.CountGoodStep();
    return absl::OkStatus();
  }

  bool StayOnDevice(absl::Span<const float> gradients) const {
    return gradients_.has_value() && !device_.host_memory_is_device_memory() &&
           gradients_->Target(nullptr) == gradients.data();
  }

  // Whether no op waits for other devices, and the device can write `host` asynchronously: the gradients stay on the
  // device, or `host` is pinned.
  bool CanBeRecorded(absl::Span<const float> host) const {
    if (sync_ != nullptr) return false;
    if (!gradients_.has_value() || StayOnDevice(host)) return true;
    return std::any_of(pinned_.begin(), pinned_.end(), [&](const auto& entry) {
      return entry.second != nullptr && entry.first.data() <= host.data() &&
             host.data() + host.size() <= entry.first.data() + entry.first.size();
    });
  }

  // Addresses of all variables in the flat buffer that the device reads or writes.
  Plan::Values ValuesFrom(const float* parameters) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = parameters + model_.variables()[i].offset;
    return values_;
  }
  Plan::Gradients GradientsFrom(float* gradients) {
    for (size_t i = 0; i < targets_.size(); ++i) targets_[i] = gradients + model_.variables()[i].offset;
    return targets_;
  }

  absl::StatusOr<Prepared*> PreparedFor(const BatchView& batch) {
    const Model& model = ModelFor(model_, batch);
    std::unique_ptr<Prepared>& prepared = prepared_[{&model, batch.examples}];
    const bool pools = batch.row_bags != nullptr;
    if (pools && !pools_rows()) {
      return absl::InvalidArgumentError(absl::StrCat(device_.name(), " takes pooled rows, and no row_bags"));
    }
    if (prepared != nullptr && pools != (prepared->rows != nullptr)) {
      return absl::InvalidArgumentError("all batches of a replica, or none, have row_bags");
    }
    if (prepared == nullptr) {
      auto made = CatchOutOfMemory("its buffers", [&] { return Prepare(model, batch); });
      if (!made.ok()) {
        return Annotate(made.status(),
                        absl::StrCat("a batch of ", batch.examples, " examples on ", device_.name()));
      }
      prepared = *std::move(made);
    }
    return prepared.get();
  }

  absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Model& model, const BatchView& batch) {
    const int64_t examples = batch.examples;
    Plan::Spec spec = Plan::SpecOf(model, examples);
    spec.trace = trace_;
    spec.sync = sync_;
    CAIRN_ASSIGN_OR_RETURN(auto plan, Plan::Create(model, objective_, device_, std::move(spec)));
    const int64_t targets = examples * objective_.TargetsPerExample(model);
    std::vector<DeviceCopy> inputs;
    const bool pools = batch.row_bags != nullptr;
    for (const ModelInput& input : model.inputs()) {
      const int64_t floats = pools && input.needs_gradient ? 0 : InputFloats(input, examples);
      CAIRN_ASSIGN_OR_RETURN(auto copy, DeviceCopy::Create(device_, floats, "inputs"));
      inputs.push_back(std::move(copy));
    }
    CAIRN_ASSIGN_OR_RETURN(auto device_targets, DeviceCopy::Create(device_, targets, "targets"));
    CAIRN_ASSIGN_OR_RETURN(
        auto weights, DeviceCopy::Create(device_, examples * objective_.WeightsPerExample(model), "weights"));
    auto prepared = std::make_unique<Prepared>(Prepared{&model, examples, std::move(plan), std::move(inputs),
                                                        std::vector<const float*>(model.inputs().size()),
                                                        std::move(device_targets), std::move(weights)});
    for (const ModelInput& input : model.inputs()) {
      std::optional<InputGradient>& gradient = prepared->input_gradients.emplace_back();
      PinnedInput& pinned = prepared->pinned_inputs.emplace_back();
      if (!input.needs_gradient || pools) continue;
      const int64_t floats = InputFloats(input, examples);
      CAIRN_ASSIGN_OR_RETURN(auto computed, DeviceCopy::Create(device_, floats, "gradients of inputs"));
      gradient.emplace(InputGradient{.computed = std::move(computed)});
      CAIRN_ASSIGN_OR_RETURN(gradient->pinned_staging, MakeStaging(floats, gradient->staging));
      CAIRN_ASSIGN_OR_RETURN(pinned.pinned, MakeStaging(floats, pinned.host));
    }
    if (pools) {
      CAIRN_ASSIGN_OR_RETURN(prepared->rows, RowPool::Create(device_, model, *batch.row_bags, examples));
    }
    CAIRN_ASSIGN_OR_RETURN(prepared->pinned_outputs,
                           MakeStaging(examples * model.output_shape().num_elements(), prepared->outputs));
    return prepared;
  }

  // Makes pinned host memory for the copies of a device with its own memory. Returns null if the device has none.
  absl::StatusOr<std::unique_ptr<kernels::PinnedMemory>> MakeStaging(int64_t floats, AlignedBuffer& staging) {
    if (device_.host_memory_is_device_memory()) return nullptr;
    constexpr int64_t kPageFloats = 1024;  // pinned memory must not share a page with other data
    staging = AlignedBuffer(std::max(kPageFloats, floats));
    return device_.Pin(staging.data(), staging.size() * int64_t{sizeof(float)});
  }

  absl::StatusOr<Uploaded> Upload(Prepared& prepared, absl::Span<const float> parameters,
                                  const BatchView& batch) {
    Uploaded uploaded;
    CAIRN_ASSIGN_OR_RETURN(const float* const values,
                           parameters_.Upload(parameters.data(), model_.num_parameters()));
    uploaded.values = ValuesFrom(values);
    if (prepared.rows != nullptr) CAIRN_RETURN_IF_ERROR(prepared.rows->Forward(*batch.row_bags));
    for (size_t i = 0; i < prepared.inputs.size(); ++i) {
      if (const int lookup = LookupOf(prepared, i); lookup >= 0) {
        prepared.input_pointers[i] = prepared.rows->input(lookup);
        continue;
      }
      TensorView input = batch.inputs[i];
      if (AlignedBuffer& pinned = prepared.pinned_inputs[i].host; pinned.size() > 0) {
        std::memcpy(pinned.data(), input.data, static_cast<size_t>(input.bytes()));
        input.data = pinned.data();
      }
      CAIRN_ASSIGN_OR_RETURN(const float* const at, prepared.inputs[i].Upload(input));
      // A recorded step has the addresses of its inputs, and a ragged input may move.
      if (std::exchange(prepared.input_pointers[i], at) != at) prepared.recording = nullptr;
    }
    uploaded.batch.inputs = prepared.input_pointers;
    CAIRN_ASSIGN_OR_RETURN(
        uploaded.batch.targets,
        prepared.targets.Upload(batch.targets.data(), static_cast<int64_t>(batch.targets.size())));
    if (!batch.weights.empty()) {
      CAIRN_ASSIGN_OR_RETURN(
          uploaded.batch.weights,
          prepared.weights.Upload(batch.weights.data(), static_cast<int64_t>(batch.weights.size())));
    }
    return uploaded;
  }

  // Copies the outputs to host memory. They are valid after the device's next Synchronize().
  absl::Status DownloadOutputs(Prepared& prepared) {
    if (device_.host_memory_is_device_memory()) return absl::OkStatus();
    return device_.CopyToHost(
        prepared.plan->output(), prepared.outputs.data(),
        prepared.examples * prepared.model->output_shape().num_elements() * int64_t{sizeof(float)});
  }

  absl::StatusOr<BatchResult> Result(const Prepared& prepared) {
    const int64_t examples = prepared.examples;
    CAIRN_RETURN_IF_ERROR(device_.Synchronize());
    const float* const outputs =
        device_.host_memory_is_device_memory() ? prepared.plan->output() : prepared.outputs.data();
    BatchResult result = {
        .sums = prepared.plan->sums(),
        .outputs = absl::MakeConstSpan(
            outputs, static_cast<size_t>(examples * prepared.model->output_shape().num_elements()))};
    result.sums.loss += prepared.plan->penalty() * static_cast<double>(examples);
    return result;
  }

  // A worker without examples still takes part in the round.
  absl::StatusOr<BatchResult> NoExamples(absl::Span<float> gradients,
                                         absl::FunctionRef<void(int gradient)> on_gradient) {
    if (StayOnDevice(gradients)) {
      const std::vector<float> zeros(gradients.size());
      CAIRN_RETURN_IF_ERROR(device_.CopyToDevice(zeros.data(), gradients.data(),
                                                 model_.num_parameters() * int64_t{sizeof(float)}));
      CAIRN_RETURN_IF_ERROR(device_.Synchronize());
      gradients = {};
    }
    GiveNoGradients(model_, gradients, on_gradient);
    return BatchResult{};
  }

  const Model& model_;
  const Objective objective_;
  kernels::Device& device_;
  const DeviceTrace trace_;
  BatchSync* const sync_;
  DeviceCopy parameters_;
  std::optional<DeviceCopy> gradients_;  // see FlatCopies
  LossScale loss_scale_;
  // [variable] Set at each call, like the next member.
  std::vector<const float*> values_;
  std::vector<float*> targets_;  // [variable]
  // [model of its length, batch size]
  std::map<std::pair<const Model*, int64_t>, std::unique_ptr<Prepared>> prepared_;
  // The forward pass whose activations are in its plan.
  std::optional<Forwarded> ahead_;
  // The last ForwardBackward().
  Prepared* last_ = nullptr;
  uint64_t last_seed_ = 0;
  int64_t last_first_example_ = 0;
  std::vector<std::pair<absl::Span<const float>, std::unique_ptr<kernels::PinnedMemory>>> pinned_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(const Model& model, const Objective& objective,
                                                         kernels::Device& device,
                                                         const ReplicaOptions& options) {
  CAIRN_RETURN_IF_ERROR(objective.CheckOutputs(model));
  // In float16, a device whose gradients overflow repeats its step alone.
  if (options.sync != nullptr && device.compute_type() == kernels::ElementType::kFloat16) {
    CAIRN_RETURN_IF_ERROR(model.CheckBatchMayBeDivided("devices or workers that compute in float16"));
  }
  CAIRN_ASSIGN_OR_RETURN(auto parameters, DeviceCopy::Create(device, model.num_parameters(), "parameters"));
  FlatCopies copies = {.parameters = std::move(parameters)};
  if (options.gradients == GradientMemory::kHost) {
    CAIRN_ASSIGN_OR_RETURN(copies.gradients, DeviceCopy::Create(device, model.num_parameters(), "gradients"));
  }
  return std::make_unique<DeviceReplica>(model, objective, device, std::move(copies), options);
}

}  // namespace cairn::nn
