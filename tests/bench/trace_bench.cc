// The cost of a timeline to the thread that records: nanoseconds for a slice that is recorded, and for one
// that is not, with two readings of the clock. Reports the best of several rounds, which other load on the
// machine affects least.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "common/trace/trace.h"

namespace cairn {
namespace {

constexpr int kSlices = 50'000, kRounds = 40;

double NanosPerSlice(TraceRecorder* trace) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSlices; ++i) const TraceSpan span(trace, TraceLane::kStep, "step");
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count() / kSlices);
  }
  return best;
}

void Run() {
  TraceRecorder wanted("worker/0"), later("worker/1", {.first = 1'000'000});
  std::printf("wanted %.1f ns, not wanted %.1f ns, no recorder %.1f ns\n", NanosPerSlice(&wanted),
              NanosPerSlice(&later), NanosPerSlice(nullptr));
}

}  // namespace
}  // namespace cairn

int main() {
  cairn::Run();
}
