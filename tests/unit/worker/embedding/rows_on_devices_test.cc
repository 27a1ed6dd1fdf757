// Steps whose rows are pooled on a device with its own memory, against those whose rows are pooled on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/core/random.h"
#include "common/memory/aligned_buffer.h"
#include "kernels/cpu/device.h"
#include "kernels/cuda/device.h"
#include "nn/replica/replica.h"
#include "tests/support/far_device.h"
#include "tests/unit/worker/embedding/fake_rows.h"
#include "worker/embedding/table_plan.h"
#include "worker/embedding/table_replica.h"

namespace cairn::worker {
namespace {

// Bags with weights and without, by each combiner, of tables with 3, 4, 5 and 16 columns, and a table that is looked up
// twice, next to a dense layer. The other outputs are the pooled rows, so their gradients have the same bits on every
// device.
constexpr char kBags[] = R"({"class_name": "Functional", "config": {"name": "m", "layers": [
  {"class_name": "InputLayer", "name": "ids", "inbound_nodes": [],
   "config": {"name": "ids", "batch_shape": [null, null], "dtype": "int64", "ragged": true}},
  {"class_name": "InputLayer", "name": "w", "inbound_nodes": [],
   "config": {"name": "w", "batch_shape": [null, null], "ragged": true}},
  {"class_name": "InputLayer", "name": "pair", "inbound_nodes": [],
   "config": {"name": "pair", "batch_shape": [null, 2], "dtype": "int64"}},
  {"class_name": "InputLayer", "name": "x", "inbound_nodes": [], "config": {"name": "x", "batch_shape": [null, 2]}},
  {"class_name": "Dense", "name": "dense", "config": {"name": "dense", "units": 2}, "inbound_nodes": [[["x", 0, 0, {}]]]},
  {"class_name": "EmbedReduce", "name": "sum", "inbound_nodes": [[["ids", 0, 0, {}], ["w", 0, 0, {}]]],
   "config": {"name": "sum", "input_dim": 50, "output_dim": 3, "combiner": "sum"}},
  {"class_name": "EmbedReduce", "name": "mean", "inbound_nodes": [[["ids", 0, 0, {}]], [["pair", 0, 0, {}]]],
   "config": {"name": "mean", "input_dim": 50, "output_dim": 16, "combiner": "mean"}},
  {"class_name": "EmbedReduce", "name": "sqrtn", "inbound_nodes": [[["ids", 0, 0, {}], ["w", 0, 0, {}]]],
   "config": {"name": "sqrtn", "input_dim": 50, "output_dim": 4, "combiner": "sqrtn"}},
  {"class_name": "Embedding", "name": "each", "inbound_nodes": [[["pair", 0, 0, {}]]],
   "config": {"name": "each", "input_dim": 50, "output_dim": 5}},
  {"class_name": "Flatten", "name": "flat", "config": {"name": "flat"}, "inbound_nodes": [[["each", 0, 0, {}]]]},
  {"class_name": "Concatenate", "name": "all", "config": {"name": "all"},
   "inbound_nodes": [[["sum", 0, 0, {}], ["mean", 0, 0, {}], ["mean", 1, 0, {}], ["sqrtn", 0, 0, {}],
                      ["flat", 0, 0, {}], ["dense", 0, 0, {}]]]}],
  "input_layers": [["ids", 0, 0], ["w", 0, 0], ["pair", 0, 0], ["x", 0, 0]], "output_layers": [["all", 0, 0]]}})";
constexpr size_t kOutputs = 3 + 16 + 16 + 4 + 2 * 5 + 2;

