// After its first steps, a replica requests no more memory from the system. Only requests of at least 1 KiB
// count, and oneDNN's own are excluded: it allocates lists for every call of a primitive, and buffers for
// packed matrices.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/cpu/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/support/model_inputs.h"
#include "tests/support/source_dir.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int> large_requests{0};

void Count(size_t bytes, void* caller) {
  if (bytes < 1024 || !counting) return;
  Dl_info from;
  if (dladdr(caller, &from) != 0 && std::strstr(from.dli_fname, "libdnnl") != nullptr) return;
  ++large_requests;
}

}  // namespace

extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* __libc_memalign(size_t alignment, size_t bytes);

extern "C" void* malloc(size_t bytes) {
  Count(bytes, __builtin_return_address(0));
  return __libc_malloc(bytes);
}
extern "C" int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  Count(bytes, __builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  Count(bytes, __builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}

namespace cairn::nn {
namespace {

int LargeRequestsOfTenSteps(const std::string& file, int threads) {
  const Model model = Model::FromFile(file).value();
  const auto device = kernels::CreateCpuDevice(0, threads).value();
  const auto replica = Replica::Create(model, LossSpec{.from_logits = true}, *device).value();
  constexpr int64_t kExamples = 8;
  const std::vector<float> parameters = model.InitialParameters(1);
  std::vector<float> gradients(parameters.size());
  const std::vector<float> inputs(static_cast<size_t>(kExamples * model.input_shape().num_elements()), 0.5f);
  const std::vector<float> targets(static_cast<size_t>(kExamples), 1.0f);
  const BatchView batch = {.examples = kExamples, .inputs = FloatRows(kExamples, inputs), .targets = targets};
  const auto step = [&] {
    return replica->ForwardBackward(parameters, batch, absl::MakeSpan(gradients), [](int) {}).ok();
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step());
  large_requests = 0;
  counting = true;
  bool ok = true;
  for (int i = 0; i < 10; ++i) ok &= step();
  counting = false;
  EXPECT_TRUE(ok);
  return large_requests;
}

TEST(SteadyState, TheCounterSeesARequest) {
  large_requests = 0;
  counting = true;
  const auto memory = std::make_unique<std::array<char, 4096>>();
  counting = false;
  EXPECT_GE(large_requests, 1) << memory->size();
}

TEST(SteadyState, AStepAllocatesNoMemory) {
  for (const char* model : {"mnist_cnn", "mnist_mlp", "cifar_resnet20"}) {
    for (int threads : {1, 2}) {
      EXPECT_EQ(LargeRequestsOfTenSteps(InSource(absl::StrCat("deploy/examples/", model, ".json")), threads),
                0)
          << model << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace cairn::nn
