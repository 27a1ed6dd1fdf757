// Images per second of a worker that trains alone: loader, forward, backward, Adam; no servers. The
// baseline for a cluster's rate.
//   lone_worker MODEL DATA_DIR BATCH_SIZE EPOCHS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "data/batch_loader.h"
#include "data/dataset.h"
#include "kernels/cpu/device.h"
#include "nn/replica/replica.h"
#include "optim/optimizer.h"

namespace cairn {
namespace {

absl::Status Run(const std::string& model_file, const std::string& data_dir, int64_t batch_size,
                 int64_t epochs) {
  CAIRN_ASSIGN_OR_RETURN(const nn::Model model, nn::Model::FromFile(model_file));
  CAIRN_ASSIGN_OR_RETURN(const auto data, data::LoadTrainingData({.path = data_dir}));
  CAIRN_ASSIGN_OR_RETURN(const auto device, kernels::CreateCpuDevice(0, 1));
  CAIRN_ASSIGN_OR_RETURN(const auto replica,
                         nn::Replica::Create(model, nn::LossSpec{.from_logits = true}, *device));
  CAIRN_ASSIGN_OR_RETURN(const auto adam, optim::MakeOptimizer({.name = "Adam", .hyperparameters = {}}));
  data::BatchLoader loader(*data.train, {.num_examples = data.train->size(), .batch_size = batch_size});

  std::vector<float> parameters = model.InitialParameters(1);
  AlignedBuffer gradients(model.num_parameters()), m(model.num_parameters()), v(model.num_parameters());
  const optim::Slot slots[] = {optim::InPlace(m.data()), optim::InPlace(v.data())};
  int64_t examples = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < epochs * loader.batches_per_epoch(); ++step) {
    const data::Batch& batch = loader.Next(step);
    const auto batch_examples = static_cast<size_t>(batch.examples);
    const nn::BatchView view = {.examples = batch.examples,
                                .inputs = batch.inputs.First(batch.examples),
                                .targets = batch.targets.span().subspan(0, batch_examples)};
    CAIRN_RETURN_IF_ERROR(replica->ForwardBackward(parameters, view, gradients.span(), [](int) {}));
    adam->rule().Update({.t = step + 1, .learning_rate = adam->learning_rate(step)}, parameters,
                        gradients.span(), slots, parameters.data());
    examples += batch.examples;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%.0f images/s\n", static_cast<double>(examples) / seconds.count());
  return absl::OkStatus();
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: lone_worker MODEL DATA_DIR BATCH_SIZE EPOCHS\n");
    return 2;
  }
  const absl::Status status = cairn::Run(argv[1], argv[2], std::atoll(argv[3]), std::atoll(argv[4]));
  if (!status.ok()) std::fprintf(stderr, "lone_worker: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
