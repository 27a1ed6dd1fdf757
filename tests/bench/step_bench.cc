// Images per second of training steps without servers: what a device computes alone. Two ways:
//   step_bench --threads 2 --batch_size 64        whole calls of a replica, copies included, and Adam on the host
//   step_bench --device /gpu:0 --resident         the step alone: everything is on the device, and steps follow each
//                                                 other without the host waiting in between
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "nn/model.h"
#include "nn/objective.h"
#include "nn/replica/plan.h"
#include "nn/replica/replica.h"
#include "optim/optimizer.h"
#include "tests/bench/bench_device.h"
#include "tests/support/model_inputs.h"

namespace cairn {
namespace {

struct Options {
  std::string model = CAIRN_SOURCE_DIR "/tests/support/data/keras316_mnist_cnn.json";
  std::string device = "/cpu:0";
  std::string precision = "tf32";
  int threads = 1;
  int64_t batch_size = 64;
  int steps = 300;
  bool compute_only = false;
  bool click_model = false;
  int64_t ids = 2;
  bool resident = false;
  int runs = 7;
  int warm_up = 20;
};

nn::LossSpec LossOf(const Options& options) {
  if (options.click_model) return {.kind = kernels::LossKind::kBinaryCrossentropy};
  return {.from_logits = true};
}

// Dense inputs: zeros and dead units would flatter. Integers are below `limit`.
std::vector<float> DenseInputs(int64_t count, DType type, int64_t limit) {
  Random random(1, "bench/inputs");
  std::vector<float> inputs(static_cast<size_t>(count));
  for (float& value : inputs) {
    value = random.NextUniform();
    if (type != DType::kFloat32) value = std::floor(value * static_cast<float>(limit));
  }
  return inputs;
}

// Every class in turn.
std::vector<float> Labels(const nn::Model& model, const nn::LossSpec& loss, int64_t examples) {
  std::vector<float> labels(static_cast<size_t>(examples * nn::Objective(loss).TargetsPerExample(model)));
  const Shape& output = model.output_shape();
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<float>(i % static_cast<size_t>(output[output.rank() - 1]));
  }
  return labels;
}

absl::StatusOr<double> SecondsOf(const std::function<absl::Status()>& work) {
  const auto start = std::chrono::steady_clock::now();
  CAIRN_RETURN_IF_ERROR(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `seconds` [part] of steps; each part is `unit`: "step", or "run of 300 steps".
void Report(const Options& options, std::vector<double> seconds, int steps_per_part,
            const std::string& unit) {
  const double images = static_cast<double>(options.batch_size) * steps_per_part;
  const double mean =
      std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  // The best is what the machine can do; the median is what its other load left of it.
  std::printf("%.0f images/s in the median %s, %.0f in the mean, %.0f in the best of %zu; %.1f us/step\n",
              images / median, unit.c_str(), images / mean, images / seconds.front(), seconds.size(),
              median * 1e6 / steps_per_part);
}

absl::Status MeasureCalls(const Options& options, const nn::Model& model, kernels::Device& device) {
  CAIRN_ASSIGN_OR_RETURN(const auto replica, nn::Replica::Create(model, LossOf(options), device));
  std::vector<float> parameters = model.InitialParameters(1);
  AlignedBuffer gradients(model.num_parameters()), m(model.num_parameters()), v(model.num_parameters());
  const optim::Slot slots[] = {optim::InPlace(m.data()), optim::InPlace(v.data())};
  CAIRN_ASSIGN_OR_RETURN(const auto adam, optim::MakeOptimizer({.name = "Adam", .hyperparameters = {}}));
  const DType type = model.inputs()[0].dtype;
  const std::vector<float> inputs =
      DenseInputs(options.batch_size * model.input_shape().num_elements(), type, options.ids);
  const ModelInputs several(model, options.batch_size, inputs);
  const TensorViews inputs_of_batch = model.inputs().size() == 1 && type == DType::kFloat32
                                          ? FloatRows(options.batch_size, inputs)
                                          : several.views();
  const std::vector<float> labels = Labels(model, LossOf(options), options.batch_size);
  const nn::BatchView batch = {.examples = options.batch_size, .inputs = inputs_of_batch, .targets = labels};
  if (!device.host_memory_is_device_memory()) {
    const absl::Span<const float> reused[] = {parameters, gradients.span(), inputs, labels};
    for (const absl::Span<const float> host : reused) {
      CAIRN_RETURN_IF_ERROR(replica->Pin(host));
    }
  }

  std::vector<double> seconds;  // [step]
  for (int step = -options.warm_up; step < options.steps; ++step) {
    CAIRN_ASSIGN_OR_RETURN(
        const double elapsed, SecondsOf([&]() -> absl::Status {
          CAIRN_RETURN_IF_ERROR(
              replica->ForwardBackward(parameters, batch, gradients.span(), [](int) {}).status());
          if (options.compute_only) return absl::OkStatus();
          adam->rule().Update({.t = options.warm_up + step + 1, .learning_rate = 1e-4f}, parameters,
                              gradients.span(), slots, parameters.data());
          return absl::OkStatus();
        }));
    if (step >= 0) seconds.push_back(elapsed);
  }
  Report(options, std::move(seconds), 1, "step");
  return absl::OkStatus();
}

// Device memory that holds `values`.
absl::StatusOr<std::unique_ptr<kernels::DeviceMemory>> Put(kernels::Device& device,
                                                           const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  CAIRN_ASSIGN_OR_RETURN(auto memory, device.Allocate(count, "step_bench"));
  CAIRN_RETURN_IF_ERROR(device.CopyToDevice(values.data(), memory->data(), count * int64_t{sizeof(float)}));
  CAIRN_RETURN_IF_ERROR(device.Synchronize());
  return memory;
}

absl::Status MeasureResident(const Options& options, const nn::Model& model, kernels::Device& device) {
  CAIRN_ASSIGN_OR_RETURN(const auto plan, nn::Plan::Create(model, LossOf(options), device,
                                                           nn::Plan::SpecOf(model, options.batch_size)));
  CAIRN_ASSIGN_OR_RETURN(const auto parameters, Put(device, model.InitialParameters(1)));
  CAIRN_ASSIGN_OR_RETURN(const auto gradients, device.Allocate(model.num_parameters(), "step_bench"));
  CAIRN_ASSIGN_OR_RETURN(const auto labels, Put(device, Labels(model, LossOf(options), options.batch_size)));
  std::vector<std::unique_ptr<kernels::DeviceMemory>> inputs;
  std::vector<const float*> input_pointers;
  for (const nn::ModelInput& input : model.inputs()) {
    if (input.dtype != DType::kFloat32) return absl::UnimplementedError("--resident: integer inputs");
    CAIRN_ASSIGN_OR_RETURN(
        auto memory,
        Put(device, DenseInputs(options.batch_size * input.shape.num_elements(), input.dtype, options.ids)));
    input_pointers.push_back(memory->data());
    inputs.push_back(std::move(memory));
  }
  const nn::Plan::Batch batch = {.inputs = input_pointers, .targets = labels->data()};
  std::vector<const float*> values;  // [variable]
  std::vector<float*> targets;       // [variable]
  for (const nn::ModelVariable& variable : model.variables()) {
    values.push_back(parameters->data() + variable.offset);
    targets.push_back(gradients->data() + variable.offset);
  }
  const auto ask = [&] {
    return plan->ForwardBackward(values, batch, absl::MakeConstSpan(targets),
                                 [](int) { return absl::OkStatus(); });
  };

  CAIRN_RETURN_IF_ERROR(device.SeedRandom(1, 0));
  CAIRN_RETURN_IF_ERROR(ask());  // libraries set themselves up in their first step: it is not recorded
  CAIRN_RETURN_IF_ERROR(device.Synchronize());
  CAIRN_ASSIGN_OR_RETURN(const auto recording, device.Record(ask));
  const auto run_steps = [&](int steps) -> absl::Status {
    for (int step = 0; step < steps; ++step) {
      CAIRN_RETURN_IF_ERROR(recording == nullptr ? ask() : recording->Run());
    }
    return device.Synchronize();
  };

  CAIRN_RETURN_IF_ERROR(run_steps(options.warm_up));
  std::vector<double> seconds;  // [run]
  for (int run = 0; run < options.runs; ++run) {
    CAIRN_ASSIGN_OR_RETURN(const double elapsed, SecondsOf([&] { return run_steps(options.steps); }));
    seconds.push_back(elapsed);
  }
  Report(options, std::move(seconds), options.steps, absl::StrCat("run of ", options.steps, " steps"));
  std::printf("mean loss %.6f\n", plan->sums().loss / static_cast<double>(options.batch_size));
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const nn::Model model, nn::Model::FromFile(options.model));
  CAIRN_ASSIGN_OR_RETURN(const auto device,
                         bench::MakeDevice(options.device, options.precision, options.threads));
  std::printf("%s\n%s, batch %lld: ", device->Description().c_str(), model.name().c_str(),
              static_cast<long long>(options.batch_size));
  return (options.resident ? MeasureResident : MeasureCalls)(options, model, *device);
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::Options options;
  CLI::App app("Images per second of one replica's training steps: forward, backward, Adam");
  app.add_option("--model", options.model, "Keras JSON")->capture_default_str();
  app.add_option("--device", options.device, "/cpu:0 or /gpu:N")->capture_default_str();
  app.add_option("--precision", options.precision, "Of products: fp32, tf32, bf16 or fp16")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Of /cpu:0")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch_size", options.batch_size)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--warm_up", options.warm_up, "Steps before the first one that counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--compute_only", options.compute_only, "Without Adam");
  app.add_flag("--click_model", options.click_model, "The output is the probability of one class");
  app.add_option("--ids", options.ids, "Integer inputs are drawn below this")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--resident", options.resident, "Without Adam and without copies from and to the host");
  app.add_option("--runs", options.runs, "With --resident: how often --steps steps are timed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = cairn::Run(options);
  if (!status.ok()) std::fprintf(stderr, "step_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
