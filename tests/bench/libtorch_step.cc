// Images per second of training steps (forward, backward, Adam) of libtorch, the peer of step_bench: the same
// networks, dense inputs, batch and threads. Run by step_ratio.py.
//   libtorch_step NETWORK THREADS BATCH_SIZE STEPS          NETWORK: cnn, mlp or resnet20
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct Network : nn::Module {
  virtual torch::Tensor forward(torch::Tensor x) = 0;
  std::vector<int64_t> input;  // without the batch
};

// The seed's convolutional network.
struct Cnn final : Network {
  Cnn() {
    input = {1, 28, 28};
    conv1 = register_module("conv1", nn::Conv2d(1, 32, 3));
    conv2 = register_module("conv2", nn::Conv2d(32, 64, 3));
    conv3 = register_module("conv3", nn::Conv2d(64, 64, 3));
    dense1 = register_module("dense1", nn::Linear(576, 64));
    dense2 = register_module("dense2", nn::Linear(64, 10));
  }
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    x = torch::relu(conv3(x)).flatten(1);
    return dense2(torch::relu(dense1(x)));
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  nn::Linear dense1{nullptr}, dense2{nullptr};
};

struct Mlp final : Network {
  Mlp() {
    input = {784};
    dense1 = register_module("dense1", nn::Linear(784, 4096));
    dense2 = register_module("dense2", nn::Linear(4096, 4096));
    dense3 = register_module("dense3", nn::Linear(4096, 10));
  }
  torch::Tensor forward(torch::Tensor x) override {
    return dense3(torch::relu(dense2(torch::relu(dense1(x)))));
  }
  nn::Linear dense1{nullptr}, dense2{nullptr}, dense3{nullptr};
};

struct Block : nn::Module {
  Block(int64_t in, int64_t out, int64_t stride) {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1)));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1)));
    bn1 = register_module("bn1", nn::BatchNorm2d(out));
    bn2 = register_module("bn2", nn::BatchNorm2d(out));
    if (stride != 1) skip = register_module("skip", nn::Conv2d(nn::Conv2dOptions(in, out, 1).stride(stride)));
  }
  torch::Tensor forward(torch::Tensor x) {
    const torch::Tensor y = bn2(conv2(torch::relu(bn1(conv1(x)))));
    return torch::relu(y + (skip.is_empty() ? x : skip(x)));
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr}, skip{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
};

struct ResNet20 final : Network {
  ResNet20() {
    input = {3, 32, 32};
    stem = register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)));
    stem_bn = register_module("stem_bn", nn::BatchNorm2d(16));
    int64_t channels = 16;
    for (const int64_t filters : {16, 32, 64}) {
      for (int block = 0; block < 3; ++block) {
        const int64_t stride = filters != channels ? 2 : 1;
        blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                         std::make_shared<Block>(channels, filters, stride)));
        channels = filters;
      }
    }
    scores = register_module("scores", nn::Linear(64, 10));
  }
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(stem_bn(stem(x)));
    for (auto& block : blocks) x = block->forward(x);
    return scores(x.mean({2, 3}));
  }
  nn::Conv2d stem{nullptr};
  nn::BatchNorm2d stem_bn{nullptr};
  std::vector<std::shared_ptr<Block>> blocks;
  nn::Linear scores{nullptr};
};

std::shared_ptr<Network> Make(const std::string& name) {
  if (name == "cnn") return std::make_shared<Cnn>();
  if (name == "mlp") return std::make_shared<Mlp>();
  if (name == "resnet20") return std::make_shared<ResNet20>();
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const std::shared_ptr<Network> network = argc == 5 ? Make(argv[1]) : nullptr;
  if (network == nullptr) {
    std::fprintf(stderr, "usage: libtorch_step cnn|mlp|resnet20 THREADS BATCH_SIZE STEPS\n");
    return 2;
  }
  torch::set_num_threads(std::atoi(argv[2]));
  const int64_t batch = std::atoll(argv[3]), steps = std::atoll(argv[4]);
  std::vector<int64_t> shape = network->input;
  shape.insert(shape.begin(), batch);
  const torch::Tensor inputs = torch::rand(shape);
  const torch::Tensor labels = torch::arange(batch).remainder(10);
  torch::optim::Adam adam(network->parameters(), torch::optim::AdamOptions(1e-4));

  std::vector<double> rates;
  constexpr int64_t kWarmUpSteps = 10;
  for (int64_t step = -kWarmUpSteps; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    adam.zero_grad();
    F::cross_entropy(network->forward(inputs), labels).backward();
    adam.step();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (step >= 0) rates.push_back(static_cast<double>(batch) / seconds.count());
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%.1f images/s in the median step, %.1f in the best of %lld\n", rates[rates.size() / 2],
              rates.back(), static_cast<long long>(steps));
}
