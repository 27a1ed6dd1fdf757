// Kernels run here as on a GPU, and faults that would hang a GPU or corrupt its memory are found.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cuda/blocks/launch.h"
#include "kernels/cuda/runtime/handles.h"

namespace cairn::cuda_on_cpu {
namespace {

__global__ void WriteIndex(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[i] += static_cast<int>(i);
}

TEST(CudaOnCpu, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> out(2 * 3 * 2 * 4 * 5 * 2), expected(out.size());
  std::iota(expected.begin(), expected.end(), 0);
  ASSERT_TRUE(CAIRN_LAUNCH(WriteIndex, dim3(2, 3, 2), dim3(4, 5, 2), 0, nullptr, out.data()).ok());
  EXPECT_EQ(out, expected);
}

// Each block reverses its part, through shared memory of both kinds.
__global__ void Reverse(float* values) {
  CAIRN_DYNAMIC_SHARED(float, there);
  __shared__ float back[96];
  const unsigned i = threadIdx.x, last = blockDim.x - 1;
  there[i] = values[blockIdx.x * blockDim.x + i];
  __syncthreads();
  back[i] = there[last - i];
  __syncthreads();
  values[blockIdx.x * blockDim.x + last - i] = back[last - i];
}

TEST(CudaOnCpu, AWriteBeforeABarrierIsReadAfterIt) {
  std::vector<float> values(192), expected;
  std::iota(values.begin(), values.end(), 0.0f);
  for (int block = 0; block < 2; ++block) {
    for (int i = 95; i >= 0; --i) expected.push_back(static_cast<float>(block * 96 + i));
  }
  ASSERT_TRUE(CAIRN_LAUNCH(Reverse, 2, 96, 96 * sizeof(float), nullptr, values.data()).ok());
  EXPECT_EQ(values, expected);
}

__global__ void ReadUnwritten(float* out) {
  CAIRN_DYNAMIC_SHARED(float, shared);
  out[blockIdx.x] = shared[0];
  shared[0] = 1;
}

TEST(CudaOnCpu, EveryBlockBeginsWithSharedMemoryFullOfNaN) {
  std::vector<float> out(2);
  ASSERT_TRUE(CAIRN_LAUNCH(ReadUnwritten, 2, 1, sizeof(float), nullptr, out.data()).ok());
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
}

// Sums of warps by halving, sums of pairs of lanes, the last lane's value, and who is even.
__global__ void Shuffles(int* down, int* by_xor, int* last, unsigned* even) {
  const int value = static_cast<int>(threadIdx.x);
  int sum = value;
  for (unsigned delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
  down[threadIdx.x] = sum;
  by_xor[threadIdx.x] = value + __shfl_xor_sync(~0u, value, 1);
  last[threadIdx.x] = __shfl_sync(~0u, value, 7, 8);
  even[threadIdx.x] = __ballot_sync(~0u, value % 2 == 0);
}

TEST(CudaOnCpu, LanesExchangeValues) {
  std::vector<int> down(64), by_xor(64), last(64);
  std::vector<unsigned> even(64);
  ASSERT_TRUE(
      CAIRN_LAUNCH(Shuffles, 1, 64, 0, nullptr, down.data(), by_xor.data(), last.data(), even.data()).ok());
  EXPECT_EQ(down[0], 31 * 16);
  EXPECT_EQ(down[32], 31 * 16 + 32 * 32);
  EXPECT_EQ(by_xor[5], 5 + 4);
  EXPECT_EQ(last[3], 7);
  EXPECT_EQ(last[42], 47);
  EXPECT_EQ(even[63], 0x55555555u);
}

__global__ void HalvesOfAWarp(int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x < 16) value += __shfl_xor_sync(mask, value, 1);
  out[threadIdx.x] = __shfl_xor_sync(mask, value, 8);
}

TEST(CudaOnCpu, HalvesOfAWarpSynchroniseSeparately) {
  std::vector<int> out(32);
  ASSERT_TRUE(CAIRN_LAUNCH(HalvesOfAWarp, 1, 32, 0, nullptr, out.data()).ok());
  EXPECT_EQ(out[0], 8 + 9);
  EXPECT_EQ(out[16], 24);
}

__global__ void BarrierOfSome() {
  if (threadIdx.x < 10) __syncthreads();
}
__global__ void ShuffleOfSome() {
  if (threadIdx.x < 10) __syncwarp();
}
__global__ void MaskOfOthers() {
  __syncwarp(2);
}

TEST(CudaOnCpuDeathTest, ABarrierThatOnlyPartOfTheBlockReachesIsFatal) {
  EXPECT_DEATH(CAIRN_LAUNCH(BarrierOfSome, 1, 64, 0, nullptr).IgnoreError(), "only part of the block");
}

TEST(CudaOnCpuDeathTest, LanesThatWaitForAbsentLanesAreFatal) {
  EXPECT_DEATH(CAIRN_LAUNCH(ShuffleOfSome, 1, 32, 0, nullptr).IgnoreError(), "do not come");
}

TEST(CudaOnCpuDeathTest, AMaskWithoutTheLaneItselfIsFatal) {
  EXPECT_DEATH(CAIRN_LAUNCH(MaskOfOthers, 1, 1, 0, nullptr).IgnoreError(), "without itself");
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void WritePastShared() {
  CAIRN_DYNAMIC_SHARED(float, shared);
  __syncthreads();
  shared[threadIdx.x] = 1;
}

TEST(CudaOnCpuDeathTest, AddressSanitizerSeesAWritePastSharedMemory) {
  EXPECT_DEATH(CAIRN_LAUNCH(WritePastShared, 1, 32, 31 * sizeof(float), nullptr).IgnoreError(),
               "heap-buffer-overflow");
}
#endif

TEST(CudaOnCpu, LaunchesThatAGpuRefusesFail) {
  EXPECT_FALSE(CAIRN_LAUNCH(BarrierOfSome, 0, 32, 0, nullptr).ok());
  EXPECT_FALSE(CAIRN_LAUNCH(BarrierOfSome, dim3(1, 65536), 32, 0, nullptr).ok());
  EXPECT_FALSE(CAIRN_LAUNCH(BarrierOfSome, 1, 1025, 0, nullptr).ok());
  EXPECT_FALSE(CAIRN_LAUNCH(BarrierOfSome, 1, 32, 49 << 10, nullptr).ok());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

__global__ void Increment(int* value) {
  ++*value;
}

TEST(CudaOnCpu, CapturedWorkRunsOnlyWithItsGraph) {
  using kernels::cuda::Event, kernels::cuda::Graph, kernels::cuda::GraphExec, kernels::cuda::Stream;
  Stream stream = kernels::cuda::MakeStream().value(), other = kernels::cuda::MakeStream().value();
  Event event = kernels::cuda::MakeEvent().value();
  int value = 0, copy = 0;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_TRUE(CAIRN_LAUNCH(Increment, 1, 1, 0, stream.get(), &value).ok());
  EXPECT_EQ(cudaEventRecord(event.get(), stream.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other.get(), event.get(), 0), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(&copy, &value, sizeof(copy), cudaMemcpyDeviceToHost, other.get()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaErrorStreamCaptureUnsupported);
  Graph graph;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), graph.out()), cudaSuccess);
  GraphExec exec;
  ASSERT_EQ(cudaGraphInstantiate(exec.out(), graph.get(), 0), cudaSuccess);
  EXPECT_EQ(value, 0);
  for (int run = 1; run <= 2; ++run) {
    ASSERT_EQ(cudaGraphLaunch(exec.get(), stream.get()), cudaSuccess);
    EXPECT_EQ(copy, run);
  }
}

TEST(CudaOnCpu, SixteenBitConversionsRoundToNearestEven) {
  const float ulp = std::exp2(-7.0f);  // of bfloat16 at 1
  EXPECT_EQ(__bfloat162float(__float2bfloat16(1 + 0.49f * ulp)), 1);
  EXPECT_EQ(__bfloat162float(__float2bfloat16(1 + 0.5f * ulp)), 1);
  EXPECT_EQ(__bfloat162float(__float2bfloat16(1 + 1.5f * ulp)), 1 + 2 * ulp);
  const float half_ulp = std::exp2(-10.0f);
  EXPECT_EQ(__half2float(__float2half(1 + 0.5f * half_ulp)), 1);
  EXPECT_EQ(__half2float(__float2half(1 + 1.5f * half_ulp)), 1 + 2 * half_ulp);
  EXPECT_EQ(__half2float(__float2half(65520)), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(__bfloat162float(__float2bfloat16(std::nanf("")))));
}

}  // namespace
}  // namespace cairn::cuda_on_cpu
