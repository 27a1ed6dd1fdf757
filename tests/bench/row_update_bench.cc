// The cost of updating rows of an embedding table at random places in memory, as a server does, by optimizer, and of
// the first values of a row.
//
//   row_update_bench [--rows=4194304] [--ids=17637] [--dim=16] [--repeats=15]
//
// Each line: ns of processor time for a unique id, of the optimizer and of a loop that only reads and writes the cache
// lines of the same rows in the same order, prefetched as far ahead. The two alternate, with new ids each time;
// medians. The last column is their ratio: 1.0 is as fast as memory goes.
#include <sys/mman.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/core/random.h"
#include "embedding/initializers/row_initializer.h"
#include "embedding/optimizers/row_optimizer.h"
#include "embedding/simd/row_loop.h"

namespace cairn::embedding {
namespace {

struct Options {
  int64_t rows = int64_t{4} << 20;
  int64_t ids = 17637;  // in an update: unique ids of 2048 examples of Criteo's shape
  int dim = 16;
  int repeats = 15;
};

// Rows one after another on huge pages, where the machine has them.
class Arena {
 public:
  Arena(int64_t rows, int64_t floats)
      : floats_(floats), bytes_(static_cast<size_t>(rows * floats) * sizeof(float)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    madvise(memory, bytes_, MADV_HUGEPAGE);
    floats_of_rows_ = static_cast<float*>(memory);
  }
  ~Arena() { munmap(floats_of_rows_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  float* row(int64_t index) const { return floats_of_rows_ + index * floats_; }

 private:
  const int64_t floats_;
  const size_t bytes_;
  float* floats_of_rows_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Processor time of this thread, so that other load costs no time but that of shared caches.
double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double NanosecondsOf(int64_t count, double start) {
  return (ProcessorSeconds() - start) * 1e9 / static_cast<double>(count);
}

// `count` different rows in random order.
std::vector<float*> RandomRows(const Arena& arena, int64_t rows, int64_t count, Random& random) {
  std::vector<float*> chosen;
  std::vector<bool> seen(static_cast<size_t>(rows));
  while (static_cast<int64_t>(chosen.size()) < count) {
    const auto row = static_cast<int64_t>(random.NextBelow(static_cast<uint32_t>(rows)));
    if (seen[static_cast<size_t>(row)]) continue;
    seen[static_cast<size_t>(row)] = true;
    chosen.push_back(arena.row(row));
  }
  return chosen;
}

// One float of each cache line.
void Touch(absl::Span<float* const> rows, int64_t floats) {
  const RowBatch batch{rows, nullptr};
  ForEachRow(optim::WidestIsa(), batch, 0, floats, [=](float* row, const float*) CAIRN_INLINE_LAMBDA {
    for (int64_t f = 0; f < floats; f += 16) row[f] = row[f] + 1;
    if ((floats - 1) % 16 != 0) row[floats - 1] = row[floats - 1] + 1;
  });
}

void MeasureOptimizer(const Options& options, const char* label, const optim::OptimizerConfig& config) {
  const int64_t rows = options.rows, ids = options.ids;
  const int dim = options.dim;
  const auto optimizer = MakeRowOptimizer(config, dim).value();
  const int64_t floats = dim + optimizer->slots();
  const Arena arena(rows, floats);
  const RowInitializer initializer({.kind = RowDistribution::Kind::kUniform, .spread = 0.05}, 1, "table");
  for (int64_t row = 0; row < rows; ++row) {
    initializer.Fill(row, {arena.row(row), static_cast<size_t>(dim)});
    optimizer->InitSlots({arena.row(row) + dim, static_cast<size_t>(floats - dim)});
  }
  Random random(1, "ids");
  std::vector<float> gradients(static_cast<size_t>(ids * dim));
  for (float& g : gradients) g = random.NextUniform(-0.1f, 0.1f);
  std::vector<double> update, touch;
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    const auto touched = RandomRows(arena, rows, ids, random);
    const auto updated = RandomRows(arena, rows, ids, random);
    double start = ProcessorSeconds();
    Touch(touched, floats);
    touch.push_back(NanosecondsOf(ids, start));
    start = ProcessorSeconds();
    optimizer->Apply(updated, gradients, {0.01f, repeat + 1});
    update.push_back(NanosecondsOf(ids, start));
  }
  const double ours = Median(update), limit = Median(touch);
  std::printf("%-16s %3lld floats a row: %6.1f ns, touch %6.1f ns, ratio %.2f\n", label,
              static_cast<long long>(floats), ours, limit, ours / limit);
}

void MeasureInitializer(int columns, const char* label, RowDistribution::Kind kind) {
  constexpr int64_t kRows = 1024;
  const auto dim = static_cast<size_t>(columns);
  std::vector<float> rows(kRows * dim);
  const RowInitializer initializer({.kind = kind, .spread = 0.05}, 1, "table");
  std::vector<double> fill;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const double start = ProcessorSeconds();
    for (int64_t row = 0; row < kRows; ++row) {
      initializer.Fill(row, absl::MakeSpan(rows).subspan(static_cast<size_t>(row) * dim, dim));
    }
    fill.push_back(NanosecondsOf(kRows, start));
  }
  std::printf("%-16s first values of a row: %.1f ns\n", label, Median(fill));
}

void MeasureAll(const Options& options) {
  MeasureOptimizer(options, "SGD", {"SGD", {}});
  MeasureOptimizer(options, "RowWiseAdagrad", {"RowWiseAdagrad", {}});
  MeasureOptimizer(options, "Adagrad", {"Adagrad", {}});
  MeasureOptimizer(options, "Adam", {"Adam", {}});
  MeasureOptimizer(options, "Adam, catch_up", {"Adam", {{"catch_up", 1}}});
  MeasureOptimizer(options, "Ftrl", {"Ftrl", {{"l1_regularization_strength", 1e-3}}});
  MeasureOptimizer(options, "RMSprop", {"RMSprop", {}});
  MeasureInitializer(options.dim, "uniform", RowDistribution::Kind::kUniform);
  MeasureInitializer(options.dim, "normal", RowDistribution::Kind::kNormal);
  MeasureInitializer(options.dim, "truncated normal", RowDistribution::Kind::kTruncatedNormal);
}

}  // namespace
}  // namespace cairn::embedding

int main(int argc, char** argv) {
  cairn::embedding::Options options;
  CLI::App app(
      "Nanoseconds of updating rows of an embedding table, against those of touching their cache lines");
  app.add_option("--rows", options.rows, "Rows of the table")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--ids", options.ids, "Unique ids of an update")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dim", options.dim, "Columns of a row")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--repeats", options.repeats)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.ids > options.rows) {
    std::fprintf(stderr, "--ids %lld is above --rows %lld\n", static_cast<long long>(options.ids),
                 static_cast<long long>(options.rows));
    return 2;
  }
  cairn::embedding::MeasureAll(options);
}
