// The cost of one synchronous update on a server, compared with the memory bandwidth: all its stages over 64
// MiB of a variable, and a plain loop that reads and writes the same streams with one addition for each.
//
//   apply_bench --benchmark_min_time=1
//
// payload: GB/s of the variable; memory: GB/s of all the streams; of_floor: time against the plain loop's on
// as many threads, measured in alternation with it, median; 1.0 is as fast as memory goes, and the bar
// is 1.15. Below it is what writes past the caches, as an update of one gradient does: the plain loop has
// what it overwrites fetched first.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "common/memory/aligned_buffer.h"
#include "common/net/wire/frame.h"
#include "common/system/thread_pool.h"
#include "optim/simd/loop.h"
#include "optim/store/variable_store.h"
#include "optim/update.h"
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

// The floor: the same streams, one addition for each, over elements [begin, begin + count).
template <size_t kGradients, size_t kSlots>
void Touch(Streams& streams, int64_t begin, int64_t count) {
  std::array<const float*, kGradients> gradients;
  std::array<float*, kSlots> slots;
  for (size_t k = 0; k < kGradients; ++k) gradients[k] = streams.gradients[k].data() + begin;
  for (size_t k = 0; k < kSlots; ++k) slots[k] = streams.slots[k].data() + begin;
  const float* old_values = streams.old_values.data() + begin;
  float* new_values = streams.new_values.data() + begin;
  ForEachElement(optim::WidestIsa(), count, [=](int64_t i) CAIRN_INLINE_LAMBDA {
    float sum = old_values[i];
    for (size_t k = 0; k < kGradients; ++k) sum += gradients[k][i];
    for (size_t k = 0; k < kSlots; ++k) sum += slots[k][i] += gradients[0][i];
    new_values[i] = sum;
  });
}

template <size_t kGradients, size_t kSlots>
void BM_UpdateSlices(benchmark::State& state, const optim::OptimizerConfig& config, int threads) {
  ThreadPool thread_pool(threads);
  const auto optimizer = optim::MakeOptimizer(config).value();
  Streams streams(kGradients, kSlots);
  std::vector<optim::ContributedGradient> gradients;
  for (const AlignedBuffer& gradient : streams.gradients) gradients.push_back({gradient.data(), 32});
  std::vector<optim::Slot> slots;
  for (AlignedBuffer& slot : streams.slots) slots.push_back(optim::InPlace(slot.data()));
  const std::vector<optim::UpdateSlice> whole = {{0, kCount}};

  double apply_seconds = 0, floor_seconds = 0;
  std::vector<double> ratios;
  int64_t t = 0;
  for (auto _ : state) {
    auto start = std::chrono::steady_clock::now();
    ++t;
    UpdateWhole(*optimizer, {t, optimizer->learning_rate(t - 1)}, gradients, whole,
                {.count = kCount,
                 .old_values = streams.old_values.data(),
                 .slots = slots,
                 .new_values = streams.new_values.data(),
                 .streams = true},
                optim::WidestIsa(), &thread_pool);
    const double seconds = SecondsOf(start);
    state.SetIterationTime(seconds);
    apply_seconds += seconds;

    start = std::chrono::steady_clock::now();
    const int64_t each = kCount / threads;
    thread_pool.ParallelRun([&](int i) { Touch<kGradients, kSlots>(streams, i * each, each); });
    floor_seconds += SecondsOf(start);
    ratios.push_back(seconds / SecondsOf(start));
  }
  const double iterations = static_cast<double>(state.iterations());
  state.counters["payload_GB/s"] = iterations * kCount * sizeof(float) / apply_seconds * 1e-9;
  state.counters["memory_GB/s"] = iterations * streams.bytes() / apply_seconds * 1e-9;
  state.counters["floor_GB/s"] = iterations * streams.bytes() / floor_seconds * 1e-9;
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<int64_t>(ratios.size() / 2), ratios.end());
  state.counters["of_floor"] = ratios[ratios.size() / 2];
}

template <size_t kGradients, size_t kSlots>
void Register(const std::string& name, const optim::OptimizerConfig& config) {
  for (int threads : {1, 2}) {
    benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(),
                                 BM_UpdateSlices<kGradients, kSlots>, config, threads)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

// The same update of one gradient, made speculatively in chunks, as gradients arrive
// (VariableStore::ApplySpeculatively). of_whole: the median ratio of its time to that of an update at once,
// in alternation.
void BM_SpeculativeUpdate(benchmark::State& state, const optim::OptimizerConfig& config) {
  const auto optimizer = optim::MakeOptimizer(config).value();
  optim::VariableStore store({{"v", Shape({kCount}), 0, kCount, 0}}, optimizer.get());
  AlignedBuffer gradient(kCount);
  std::fill(gradient.span().begin(), gradient.span().end(), 0.01f);
  const optim::ContributedGradient one = {gradient.data(), 1};
  const optim::VariableStore::Mean mean = {.gradients = {&one, 1}};
  const int64_t piece = net::kMaxPayloadFloats;  // within a host
  const auto in_pieces = [&] {
    const auto start = std::chrono::steady_clock::now();
    store.BeginSpeculative();
    for (int64_t begin = 0; begin < kCount; begin += piece) {
      if (store.ApplySpeculatively(mean, begin, std::min(begin + piece, kCount)) == nullptr)
        state.SkipWithError("not finite");
    }
    store.PublishSpeculative();
    return SecondsOf(start);
  };
  const auto in_one_go = [&] {
    const auto start = std::chrono::steady_clock::now();
    if (!store.ApplyMean(mean).ok()) state.SkipWithError("not finite");
    return SecondsOf(start);
  };
  in_pieces();  // memory is touched for the first time
  in_one_go();
  std::vector<double> ratios;
  for (auto _ : state) {
    const double seconds = in_pieces();
    state.SetIterationTime(seconds);
    ratios.push_back(seconds / in_one_go());
  }
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<int64_t>(ratios.size() / 2), ratios.end());
  state.counters["of_whole"] = ratios[ratios.size() / 2];
}

void RegisterSpeculative(const std::string& name, const optim::OptimizerConfig& config) {
  benchmark::RegisterBenchmark((name + "/in pieces").c_str(), BM_SpeculativeUpdate, config)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace cairn::ps

int main(int argc, char** argv) {
  using cairn::ps::Register;
  const cairn::optim::OptimizerConfig sgd{"SGD", {}};
  const cairn::optim::OptimizerConfig momentum{"SGD", {{"momentum", 0.9}}};
  const cairn::optim::OptimizerConfig adam{"Adam", {}};
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
  for (const auto& [name, config] :
       {std::pair("sgd", sgd), std::pair("momentum", momentum), std::pair("adam", adam)}) {
    cairn::ps::RegisterSpeculative(name, config);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
