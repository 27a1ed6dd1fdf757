// The seed network must run on oneDNN's compiled kernels: its reference code is correct, but 200 times
// slower. The library's own log shows what ran.
#include <dnnl.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "kernels/cpu/device.h"
#include "nn/model.h"
#include "nn/replica/replica.h"
#include "tests/conformance/backends.h"
#include "tests/support/model_inputs.h"
#include "tests/support/source_dir.h"

namespace cairn::conformance {
namespace {

// The log lines of the primitives that one training step runs.
std::vector<std::string> PrimitivesOfOneStep(const nn::Model& model, int64_t batch_size) {
  const auto device = kernels::CreateCpuDevice(0, 1).value();
  const auto replica = nn::Replica::Create(model, nn::LossSpec{.from_logits = true}, *device).value();
  const std::vector<float> parameters = model.InitialParameters(1);
  std::vector<float> gradients(parameters.size());
  const std::vector<float> inputs(static_cast<size_t>(batch_size * model.input_shape().num_elements()), 0.5f);
  const std::vector<float> labels(static_cast<size_t>(batch_size), 0.0f);

  testing::internal::CaptureStdout();
  dnnl::set_verbose(1);
  const auto result = replica->ForwardBackward(
      parameters, {.examples = batch_size, .inputs = FloatRows(batch_size, inputs), .targets = labels},
      absl::MakeSpan(gradients), [](int) {});
  dnnl::set_verbose(0);
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(result.ok()) << result.status();

  std::vector<std::string> primitives;
  for (absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, ",exec,cpu,")) primitives.emplace_back(line);
  }
  return primitives;
}

TEST(FastKernels, TheSeedNetworkNeverRunsReferenceCode) {
  const nn::Model model = nn::Model::FromFile(InSource("tests/support/data/keras316_mnist_cnn.json")).value();
  for (int64_t batch_size : {1, 32, 64}) {
    int convolutions = 0;
    for (const std::string& primitive : PrimitivesOfOneStep(model, batch_size)) {
      EXPECT_FALSE(absl::StrContains(primitive, ",ref")) << primitive;
      EXPECT_FALSE(absl::StrContains(primitive, ",simple")) << primitive;
      if (absl::StrContains(primitive, ",convolution,")) ++convolutions;
    }
    EXPECT_EQ(convolutions, 3) << "the third layer's; behind the others stands a pooling: the loops of ours";
  }
}

TEST(FastKernels, OnlyTheInputOfFlattenIsReordered) {
  if (dnnl_get_effective_cpu_isa() < dnnl_cpu_isa_avx512_core) {
    GTEST_SKIP() << "without AVX-512, oneDNN wants different formats in the two directions";
  }
  const nn::Model model = nn::Model::FromFile(InSource("tests/support/data/keras316_mnist_cnn.json")).value();
  int reorders = 0;  // of activations, which a batch of 47 tells from kernels
  for (const std::string& primitive : PrimitivesOfOneStep(model, 47)) {
    if (absl::StrContains(primitive, ",reorder,") && absl::StrContains(primitive, ",47x")) ++reorders;
  }
  EXPECT_EQ(reorders, 2) << "there, and its gradient back";
}

}  // namespace
}  // namespace cairn::conformance
