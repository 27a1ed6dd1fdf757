#include <gtest/gtest.h>

#include <memory>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime/context.h"

namespace cairn::kernels::cuda {
namespace {

// The number of kernels and copies that `ask` puts into the stream; none of them runs.
size_t WorkOf(Context& context, absl::FunctionRef<absl::Status()> ask) {
  EXPECT_EQ(cudaStreamBeginCapture(context.stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_TRUE(ask().ok());
  Graph graph;
  EXPECT_EQ(cudaStreamEndCapture(context.stream(), graph.out()), cudaSuccess);
  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph.get(), nullptr, &count), cudaSuccess);
  return count;
}

TEST(CudaContext, ASeedIsCopiedOnlyIfAnOpDrawsNumbers) {
  const auto context = Context::Create({}).value();
  EXPECT_EQ(WorkOf(*context, [&] { return context->SeedRandom({.seed = 1}); }), 0u);
  const auto dropout = MakeDropout(*context, {.input = {.shape = {4}}, .rate = 0.5f}).value();
  EXPECT_EQ(WorkOf(*context, [&] { return context->SeedRandom({.seed = 2}); }), 1u);
}

}  // namespace
}  // namespace cairn::kernels::cuda
