// What one synchronous update costs a server, beside what the memory allows: all its stages over 64 MiB of a
// variable, and a plain loop that reads and writes the same streams with one addition for each.
//
//   apply_bench --benchmark_min_time=1
//
// payload: GB/s of the variable; memory: GB/s of all the streams; of_floor: memory against the plain loop's,
// measured in alternation with it; 1.0 is as fast as memory goes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "common/core/aligned_buffer.h"
#include "ps/optim/loop.h"
#include "ps/optim/update.h"
#include "tests/support/whole_update.h"

namespace cairn::ps {
namespace {

constexpr int64_t kCount = (int64_t{64} << 20) / sizeof(float);

double SecondsOf(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Streams {
  std::vector<AlignedBuffer> gradients;
  std::vector<AlignedBuffer> slots;
  AlignedBuffer old_values{kCount};
  AlignedBuffer new_values{kCount};

  Streams(int num_gradients, size_t num_slots) {
    for (int i = 0; i < num_gradients; ++i) gradients.emplace_back(kCount);
    for (size_t i = 0; i < num_slots; ++i) slots.emplace_back(kCount);
    for (AlignedBuffer& gradient : gradients)
      std::fill(gradient.span().begin(), gradient.span().end(), 0.01f);
  }

  // Gradients and old values are read, slots read and written, new values written (and first fetched by the
  // cache, which this does not count).
  double bytes() const {
    return static_cast<double>(gradients.size() + 2 * slots.size() + 2) * sizeof(float) * kCount;
  }
};

// The floor: the same streams, one addition for each.
template <size_t kGradients, size_t kSlots>
void Touch(Streams& streams) {
  std::array<const float*, kGradients> gradients;
  std::array<float*, kSlots> slots;
  for (size_t k = 0; k < kGradients; ++k) gradients[k] = streams.gradients[k].data();
  for (size_t k = 0; k < kSlots; ++k) slots[k] = streams.slots[k].data();
  const float* old_values = streams.old_values.data();
  float* new_values = streams.new_values.data();
  ForEachElement(WidestIsa(), kCount, [=](int64_t i) CAIRN_INLINE_LAMBDA {
    float sum = old_values[i];
    for (size_t k = 0; k < kGradients; ++k) sum += gradients[k][i];
    for (size_t k = 0; k < kSlots; ++k) sum += slots[k][i] += gradients[0][i];
    new_values[i] = sum;
  });
}

template <size_t kGradients, size_t kSlots>
void BM_UpdateParts(benchmark::State& state, const OptimizerConfig& config) {
  const auto optimizer = MakeOptimizer(config).value();
  Streams streams(kGradients, kSlots);
  std::vector<WeightedGradient> gradients;
  for (const AlignedBuffer& gradient : streams.gradients) gradients.push_back({gradient.data(), 32});
  std::vector<float*> slots;
  for (AlignedBuffer& slot : streams.slots) slots.push_back(slot.data());
  const std::vector<UpdatePart> whole = {{0, kCount}};

  double apply_seconds = 0, floor_seconds = 0;
  int64_t t = 0;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    ++t;
    UpdateWhole(*optimizer, {t, optimizer->learning_rate(t - 1)}, gradients, whole,
                {kCount, streams.old_values.data(), slots, streams.new_values.data()});
    const double seconds = SecondsOf(start);
    state.SetIterationTime(seconds);
    apply_seconds += seconds;

    start = std::chrono::steady_clock::now();
    Touch<kGradients, kSlots>(streams);
    floor_seconds += SecondsOf(start);
  }
  const double iterations = static_cast<double>(state.iterations());
  state.counters["payload_GB/s"] = iterations * kCount * sizeof(float) / apply_seconds * 1e-9;
  state.counters["memory_GB/s"] = iterations * streams.bytes() / apply_seconds * 1e-9;
  state.counters["floor_GB/s"] = iterations * streams.bytes() / floor_seconds * 1e-9;
  state.counters["of_floor"] = floor_seconds / apply_seconds;
}

template <size_t kGradients, size_t kSlots>
void Register(const char* name, const OptimizerConfig& config) {
  benchmark::RegisterBenchmark(name, BM_UpdateParts<kGradients, kSlots>, config)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace cairn::ps

int main(int argc, char** argv) {
  using cairn::ps::Register;
  const cairn::ps::OptimizerConfig sgd{"SGD", {}};
  const cairn::ps::OptimizerConfig momentum{"SGD", {{"momentum", 0.9}}};
  const cairn::ps::OptimizerConfig adam{"Adam", {}};
  Register<1, 0>("sgd/contributors:1", sgd);
  Register<4, 0>("sgd/contributors:4", sgd);
  Register<1, 1>("momentum/contributors:1", momentum);
  Register<4, 1>("momentum/contributors:4", momentum);
  Register<1, 2>("adam/contributors:1", adam);
  Register<4, 2>("adam/contributors:4", adam);
  Register<4, 1>("rmsprop/contributors:4", {"RMSprop", {}});
  Register<4, 1>("lion/contributors:4", {"Lion", {}});
  Register<4, 2>("adam, clipvalue and decay/contributors:4", {"AdamW", {{"clipvalue", 1}}});
  Register<4, 2>("adam, clipnorm/contributors:4", {"Adam", {{"clipnorm", 1}}});
  Register<4, 2>("lamb/contributors:4", {"Lamb", {}});
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