// A batch of kBags. Small ids are more frequent.
class BagExamples {
 public:
  BagExamples(int64_t count, uint64_t seed) : count_(count) {
    Random random(seed, "bags");
    const auto id = [&] { return static_cast<int64_t>(random.NextBelow(50) * random.NextBelow(50) / 50); };
    for (int64_t example = 0; example < count; ++example) {
      for (uint64_t ids = random.NextBelow(5); ids > 0; --ids) {
        ids_.push_back(id());
        weights_.push_back(random.NextUniform(-1, 2));
      }
      splits_.push_back(static_cast<int64_t>(ids_.size()));
      for (int i = 0; i < 2; ++i) {
        pairs_.push_back(id());
        numbers_.push_back(random.NextUniform());
      }
      for (size_t i = 0; i < kOutputs; ++i) targets_.push_back(random.NextUniform());
    }
  }
  nn::BatchView View() const {
    nn::BatchView batch = {.examples = count_, .targets = targets_};
    const auto ids = static_cast<int64_t>(ids_.size());
    batch.inputs.push_back({DType::kInt64, {ids}, ids_.data(), absl::MakeConstSpan(splits_)});
    batch.inputs.push_back({DType::kFloat32, {ids}, weights_.data(), absl::MakeConstSpan(splits_)});
    batch.inputs.push_back({.dtype = DType::kInt64, .shape = {count_, 2}, .data = pairs_.data()});
    batch.inputs.push_back(TensorView::OfFloats({count_, 2}, numbers_));
    return batch;
  }

 private:
  const int64_t count_;
  std::vector<int64_t> ids_, splits_ = {0}, pairs_;
  std::vector<float> weights_, numbers_, targets_;
};

using Rows = std::map<std::pair<int, int64_t>, std::vector<float>>;

// Trains the rows by gradient descent.
class RowTraining {
 public:
  explicit RowTraining(kernels::Device& device) : described_(*nn::Model::FromJson(kBags, "m.json")) {
    options_.embedding.tables = "all";
    options_.optimizer.name = "SGD";
    plan_.emplace(**PlanTables(options_, described_));
    without_tables_ = *nn::Replica::Create(
        plan_->model.model, nn::LossSpec{.kind = kernels::LossKind::kMeanSquaredError}, device);
    parameters_ = plan_->model.model.InitialParameters(1);
    // A device with its own memory records a step whose gradients are pinned.
    EXPECT_TRUE(without_tables_->Pin(gradients_.span()).ok());
  }
  ~RowTraining() { without_tables_->Unpin(); }

  // The loss of a step, or of an evaluation.
  double Step(const BagExamples& examples, bool training = true) {
    rows_.pushed.clear();
    const nn::BatchView batch = examples.View();
    TableReplica replica(*plan_, *without_tables_, rows_, {});
    const auto result =
        training ? replica.ForwardBackward(parameters_, batch, gradients_.span().first(parameters_.size()),
                                           [](int variable) { EXPECT_GE(variable, 0); })
                 : replica.Evaluate(parameters_, batch);
    EXPECT_EQ(result.status(), absl::OkStatus());
    if (!result.ok()) return 0;
    outputs_.clear();
    for (size_t i = 0; i < result->outputs.size(); ++i) {
      if (i % kOutputs < kOutputs - 2) outputs_.push_back(result->outputs[i]);
    }
    for (const auto& [key, gradient] : rows_.pushed) {
      std::vector<float>& row = rows_.Row(key.first, key.second, gradient.size());
      for (size_t i = 0; i < row.size(); ++i) row[i] -= 20 * gradient[i];
    }
    return result->sums.loss;
  }

  nn::Replica& without_tables() { return *without_tables_; }
  absl::Span<const float> parameters() const { return parameters_; }
  const Rows& pushed() const { return rows_.pushed; }
  // The pooled rows.
  const std::vector<float>& outputs() const { return outputs_; }

 private:
  TrainOptions options_;
  const nn::Model described_;
  std::optional<TablePlan> plan_;
  std::unique_ptr<nn::Replica> without_tables_;
  FakeRows rows_;
  std::vector<float> parameters_, outputs_;
  AlignedBuffer gradients_{1024};
};

struct FarKind {
  const char* name;
  std::unique_ptr<kernels::Device> (*create)();
};
std::ostream& operator<<(std::ostream& out, const FarKind& kind) {
  return out << kind.name;
}

class RowsOnDevices : public testing::TestWithParam<FarKind> {
 protected:
  const std::unique_ptr<kernels::Device> cpu_ = *kernels::CreateCpuDevice(0, 1), far_ = GetParam().create();
};

