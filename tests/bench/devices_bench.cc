// How much faster two logical CPU devices of one thread each are than one: a model divided between them,
// whose micro-batches pass both, and a replica on each. All in turn in one process; the figure is the median
// of the rounds' ratios. Ends with status 1 where the pipeline misses its bar.
//   devices_bench [--batch_size 256] [--micro_batches 8] [--rounds 15]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/random.h"
#include "common/core/status.h"
#include "common/system/cores.h"
#include "kernels/cpu/device.h"
#include "nn/pipeline/pipeline_replica.h"
#include "nn/replica/device_thread.h"
#include "nn/replica/mirrored_replica.h"
#include "tests/support/model_inputs.h"

namespace cairn {
namespace {

struct Options {
  int64_t batch_size = 256;
  int64_t micro_batches = 8;
  int rounds = 15;
  int steps = 2;
};
constexpr double kBar = 1.6;
const nn::LossSpec kLoss = {.from_logits = true};

// Eight convolutions of the same cost, and what makes classes of it: splits into two halves.
std::string EvenModel() {
  constexpr int kLayers = 8;
  std::vector<std::string> layers;
  for (int i = 0; i < kLayers; ++i) {
    layers.push_back(absl::StrCat(
        R"({"class_name": "Conv2D", "config": {"filters": 32, "kernel_size": 3, "padding": "same",
            "activation": "relu", "input_shape": [16, 16, 32]}})"));
  }
  layers.emplace_back(R"({"class_name": "GlobalAveragePooling2D", "config": {}})");
  layers.emplace_back(R"({"class_name": "Dense", "config": {"units": 10}})");
  return absl::StrCat(R"({"config": {"layers": [)", absl::StrJoin(layers, ","), "]}}");
}

absl::StatusOr<std::unique_ptr<nn::DeviceThread>> StartDevice(int index) {
  return nn::DeviceThread::Start(absl::StrCat("cpu:", index), [=] {
    StayOnCores(index, 1);
    return kernels::CreateCpuDevice(index, 1);
  });
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::StatusOr<bool> Run(const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(const nn::Model model, nn::Model::FromJson(EvenModel(), "model"));
  CAIRN_ASSIGN_OR_RETURN(const auto first, StartDevice(0));
  CAIRN_ASSIGN_OR_RETURN(const auto second, StartDevice(1));
  nn::DeviceThread* const both[] = {first.get(), second.get()};
  std::vector<int> halves(model.nodes().size(), 1);  // [node]
  std::fill_n(halves.begin(), 4, 0);

  struct Way {
    const char* name;
    std::unique_ptr<nn::Replica> replica;
    std::vector<double> seconds{};
  };
  std::vector<Way> ways;
  CAIRN_ASSIGN_OR_RETURN(auto alone, nn::MakeMirroredReplica(model, kLoss, {first.get()}));
  ways.push_back({"one device", std::move(alone)});
  CAIRN_ASSIGN_OR_RETURN(auto pipeline,
                         nn::MakePipelineReplica({.model = model,
                                                  .objective = kLoss,
                                                  .threads = both,
                                                  .locations = nn::PipelineLocations::OfDevices(halves),
                                                  .micro_batches = options.micro_batches}));
  ways.push_back({"pipeline of two", std::move(pipeline)});
  CAIRN_ASSIGN_OR_RETURN(auto mirrored, nn::MakeMirroredReplica(model, kLoss, both));
  ways.push_back({"mirrored on two", std::move(mirrored)});

  Random random(1, "bench/inputs");
  std::vector<float> inputs(static_cast<size_t>(options.batch_size * model.input_shape().num_elements()));
  for (float& value : inputs) value = random.NextUniform() - 0.5f;
  std::vector<float> labels(static_cast<size_t>(options.batch_size));
  for (float& label : labels) label = static_cast<float>(random.NextBelow(10));
  const nn::BatchView batch = {
      .examples = options.batch_size, .inputs = FloatRows(options.batch_size, inputs), .targets = labels};
  const std::vector<float> parameters = model.InitialParameters(1);
  std::vector<float> gradients(parameters.size());

  for (int round = -1; round < options.rounds; ++round) {  // the first sets up
    for (Way& way : ways) {
      const auto start = std::chrono::steady_clock::now();
      for (int step = 0; step < options.steps; ++step) {
        CAIRN_RETURN_IF_ERROR(
            way.replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {}).status());
      }
      const auto elapsed = std::chrono::steady_clock::now() - start;
      if (round >= 0) way.seconds.push_back(std::chrono::duration<double>(elapsed).count());
    }
  }
  double pipeline_ratio = 0;
  for (const Way& way : ways) {
    std::vector<double> ratios;
    for (size_t i = 0; i < way.seconds.size(); ++i) ratios.push_back(ways[0].seconds[i] / way.seconds[i]);
    std::printf("%-16s %8.1f images/s, %.2f times one device (%.2f to %.2f)\n", way.name,
                static_cast<double>(options.batch_size * options.steps) / Median(way.seconds), Median(ratios),
                *std::min_element(ratios.begin(), ratios.end()),
                *std::max_element(ratios.begin(), ratios.end()));
    if (&way == &ways[1]) pipeline_ratio = Median(ratios);
  }
  std::printf(
      "%lld micro-batches allow %.2f at most; the bar is %.1f\n",
      static_cast<long long>(options.micro_batches),
      2.0 * static_cast<double>(options.micro_batches) / static_cast<double>(options.micro_batches + 1),
      kBar);
  return pipeline_ratio >= kBar;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::Options options;
  CLI::App app("Two logical CPU devices against one");
  app.add_option("--batch_size", options.batch_size)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--micro_batches", options.micro_batches)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--steps", options.steps, "In one measurement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto met = cairn::Run(options);
  if (!met.ok()) std::fprintf(stderr, "devices_bench: %s\n", met.status().ToString().c_str());
  return met.ok() && *met ? 0 : 1;
}
