// The store of embedding rows (embedding/store/row_store.h) against memory: lookups, insertion from empty, memory, two
// threads, and the merging of repeated keys.
//
//   row_store_bench --rows 8400000 --dim 16 --slots 0 [--insert_only | --lookup_only]
//
// limit: for each row two independent random cache lines, prefetched 16 rows ahead, from two areas on huge pages with
// the size of the rows and of 16 bytes a row; measured in alternation with the lookups, median of 5. Batches have
// 53,248 keys (2048 examples of 26), read in parts of 1024. Times are processor time of a thread; of two
// threads, the slower one's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "common/memory/aligned_buffer.h"
#include "common/system/process_usage.h"
#include "embedding/store/row_store.h"
#include "embedding/store/unique_keys.h"
#include "tests/bench/bench_time.h"

namespace cairn::embedding {
namespace {

constexpr size_t kBatch = 2048 * 26;
constexpr size_t kPart = 1024;
constexpr int kRepeats = 5;

// Inserts the keys 0 to rows - 1, sets all floats of their rows, and returns the seconds of each batch.
// `most_resident`: of the process meanwhile.
std::vector<double> Fill(RowStore& store, int64_t rows, int64_t* most_resident) {
  std::vector<double> seconds;
  std::vector<int64_t> keys(kBatch);
  std::vector<float*> found(kBatch);
  std::vector<int32_t> inserted;
  for (int64_t key = 0; key < rows;) {
    for (int64_t& each : keys) each = key++;
    const double start = ThreadSeconds();
    if (!store.FindOrInsert(keys, absl::MakeSpan(found), &inserted).ok()) std::abort();
    for (const int32_t i : inserted) std::fill_n(found[static_cast<size_t>(i)], store.shape().floats(), 1.f);
    seconds.push_back(ThreadSeconds() - start);
    *most_resident = std::max(*most_resident, UsageOfThisProcess().resident_bytes);
  }
  return seconds;
}

void Insert(RowStore& store, int64_t rows) {
  const int64_t before = UsageOfThisProcess().resident_bytes;
  int64_t most = 0;
  std::vector<double> seconds = Fill(store, rows, &most);
  double sum = 0;
  for (const double each : seconds) sum += each;
  const double median = Median(seconds), size = static_cast<double>(store.size());
  const double unit = size * (16 + 4 * store.shape().floats());
  const auto resident = static_cast<double>(UsageOfThisProcess().resident_bytes - before);
  std::printf("insert: %.1f ns a row; calls: median %.2f ms, longest %.2f ms = %.1f x\n", sum / size * 1e9,
              median * 1e3, *std::max_element(seconds.begin(), seconds.end()) * 1e3,
              *std::max_element(seconds.begin(), seconds.end()) / median);
  std::printf(
      "memory: %.1f bytes a row (rows %.1f, index %.1f; bar: 1.25): resident %.3f x, at most %.3f x\n",
      resident / size, static_cast<double>(store.memory().rows) / size,
      static_cast<double>(store.memory().index) / size, resident / unit,
      static_cast<double>(most - before) / unit);
}

// Reads a float of each cache line of the rows of random keys; returns seconds a row.
double LookUp(const RowStore& store, const std::vector<int64_t>& keys) {
  std::vector<float*> found(kPart);
  const int floats = store.shape().dim;
  float sum = 0;
  const double start = ThreadSeconds();
  for (size_t i = 0; i < keys.size(); i += kPart) {
    store.Find(absl::MakeConstSpan(keys).subspan(i, kPart), absl::MakeSpan(found));
    for (const float* row : found) {
      for (int f = 0; f < floats; f += 16) sum += row[f];
    }
  }
  const double seconds = (ThreadSeconds() - start) / static_cast<double>(keys.size());
  return sum == 1 ? 0 : seconds;
}

double ReadTwoLines(const AlignedBuffer& one, const AlignedBuffer& other,
                    const std::vector<int64_t>& random) {
  const auto lines = [](const AlignedBuffer& buffer) { return static_cast<uint64_t>(buffer.size() / 16); };
  std::vector<const float*> at;
  for (const int64_t key : random) {
    at.push_back(one.data() + HashKey(key) % lines(one) * 16);
    at.push_back(other.data() + HashKey(~key) % lines(other) * 16);
  }
  float sum = 0;
  const double start = ThreadSeconds();
  for (size_t i = 0; i < at.size(); i += 2) {
    if (i + 33 < at.size()) {
      __builtin_prefetch(at[i + 32]);
      __builtin_prefetch(at[i + 33]);
    }
    sum += *at[i] + *at[i + 1];
  }
  const double seconds = (ThreadSeconds() - start) / static_cast<double>(random.size());
  return sum == 1 ? 0 : seconds;
}

std::vector<int64_t> RandomKeys(int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> keys(20 * kBatch);
  for (int64_t& key : keys) key = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
  return keys;
}

void Lookups(const RowStore& store) {
  AlignedBuffer rows(store.size() * 16), index(store.size() * 4);
  std::vector<double> times, limits, ratios;
  for (int i = 0; i < kRepeats; ++i) {
    const std::vector<int64_t> keys = RandomKeys(store.size(), static_cast<uint64_t>(i));
    times.push_back(LookUp(store, keys));
    limits.push_back(ReadTwoLines(rows, index, keys));
    ratios.push_back(times.back() / limits.back());
  }
  std::printf("lookup: %.1f ns a row, limit %.1f ns: %.2f x (bar: 1.6)\n", Median(times) * 1e9,
              Median(limits) * 1e9, Median(ratios));
}

void TwoThreads(const RowStore& one, const RowStore& other) {
  std::vector<double> ratios;
  const std::vector<int64_t> keys = RandomKeys(one.size(), 1), others = RandomKeys(other.size(), 2);
  for (int i = 0; i < kRepeats; ++i) {
    const double alone = LookUp(one, keys);
    double first = 0, second = 0;
    std::thread thread([&] { second = LookUp(other, others); });
    first = LookUp(one, keys);
    thread.join();
    ratios.push_back(2 * alone / std::max(first, second));
  }
  std::printf("two threads, two stores: %.2f x the rate of one (bar: 1.7)\n", Median(ratios));
}

void MergeKeys(int64_t rows) {
  UniqueKeys unique;
  std::mt19937_64 random(3);
  for (const bool skewed : {false, true}) {
    std::vector<double> times;
    for (int i = 0; i < 20; ++i) {
      std::vector<int64_t> keys(kBatch);
      for (int64_t& key : keys) {
        const double part = std::uniform_real_distribution<double>()(random);
        key = static_cast<int64_t>(skewed ? std::pow(static_cast<double>(rows), part)
                                          : static_cast<double>(rows) * part);
      }
      const double start = ThreadSeconds();
      unique.Compute(keys);
      times.push_back((ThreadSeconds() - start) / kBatch);
    }
    std::printf("merging of %s keys: %.1f ns a key, %.0f %% distinct\n", skewed ? "Zipf" : "uniform",
                Median(times) * 1e9, 100. * static_cast<double>(unique.keys().size()) / kBatch);
  }
}

}  // namespace
}  // namespace cairn::embedding

int main(int argc, char** argv) {
  using namespace cairn::embedding;
  int64_t rows = 8'400'000;
  RowShape shape = {16, 0};
  bool insert_only = false, lookup_only = false;
  CLI::App app;
  app.add_option("--rows", rows)->check(CLI::PositiveNumber);
  app.add_option("--dim", shape.dim)->check(CLI::Range(1, RowStore::kMaxDim));
  app.add_option("--slots", shape.slots)->check(CLI::Range(0, 4096));
  app.add_flag("--insert_only", insert_only);
  app.add_flag("--lookup_only", lookup_only, "After the insertion");
  CLI11_PARSE(app, argc, argv);
  RowStore store({.table = "bench", .shape = shape, .buckets = {}});
  Insert(store, rows);
  if (insert_only) return 0;
  Lookups(store);
  if (lookup_only) return 0;
  MergeKeys(rows);
  RowStore other({.table = "other", .shape = shape, .buckets = {}});
  int64_t resident = 0;
  Fill(other, rows, &resident);
  TwoThreads(store, other);
  return 0;
}
