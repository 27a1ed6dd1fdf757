// Images per second of training steps (forward, backward, Adam), without servers: what the CPU backend
// computes by itself.
//   step_bench --threads 2 --batch_size 64
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "common/core/aligned_buffer.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "kernels/cpu/device.h"
#include "ps/optim/optimizer.h"
#include "worker/nn/model.h"
#include "worker/nn/replica.h"

namespace cairn {
namespace {

struct Options {
  std::string model = CAIRN_SOURCE_DIR "/tests/support/data/keras316_mnist_cnn.json";
  int threads = 1;
  int64_t batch_size = 64;
  int steps = 300;
};
constexpr int kWarmUpSteps = 20;

// Dense inputs: zeros and dead units would flatter.
std::vector<float> DenseInputs(int64_t count) {
  Random random(1, "bench/inputs");
  std::vector<float> inputs(static_cast<size_t>(count));
  for (float& value : inputs) value = random.NextUniform();
  return inputs;
}

absl::Status Run(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const nn::Model model, nn::Model::FromFile(options.model));
  CAIRN_ASSIGN_OR_RETURN(const auto device, kernels::CreateCpuDevice(0, options.threads));
  CAIRN_ASSIGN_OR_RETURN(const auto replica, nn::Replica::Create(model, {.from_logits = true}, *device));
  std::printf("%s\n%s, batch %lld\n", device->Description().c_str(), model.name().c_str(),
              static_cast<long long>(options.batch_size));

  std::vector<float> parameters = model.InitialParameters(1);
  AlignedBuffer gradients(model.num_parameters()), m(model.num_parameters()), v(model.num_parameters());
  float* const slots[] = {m.data(), v.data()};
  CAIRN_ASSIGN_OR_RETURN(const auto adam, ps::MakeOptimizer({.name = "Adam", .hyperparameters = {}}));
  const std::vector<float> inputs = DenseInputs(options.batch_size * model.input_shape().num_elements());
  std::vector<float> labels(static_cast<size_t>(options.batch_size));
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<float>(i % static_cast<size_t>(model.output_shape()[0]));
  }
  const nn::BatchView batch = {.examples = options.batch_size, .inputs = inputs, .targets = labels};

  std::vector<double> rates;  // images/s of each step
  for (int step = -kWarmUpSteps; step < options.steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    CAIRN_RETURN_IF_ERROR(replica->ForwardBackward(parameters, batch, gradients.span(), [](int) {}).status());
    adam->rule().Update({.t = kWarmUpSteps + step + 1, .learning_rate = 1e-4f}, parameters, gradients.span(), slots,
                 parameters.data());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (step >= 0) rates.push_back(static_cast<double>(options.batch_size) / seconds.count());
  }
  std::sort(rates.begin(), rates.end());
  // The best step is what the machine can do; the median is what its other load left of it.
  std::printf("%d thread(s): %.0f images/s in the median step, %.0f in the best of %d\n", options.threads,
              rates[rates.size() / 2], rates.back(), options.steps);
  return absl::OkStatus();
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::Options options;
  CLI::App app("Images per second of one replica's training steps: forward, backward, Adam");
  app.add_option("--model", options.model, "Keras JSON")->capture_default_str();
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch_size", options.batch_size)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = cairn::Run(options);
  if (!status.ok()) std::fprintf(stderr, "step_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
