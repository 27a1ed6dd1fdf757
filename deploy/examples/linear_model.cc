// A training loop of one's own: workers fit y = x . kernel + bias, and the servers apply the optimizer.
//
//   cairn-ps --ps_hosts localhost:2222 --job_name ps --task_index 0 &
//   linear_model localhost:2222 0 2 &      worker 0 of 2, the chief
//   linear_model localhost:2222 1 2        worker 1 of 2; each prints "kernel 1.00 2.00 -3.00, bias 0.50"
//
// SERVERS may list several, "localhost:2222,localhost:2223". MODE is "sync" or "async". Without arguments, the
// place of the worker comes from the environment that `cairn run` sets:
//
//   cairn run --ps 1 --workers 2 build/release/bin/linear_model

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>

#include "cairn/session.h"

namespace {

constexpr std::array<float, 3> kKernel = {1.0f, 2.0f, -3.0f};  // what the workers are to find
constexpr float kBias = 0.5f;
constexpr int kExamples = 32;  // in each step of a worker

// The gradients of the mean squared error over the examples of this step, which differ between workers and steps.
cairn::Status TrainStep(cairn::Session& session) {
  if (cairn::Status begun = session.BeginStep(kExamples); !begun.ok()) return begun;
  const std::span<const float> kernel = session.values(0), bias = session.values(1);
  const std::span<float> kernel_gradient = session.gradients(0), bias_gradient = session.gradients(1);
  std::fill(session.gradients().begin(), session.gradients().end(), 0.0f);
  std::mt19937 random(static_cast<unsigned>(session.position() * 1000 + session.worker()));
  std::uniform_real_distribution<float> input(-1.0f, 1.0f);
  for (int example = 0; example < kExamples; ++example) {
    std::array<float, kKernel.size()> x;
    float error = bias[0] - kBias;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = input(random);
      error += x[i] * (kernel[i] - kKernel[i]);
    }
    for (size_t i = 0; i < x.size(); ++i) kernel_gradient[i] += 2 * error * x[i] / kExamples;
    bias_gradient[0] += 2 * error / kExamples;
  }
  return session.FinishStep();
}

cairn::Status Train(const cairn::Job& job, const cairn::SessionOptions& options) {
  std::unique_ptr<cairn::Session> session;
  if (cairn::Status opened = cairn::Session::Open(job, options, &session); !opened.ok()) return opened;
  if (cairn::Status trained = session->Run(TrainStep); !trained.ok()) return trained;
  std::printf("kernel");
  for (const float value : session->values(0)) std::printf(" %.2f", value);
  std::printf(", bias %.2f\n", session->values(1)[0]);
  return cairn::Status();
}

}  // namespace

int main(int argc, char** argv) {
  const bool given = argc == 4 || argc == 5;
  const char* const places[] = {given ? argv[1] : std::getenv("CAIRN_SERVERS"),
                                given ? argv[2] : std::getenv("RANK"),
                                given ? argv[3] : std::getenv("WORLD_SIZE")};
  if ((!given && argc != 1) || std::count(std::begin(places), std::end(places), nullptr) > 0) {
    std::fprintf(stderr, "usage: linear_model SERVERS WORKER WORKERS [MODE], or cairn run linear_model\n");
    return 2;
  }
  cairn::SessionOptions options = {.worker = std::atoi(places[1])};
  std::istringstream servers(places[0]);
  for (std::string server; std::getline(servers, server, ',');) options.connect.servers.push_back(server);
  options.connect.log = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  cairn::Job job = {.variables = {{.name = "kernel", .shape = {kKernel.size()}}, {.name = "bias"}},
                    .optimizer = {.name = "SGD", .hyperparameters = {{"learning_rate", 0.1}}},
                    .workers = std::atoi(places[2]),
                    .updates = 400};
  if (argc == 5 && argv[4] == std::string("async")) job.mode = cairn::Mode::kAsync;
  const cairn::Status status = Train(job, options);
  if (!status.ok()) std::fprintf(stderr, "linear_model: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