TEST_P(RowsOnDevices, ATrainedJobHasTheBitsOfTheCpu) {
  RowTraining on_cpu(*cpu_), on_device(*far_);
  ASSERT_FALSE(on_cpu.without_tables().pools_rows());
  ASSERT_TRUE(on_device.without_tables().pools_rows());
  uint64_t seed = 0;
  // Later batches of a size are steps of a recording, and larger batches need more memory.
  for (const int64_t count : {8, 8, 8, 3, 1, 400, 8, 400, 3}) {
    SCOPED_TRACE(seed);
    const BagExamples examples(count, ++seed);
    const double loss = on_cpu.Step(examples);
    EXPECT_NEAR(on_device.Step(examples), loss, 1e-6 * loss);
    ASSERT_EQ(on_device.pushed(), on_cpu.pushed());
    ASSERT_EQ(on_device.outputs(), on_cpu.outputs());
  }
  const BagExamples others(8, 99);
  on_cpu.Step(others, /*training=*/false);
  on_device.Step(others, /*training=*/false);
  EXPECT_EQ(on_device.outputs(), on_cpu.outputs());
  EXPECT_TRUE(on_device.pushed().empty());
  EXPECT_NEAR(on_device.Step(others), on_cpu.Step(others), 1e-3) << "an evaluation changes nothing";
  EXPECT_EQ(on_device.pushed(), on_cpu.pushed());
}

INSTANTIATE_TEST_SUITE_P(
    , RowsOnDevices,
    testing::Values(
        FarKind{"far_cpu",
                []() -> std::unique_ptr<kernels::Device> { return std::make_unique<kernels::FarDevice>(); }},
        FarKind{
            "cuda_on_cpu",
            [] { return kernels::cuda::CreateDevice({.precision = kernels::Precision::kFloat32}).value(); }}),
    testing::PrintToStringParamName());

TEST(RowsOnDevice, UniqueRowsAreCopiedOnceThroughPinnedMemory) {
  kernels::FarDevice far;
  RowTraining run(far);
  run.Step(BagExamples(400, 1));
  const int64_t up = far.bytes_up_pinned(), down = far.bytes_down();
  run.Step(BagExamples(400, 1));
  int64_t rows = 0;
  for (const auto& [key, gradient] : run.pushed()) rows += static_cast<int64_t>(gradient.size()) * 4;
  const int64_t of_rows_up = far.bytes_up_pinned() - up, of_rows_down = far.bytes_down() - down;
  const int64_t others = (400 * int64_t{kOutputs} + 6) * 4;  // outputs and gradients of the dense layer
  EXPECT_GE(of_rows_down, rows + others);
  EXPECT_LE(of_rows_down, rows + others + 4 * 12) << "the gradients of unique rows, up to their alignment";
  // 3 lookups of 2 ids on average, 2 of 2 ids: each id has a place, a use, and the weight of both.
  constexpr int64_t kPositions = 400 * (3 * 2 + 2 * 2), kSplits = 400 * (4 + 2);
  EXPECT_GT(of_rows_up, rows);
  EXPECT_LE(of_rows_up, rows + 4 * (kPositions * 4 * 11 / 10 + kSplits + 1000)) << "not the pooled rows";
}

TEST(RowsOnDevice, ADeviceThatComputesInHostMemoryRefusesBags) {
  const auto cpu = *kernels::CreateCpuDevice(0, 1);
  RowTraining run(*cpu);
  const BagExamples examples(1, 1);
  const nn::RowBags bags;
  nn::BatchView batch = examples.View();
  batch.inputs.erase(batch.inputs.begin(), batch.inputs.begin() + 3);
  for (const int64_t width : {3, 16, 16, 4, 10}) {
    batch.inputs.push_back({.dtype = DType::kFloat32, .shape = {1, width}, .data = nullptr});
  }
  batch.row_bags = &bags;
  EXPECT_EQ(run.without_tables().Evaluate(run.parameters(), batch).status().message(),
            "/cpu:0 takes pooled rows, and no row_bags");
}

}  // namespace
}  // namespace cairn::worker
