// A step of an embedding table on the ids of a batch, of which many repeat: by optimizer, and on two threads.
//
//   row_step_bench [--rows=8388608] [--dim=16] [--repeats=9]
//
// update: merge the repeated ids, find their rows in a RowStore, add up the gradients of each row, and update the rows.
// step: the rows are found and copied for each id, as a forward pass reads them, and then updated. The server merges
// the ids that the worker has merged, and updates the rows that the read found, as ps/table/embedding does.
//
// In ns of processor time for an id of a batch of 53,248 (2048 examples of 26), medians. Ids are uniform, or Zipf: rank
// r with a probability proportional to 1/r, so that the first rank has 4 % of the ids.
//
// two stores: each has half of the buckets and a thread, and a batch is divided by bucket. The rate of both, by the
// processor time of the slower thread, against that of one store with all rows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "embedding/optimizers/row_optimizer.h"
#include "embedding/store/row_store.h"
#include "embedding/store/unique_keys.h"
#include "tests/bench/bench_time.h"

namespace cairn::embedding {
namespace {

constexpr size_t kBatch = 2048 * 26;

struct Options {
  int64_t rows = int64_t{8} << 20;
  int dim = 16;
  int repeats = 9;
};

// The ids of a batch, below `rows`.
std::vector<int64_t> DrawIds(int64_t rows, bool zipf, std::mt19937_64& random) {
  std::vector<int64_t> ids(kBatch);
  std::uniform_real_distribution<double> uniform;
  for (int64_t& id : ids) {
    const double part = uniform(random), count = static_cast<double>(rows);
    const auto rank = static_cast<int64_t>(zipf ? std::pow(count, part) : count * part);
    id = static_cast<int64_t>(static_cast<uint64_t>(rank) * 2654435761 % static_cast<uint64_t>(rows));
  }
  return ids;
}

// A store with the rows of some buckets and their optimizer, for one thread.
class Part {
 public:
  Part(const Options& options, const optim::OptimizerConfig& config, BucketRange buckets)
      : dim_(static_cast<size_t>(options.dim)),
        optimizer_(MakeRowOptimizer(config, options.dim).value()),
        store_({.table = "bench",
                .shape = {.dim = options.dim, .slots = optimizer_->slots()},
                .buckets = buckets}),
        gradients_(kBatch * dim_, 0.01f),
        outputs_(kBatch * dim_) {
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < options.rows; ++key) {
      if (buckets.Contains(BucketOf(key))) keys.push_back(key);
      if (keys.size() == kBatch || key == options.rows - 1) {
        Find(keys);
        keys.clear();
      }
    }
  }

  void Update(absl::Span<const int64_t> ids) {
    unique_.Compute(ids);
    Find(unique_.keys());
    ApplyGradients(ids);
  }
  void Step(absl::Span<const int64_t> ids) {
    Forward(ids);
    of_server_.Compute(unique_.keys());
    ApplyGradients(ids);
  }

 private:
  void ApplyGradients(absl::Span<const int64_t> ids) {
    merged_.assign(unique_.keys().size() * dim_, 0);
    for (size_t i = 0; i < ids.size(); ++i) {
      float* const sum = &merged_[static_cast<size_t>(unique_.positions()[i]) * dim_];
      for (size_t j = 0; j < dim_; ++j) sum[j] += gradients_[i * dim_ + j];
    }
    optimizer_->Apply(absl::MakeSpan(rows_), merged_, {0.01f, ++step_});
  }
  void Forward(absl::Span<const int64_t> ids) {
    unique_.Compute(ids);
    Find(unique_.keys());
    for (size_t i = 0; i < ids.size(); ++i)
      std::copy_n(rows_[static_cast<size_t>(unique_.positions()[i])], dim_, &outputs_[i * dim_]);
  }
  void Find(absl::Span<const int64_t> keys) {
    rows_.resize(keys.size());
    if (!store_.FindOrInsert(keys, absl::MakeSpan(rows_), &inserted_).ok()) std::abort();
    for (const int32_t i : inserted_) {
      float* const row = rows_[static_cast<size_t>(i)];
      std::fill_n(row, dim_, 0.01f);
      optimizer_->InitSlots({row + dim_, static_cast<size_t>(optimizer_->slots())});
    }
  }

  const size_t dim_;
  const std::unique_ptr<const RowOptimizer> optimizer_;
  RowStore store_;
  UniqueKeys unique_, of_server_;
  int64_t step_ = 0;
  std::vector<float*> rows_;  // [unique key]
  std::vector<int32_t> inserted_;
  std::vector<float> merged_;           // [unique key] [dim]
  const std::vector<float> gradients_;  // [id] [dim]
  std::vector<float> outputs_;          // [id] [dim]
};

void MeasureSteps(const Options& options, const char* name) {
  Part part(options, {name, {}}, {});
  std::mt19937_64 random(1);
  for (const bool zipf : {false, true}) {
    std::vector<double> update, step;
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      const auto ids = DrawIds(options.rows, zipf, random), others = DrawIds(options.rows, zipf, random);
      double start = ThreadSeconds();
      part.Update(ids);
      update.push_back((ThreadSeconds() - start) * 1e9 / kBatch);
      start = ThreadSeconds();
      part.Step(others);
      step.push_back((ThreadSeconds() - start) * 1e9 / kBatch);
    }
    std::printf("%s, %s: update %.1f ns an id, step %.1f ns an id\n", name, zipf ? "Zipf" : "uniform",
                Median(update), Median(step));
    std::fflush(stdout);
  }
}

void MeasureTwoStores(const Options& options) {
  const optim::OptimizerConfig config = {"RowWiseAdagrad", {}};
  Part whole(options, config, {});
  std::array<std::unique_ptr<Part>, 2> halves;
  for (int i = 0; i < 2; ++i) halves[i] = std::make_unique<Part>(options, config, PartOf({}, i, 2));
  std::mt19937_64 random(2);
  for (const bool zipf : {false, true}) {
    std::vector<double> ratios;
    for (int repeat = 0; repeat < 2 * options.repeats; ++repeat) {
      const auto ids = DrawIds(options.rows, zipf, random);
      std::array<std::vector<int64_t>, 2> divided;
      for (const int64_t id : ids) divided[static_cast<size_t>(OwnerOf({}, BucketOf(id), 2))].push_back(id);
      const double start = ThreadSeconds();
      whole.Update(ids);
      const double alone = ThreadSeconds() - start;
      std::array<double, 2> seconds = {};
      const auto run = [&](size_t i) {
        const double begin = ThreadSeconds();
        halves[i]->Update(divided[i]);
        seconds[i] = ThreadSeconds() - begin;
      };
      std::thread other(run, 1);
      run(0);
      other.join();
      ratios.push_back(alone / std::max(seconds[0], seconds[1]));
    }
    std::printf("two stores on two threads, %s: %.2f x one\n", zipf ? "Zipf" : "uniform", Median(ratios));
  }
}

}  // namespace
}  // namespace cairn::embedding

int main(int argc, char** argv) {
  cairn::embedding::Options options;
  bool steps_only = false;
  CLI::App app("Nanoseconds for an id of a step of an embedding table");
  app.add_option("--rows", options.rows)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--dim", options.dim)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--repeats", options.repeats)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--steps_only", steps_only, "Without the two threads");
  CLI11_PARSE(app, argc, argv);
  for (const char* const name : {"RowWiseAdagrad", "Adagrad", "Adam"}) MeasureSteps(options, name);
  if (!steps_only) MeasureTwoStores(options);
  return 0;
}
