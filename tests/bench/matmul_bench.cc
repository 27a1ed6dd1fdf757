// A product of two 2048 x 2048 matrices, by the dense layer's op, against what the cores can do at most:
// fused multiply-adds on registers alone, measured in turn on the same threads.
//   matmul_bench [THREADS]
#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/core/status.h"
#include "kernels/cpu/device.h"
#include "kernels/ops.h"

namespace cairn {
namespace {

constexpr int64_t kSize = 2048;
constexpr int64_t kIterations = 4'000'000;
constexpr int kChains = 12;  // enough to hide the latency of two units

// Both return the number of floating point operations they made.
__attribute__((target("avx512f"))) double MultiplyAdd512(float* sink) {
  __m512 chains[kChains];
  for (__m512& chain : chains) chain = _mm512_set1_ps(0.5f);
  const __m512 factor = _mm512_set1_ps(0.999f), addend = _mm512_set1_ps(1e-3f);
  for (int64_t i = 0; i < kIterations; ++i) {
    for (__m512& chain : chains) chain = _mm512_fmadd_ps(chain, factor, addend);
  }
  for (__m512& chain : chains) *sink += _mm512_cvtss_f32(chain);
  return 2.0 * 16 * kChains * kIterations;
}

__attribute__((target("avx2,fma"))) double MultiplyAdd256(float* sink) {
  __m256 chains[kChains];
  for (__m256& chain : chains) chain = _mm256_set1_ps(0.5f);
  const __m256 factor = _mm256_set1_ps(0.999f), addend = _mm256_set1_ps(1e-3f);
  for (int64_t i = 0; i < kIterations; ++i) {
    for (__m256& chain : chains) chain = _mm256_fmadd_ps(chain, factor, addend);
  }
  for (__m256& chain : chains) *sink += _mm256_cvtss_f32(chain);
  return 2.0 * 8 * kChains * kIterations;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Floating point operations per second.
double Peak(int threads) {
  double operations = 0;
  float sink = 0;
  const double start = Now();
#pragma omp parallel for num_threads(threads) reduction(+ : operations, sink)
  for (int thread = 0; thread < threads; ++thread) {
    operations += __builtin_cpu_supports("avx512f") ? MultiplyAdd512(&sink) : MultiplyAdd256(&sink);
  }
  const double seconds = Now() - start;
  return sink == 0 ? 0 : operations / seconds;  // the sum is used, so it is computed
}

absl::Status Run(int threads) {
  CAIRN_ASSIGN_OR_RETURN(const auto device, kernels::CreateCpuDevice(0, threads));
  CAIRN_ASSIGN_OR_RETURN(
      const auto op,
      device->ops().MakeDense({.input = {.shape = {kSize, kSize}}, .units = kSize, .use_bias = false}));
  CAIRN_ASSIGN_OR_RETURN(const auto a, device->Allocate(kSize * kSize, "a"));
  CAIRN_ASSIGN_OR_RETURN(const auto b, device->Allocate(kSize * kSize, "b"));
  CAIRN_ASSIGN_OR_RETURN(const auto c, device->Allocate(kSize * kSize, "c"));
  std::fill(a->data(), a->data() + kSize * kSize, 0.25f);
  std::fill(b->data(), b->data() + kSize * kSize, 0.5f);
  std::vector<double> ratios;
  double best = 0;
  for (int round = 0; round < 9; ++round) {
    const double peak = Peak(threads);
    const double start = Now();
    CAIRN_RETURN_IF_ERROR(op->Forward(a->data(), b->data(), nullptr, c->data()));
    const double rate = 2.0 * kSize * kSize * kSize / (Now() - start);
    if (round == 0) continue;  // touches its memory for the first time
    ratios.push_back(rate / peak);
    best = std::max(best, rate);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("%d threads: %.0f GFLOP/s at best, %.3f of the measured peak (%.3f to %.3f)\n", threads,
              best / 1e9, ratios[ratios.size() / 2], ratios.front(), ratios.back());
  return absl::OkStatus();
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  const absl::Status status = cairn::Run(argc > 1 ? std::atoi(argv[1]) : 1);
  if (!status.ok()) std::fprintf(stderr, "matmul_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
