#include "optim/store/variable_store.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::optim {
namespace {

using ps::Sgd;
using ps::ToVector;
using ps::Vectors;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class VariableStoreTest : public testing::Test {
 protected:
  absl::Status Apply(const std::vector<float>& gradient) {
    const ContributedGradient weighted = {gradient.data(), 1};
    return store_.ApplyMean({.gradients = {&weighted, 1}});
  }
  const std::unique_ptr<Optimizer> sgd_ = Sgd(1);
  VariableStore store_{Vectors({{"a", 2}, {"b", 1}}), sgd_.get()};
};

TEST_F(VariableStoreTest, StartsAtZeroAndVersionZero) {
  EXPECT_EQ(store_.current().version, 0);
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(0, 0, 0));
}

TEST_F(VariableStoreTest, AReaderKeepsItsVersionDuringUpdates) {
  ASSERT_TRUE(Apply({1, 1, 1}).ok());
  const Values held = store_.current();
  for (int update = 0; update < 100; ++update) ASSERT_TRUE(Apply({1, 1, 1}).ok());
  EXPECT_EQ(held.version, 1);
  EXPECT_THAT(ToVector(held), Each(-1));
  EXPECT_EQ(store_.current().version, 101);
  EXPECT_THAT(ToVector(store_.current()), Each(-101));
}

TEST_F(VariableStoreTest, AWriteReplacesItsRunsAndKeepsTheVersion) {
  ASSERT_TRUE(Apply({1, 1, 1}).ok());
  const Values before = store_.current();
  AlignedBuffer data(3);
  data.data()[1] = 5;
  const VariableStore::Run run = {1, 2};
  store_.Write(data, {&run, 1});
  EXPECT_EQ(store_.current().version, 1);
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(-1, 5, -1));
  EXPECT_THAT(ToVector(before), Each(-1)) << "earlier readers keep their values";
}

TEST_F(VariableStoreTest, AGroupHasARateOfItsOwn) {
  store_.AssignGroups({-1, 0});
  ASSERT_TRUE(store_.SetGroups({{.learning_rate = 0.5f}}).ok());
  ASSERT_TRUE(Apply({1, 1, 1}).ok());
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(-1, -1, -0.5f));
  store_.SetLearningRate(2);
  ASSERT_TRUE(Apply({1, 1, 1}).ok());
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(-3, -3, -1));
  ASSERT_TRUE(store_.SetGroups({{}}).ok());
  ASSERT_TRUE(Apply({1, 1, 1}).ok());
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(-5, -5, -3));
}

TEST_F(VariableStoreTest, AGroupIsLeftUntouchedAlsoBySpeculativeUpdates) {
  store_.AssignGroups({0, 1});
  ASSERT_TRUE(store_.SetGroups({{.untouched = true}, {}}).ok());
  ASSERT_TRUE(Apply({1, std::numeric_limits<float>::quiet_NaN(), 1}).ok());
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(0, 0, -1));
  const std::vector<float> gradient = {1, 1, 1};
  const ContributedGradient weighted = {gradient.data(), 1};
  store_.BeginSpeculative();
  ASSERT_NE(store_.ApplySpeculatively({.gradients = {&weighted, 1}}, 0, 3), nullptr);
  store_.PublishSpeculative();
  EXPECT_THAT(ToVector(store_.current()), ElementsAre(0, 0, -2));
}

TEST_F(VariableStoreTest, ANonFiniteGradientNamesItsVariableAndPublishesNothing) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const absl::Status status = Apply({1, 1, bad});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'b' is not finite in the update to version 1"));
    EXPECT_EQ(store_.current().version, 0);
    EXPECT_THAT(ToVector(store_.current()), Each(0));
  }
}

TEST_F(VariableStoreTest, TheMeanIsWeightedByExamples) {
  const std::vector<float> one = {4, 4, 4}, three = {8, 8, 8};
  const ContributedGradient gradients[] = {{one.data(), 1}, {three.data(), 3}};
  ASSERT_TRUE(store_.ApplyMean({.gradients = gradients}).ok());
  EXPECT_THAT(ToVector(store_.current()), Each(-7));
}

absl::Status ApplyTo(VariableStore& store, const std::vector<float>& gradient, bool last = false) {
  const ContributedGradient weighted = {gradient.data(), 1};
  return store.ApplyMean({.gradients = {&weighted, 1}, .last = last});
}

TEST(VariableStoreSlices, MovingAveragesAndFrozenSlicesMayBeBetweenTrainedOnes) {
  std::vector<net::Slice> slices = Vectors({{"kernel", 1}, {"mean", 1}, {"frozen", 1}, {"bias", 1}});
  slices[1].moving_average_momentum = 0.75f;
  slices[2].moving_average_momentum = 1;
  const auto sgd = Sgd(1);
  VariableStore store(slices, sgd.get());
  AlignedBuffer initial(4);
  std::fill_n(initial.data(), 4, 8.0f);
  const VariableStore::Run everything = {0, 4};
  store.Write(initial, {&everything, 1});
  ASSERT_TRUE(ApplyTo(store, {1, 16, 100, 2}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(7, 10, 8, 6));
}

TEST(VariableStoreSlices, ANonFiniteStatisticNamesItsVariable) {
  std::vector<net::Slice> slices = Vectors({{"kernel", 2}, {"mean", 2}});
  slices[1].moving_average_momentum = 0.5f;
  const auto sgd = Sgd(1);
  VariableStore store(slices, sgd.get());
  const absl::Status status = ApplyTo(store, {1, 1, 1, std::numeric_limits<float>::infinity()});
  EXPECT_THAT(std::string(status.message()), HasSubstr("'mean' is not finite"));
}

// A job's optimizer and its stores, one per server. They exchange their sums here.
class Servers {
 public:
  Servers(const OptimizerConfig& config, std::vector<std::vector<net::Slice>> slices)
      : optimizer_(MakeOptimizer(config).value()) {
    for (auto& of_server : slices) {
      stores_.push_back(std::make_unique<VariableStore>(std::move(of_server), optimizer_.get()));
    }
  }
  VariableStore& store(size_t server) { return *stores_[server]; }
  void Write(size_t server, const std::vector<float>& values) {
    AlignedBuffer data(store(server).size());
    std::copy(values.begin(), values.end(), data.data());
    const VariableStore::Run everything = {0, store(server).size()};
    store(server).Write(data, {&everything, 1});
  }
  // The sums of everything so far. They show the order of the additions, which is lost when a norm is rounded
  // to float.
  const std::vector<VariableSquares>& sums() const { return sums_; }
  // gradients [server][element]
  void Step(const std::vector<std::vector<float>>& gradients) {
    VariableSquares known;
    for (Norms norms : optimizer_->norms()) {
      std::vector<SliceSquares> slices;
      for (size_t server = stores_.size(); server-- > 0;) {  // in another order, as they may arrive
        const ContributedGradient mean = {gradients[server].data(), 1};
        auto measured = store(server).Measure(norms, {.gradients = {&mean, 1}, .known = known}).value();
        for (SliceSquares& slice : measured) slices.push_back(std::move(slice));
      }
      known = AddUp(std::move(slices));
      sums_.push_back(known);
    }
    for (size_t server = 0; server < stores_.size(); ++server) {
      const ContributedGradient mean = {gradients[server].data(), 1};
      ASSERT_EQ(store(server).ApplyMean({.gradients = {&mean, 1}, .known = known}), absl::OkStatus());
    }
  }

 private:
  const std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::unique_ptr<VariableStore>> stores_;
  std::vector<VariableSquares> sums_;
};

const OptimizerConfig kClipped = {"SGD", {{"learning_rate", 1}, {"clipnorm", 5}}};

TEST(VariableStoreNorms, AreTakenOfEachVariable) {
  Servers servers(kClipped, {Vectors({{"a", 2}, {"b", 2}})});
  servers.Step({{3, 4, 6, 8}});
  EXPECT_THAT(ToVector(servers.store(0).current()), ElementsAre(-3, -4, -3, -4));
}

TEST(VariableStoreNorms, IgnoreMovingAverages) {
  std::vector<net::Slice> slices = Vectors({{"mean", 1}, {"a", 2}, {"frozen", 1}});
  slices[0].moving_average_momentum = 0.5f;
  slices[2].moving_average_momentum = 1;
  Servers servers({"SGD", {{"learning_rate", 1}, {"global_clipnorm", 5}}}, {slices});
  servers.Step({{100, 6, 8, 100}});
  EXPECT_THAT(ToVector(servers.store(0).current()), ElementsAre(50, -3, -4, 0));
}

TEST(VariableStoreNorms, AreTakenOfTheWholeOfASplitVariable) {
  const net::Slice top = {"a", Shape({2}), 0, 1, 0}, bottom = {"a", Shape({2}), 1, 2, 0};
  Servers servers(kClipped, {{bottom}, {top}});
  servers.Step({{8}, {6}});
  EXPECT_THAT(ToVector(servers.store(0).current()), ElementsAre(-4));
  EXPECT_THAT(ToVector(servers.store(1).current()), ElementsAre(-3));
}

TEST(VariableStoreNorms, ANonFiniteDirectionNamesItsVariableWhenMeasured) {
  const auto lamb = MakeOptimizer({"Lamb", {}}).value();
  VariableStore store(Vectors({{"a", 1}, {"b", 1}}), lamb.get());
  const std::vector<float> bad = {1, std::numeric_limits<float>::quiet_NaN()};
  const ContributedGradient mean = {bad.data(), 1};
  const auto sums = store.Measure(Norms::kLayer, {.gradients = {&mean, 1}});
  EXPECT_EQ(sums.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sums.status().message()),
              HasSubstr("'b' is not finite in the update to version 1"));
}

class EveryOptimizerOfNorms : public testing::TestWithParam<OptimizerConfig> {};
INSTANTIATE_TEST_SUITE_P(Norms, EveryOptimizerOfNorms,
                         testing::Values(OptimizerConfig{"Adam", {{"clipnorm", 0.1}}},
                                         OptimizerConfig{"SGD", {{"global_clipnorm", 0.1}}},
                                         OptimizerConfig{"Lamb", {{"weight_decay", 0.1}, {"use_ema", 1}}},
                                         OptimizerConfig{"Lamb",
                                                         {{"global_clipnorm", 0.1}, {"learning_rate", 0.1}}}),
                         [](const auto& tested) { return tested.param.name + absl::StrCat(tested.index); });

// 700 rows are 234 bands of 3 rows, the last one of 1 row: wherever they are divided, the sums have the
// same bits.
TEST_P(EveryOptimizerOfNorms, GivesTheSameBitsWhereverAVariableIsSplit) {
  const Shape shape({700, 5});
  constexpr int64_t kBand = 3, kRow = 5;
  ASSERT_EQ(net::RowsPerBand(shape), kBand);
  Random random(1, "variable_store_test");
  std::vector<float> values, gradient;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    values.push_back(random.NextNormal());
    gradient.push_back(random.NextNormal());
  }
  Servers whole(GetParam(), {{{"a", shape, 0, 700, 0}}});
  whole.Write(0, values);
  for (int step = 0; step < 3; ++step) whole.Step({gradient});
  const std::vector<float> expected = ToVector(whole.store(0).current());
  for (int64_t cut_band : {1, 100, 233}) {
    const int64_t cut = cut_band * kBand;
    const auto halves = [&](const std::vector<float>& all) {
      return std::vector<std::vector<float>>{{all.begin(), all.begin() + cut * kRow},
                                             {all.begin() + cut * kRow, all.end()}};
    };
    Servers split(GetParam(), {{{"a", shape, 0, cut, 0}}, {{"a", shape, cut, 700, 0}}});
    for (size_t server : {0u, 1u}) split.Write(server, halves(values)[server]);
    for (int step = 0; step < 3; ++step) split.Step(halves(gradient));
    EXPECT_EQ(split.sums(), whole.sums()) << "cut at row " << cut;
    EXPECT_EQ(ToVector(split.store(0).current()), halves(expected)[0]) << "cut at row " << cut;
    EXPECT_EQ(ToVector(split.store(1).current()), halves(expected)[1]) << "cut at row " << cut;
  }
}

TEST(VariableStoreUpdates, UseTheScheduledRateOfTheirVersion) {
  OptimizerConfig config = {"SGD", {}};
  config.schedule = {"PiecewiseConstantDecay", {}, {1}, {4, 1}};
  const auto sgd = MakeOptimizer(config).value();
  VariableStore store(Vectors({{"a", 1}}), sgd.get());
  for (float expected : {-4.0f, -8.0f, -9.0f}) {
    ASSERT_TRUE(ApplyTo(store, {1}).ok());
    EXPECT_THAT(ToVector(store.current()), ElementsAre(expected));
  }
}

TEST(VariableStoreUpdates, TheLastUpdateLeavesTheAverage) {
  const auto sgd =
      MakeOptimizer(
          {.name = "SGD", .hyperparameters = {{"learning_rate", 1}, {"use_ema", 1}, {"ema_momentum", 0.5}}})
          .value();
  VariableStore store(Vectors({{"a", 1}}), sgd.get());
  ASSERT_TRUE(ApplyTo(store, {2}).ok());
  ASSERT_TRUE(ApplyTo(store, {2}, /*last=*/true).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-3));
}

TEST(VariableStoreUpdates, TheAverageOfAnUntouchedGroupIsItsValue) {
  const auto sgd =
      MakeOptimizer(
          {.name = "SGD", .hyperparameters = {{"learning_rate", 1}, {"use_ema", 1}, {"ema_momentum", 0.5}}})
          .value();
  VariableStore store(Vectors({{"a", 1}, {"b", 1}}), sgd.get());
  AlignedBuffer values(2);
  values.data()[0] = values.data()[1] = 10;
  const VariableStore::Run run = {0, 2};
  store.Write(values, {&run, 1});
  store.AssignGroups({0, 1});
  ASSERT_TRUE(store.SetGroups({{.untouched = true}, {}}).ok());
  ASSERT_TRUE(ApplyTo(store, {2, 2}).ok());
  ASSERT_TRUE(ApplyTo(store, {2, 2}).ok());
  const auto average = [&store] { return store.CopySlots().value()->data()[0]; };
  EXPECT_EQ(average(), 10);
  store.EndHere();
  EXPECT_THAT(ToVector(store.current()), ElementsAre(10, 7));
}

std::unique_ptr<Optimizer> TorchAdam() {
  return MakeOptimizer({.name = "torch.Adam",
                        .hyperparameters = {{"lr", 0.5}, {"beta1", 0.5}, {"beta2", 0.75}, {"eps", 0.25}}})
      .value();
}

TEST(VariableStoreGroups, HaveHyperparametersOfTheirOwn) {
  const auto sgd =
      MakeOptimizer({.name = "torch.SGD", .hyperparameters = {{"lr", 1}, {"momentum", 0.5}}}).value();
  VariableStore store(Vectors({{"a", 1}, {"b", 1}, {"c", 1}}), sgd.get());
  store.AssignGroups({0, 1, 2});
  ASSERT_TRUE(
      store
          .SetGroups({{}, {.hyperparameters = {{"weight_decay", 1}}}, {.hyperparameters = {{"maximize", 1}}}})
          .ok());
  ASSERT_TRUE(ApplyTo(store, {1, 1, 1}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-1, -1, 1));
  ASSERT_TRUE(store.SetGroups({{}, {.hyperparameters = {{"momentum", 0.25}}}, {}}).ok());
  ASSERT_TRUE(ApplyTo(store, {0, 0, 0}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-1.5f, -1.25f, 1.5f));
}

TEST(VariableStoreGroups, HaveTheirHyperparametersInSpeculativeUpdatesToo) {
  const auto sgd = Sgd(1);
  VariableStore store(Vectors({{"a", 1}, {"b", 1}}), sgd.get());
  store.AssignGroups({0, 1});
  const std::vector<float> gradient = {4, 4};
  const ContributedGradient weighted = {gradient.data(), 1};
  store.BeginSpeculative();
  ASSERT_TRUE(store.SetSpeculativeGroups({{}, {.hyperparameters = {{"clipvalue", 1}}}}).ok());
  ASSERT_NE(store.ApplySpeculatively({.gradients = {&weighted, 1}}, 0, 2), nullptr);
  store.PublishSpeculative();
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-4, -1));
}

TEST(VariableStoreGroups, RefuseHyperparametersThatTheOptimizerCannotHave) {
  const auto adam = TorchAdam();
  VariableStore store(Vectors({{"a", 1}, {"b", 1}}), adam.get());
  store.AssignGroups({0, 1});
  ASSERT_TRUE(store.SetGroups({{}, {.untouched = true}}).ok());
  const auto error = [&store](const std::string& name, double value) {
    return std::string(store.SetGroups({{}, {.hyperparameters = {{name, value}}}}).message());
  };
  EXPECT_THAT(error("beta3", 0.5),
              HasSubstr("group 1: optimizer torch.Adam: unknown hyperparameter 'beta3'"));
  EXPECT_THAT(error("beta1", 1), HasSubstr("group 1: optimizer torch.Adam: hyperparameter 'beta1' is 1"));
  EXPECT_EQ(error("amsgrad", 1),
            "group 1: optimizer torch.Adam: hyperparameter 'amsgrad' changes the optimizer's slots or norms, "
            "which all "
            "variables share");
  EXPECT_THAT(error("clipnorm", 1), HasSubstr("'clipnorm' changes the optimizer's slots or norms"));
  EXPECT_THAT(error("lr", 1), HasSubstr("'lr' is the learning rate"));
  EXPECT_EQ(store.groups(), (std::vector<GroupSettings>{{}, {.untouched = true}})) << "as before";
}

// Adam's bias correction shows the count.
TEST(VariableStoreGroups, CountOnlyTheUpdatesThatTouchThem) {
  const auto adam = TorchAdam();
  VariableStore alone(Vectors({{"b", 1}}), adam.get());
  VariableStore store(Vectors({{"a", 1}, {"b", 1}}), adam.get());
  store.AssignGroups({0, 1});
  for (int update = 1; update <= 6; ++update) {
    const bool untouched = update <= 2 || update == 4;
    ASSERT_TRUE(store.SetGroups({{}, {.untouched = untouched}}).ok());
    ASSERT_TRUE(ApplyTo(store, {1, static_cast<float>(update)}).ok());
    if (untouched) continue;
    ASSERT_TRUE(ApplyTo(alone, {static_cast<float>(update)}).ok());
  }
  EXPECT_EQ(ToVector(store.current())[1], ToVector(alone.current())[0]);
  EXPECT_EQ(store.skipped(), (SkippedUpdates{.untouched = {0, 3}}));
}

TEST(VariableStoreGroups, CountOnAfterARestore) {
  const auto adam = TorchAdam();
  VariableStore store(Vectors({{"a", 1}, {"b", 1}}), adam.get());
  store.AssignGroups({0, 1});
  ASSERT_TRUE(store.SetGroups({{}, {.untouched = true}}).ok());
  for (int update = 0; update < 3; ++update) ASSERT_TRUE(ApplyTo(store, {1, 1}).ok());
  VariableStore restored(Vectors({{"a", 1}, {"b", 1}}), adam.get(), /*initial_version=*/3);
  restored.AssignGroups({0, 1});
  ASSERT_TRUE(restored.SetGroups(store.groups()).ok());
  restored.SetSkipped(store.skipped());
  for (VariableStore* each : {&store, &restored}) {
    ASSERT_TRUE(each->SetGroups({{.untouched = true}, {}}).ok());
    ASSERT_TRUE(ApplyTo(*each, {1, 1}).ok());
  }
  EXPECT_EQ(ToVector(restored.current())[1], ToVector(store.current())[1]);
  EXPECT_EQ(restored.skipped(), (SkippedUpdates{.untouched = {1, 3}}));
}

// An update without examples, as of a GradScaler that skips a step.
TEST(VariableStoreEmptyUpdates, AdvanceTheVersionAloneIfTheyAreSkipped) {
  const auto adam = TorchAdam();
  VariableStore full(Vectors({{"a", 1}}), adam.get());
  VariableStore store(Vectors({{"a", 1}}), adam.get());
  store.SkipEmptyUpdates();
  const ContributedGradient nothing = {nullptr, 0};
  for (int update = 1; update <= 3; ++update) {
    ASSERT_TRUE(ApplyTo(store, {1}).ok());
    ASSERT_TRUE(ApplyTo(full, {1}).ok());
    ASSERT_TRUE(store.ApplyMean({.gradients = {&nothing, 1}}).ok());
  }
  EXPECT_EQ(store.current().version, 6);
  EXPECT_EQ(ToVector(store.current()), ToVector(full.current()));
  EXPECT_EQ(store.skipped(), (SkippedUpdates{.empty = 3}));
}

TEST(VariableStoreEmptyUpdates, MoveNothingByNormsEither) {
  const auto lamb = MakeOptimizer({.name = "Lamb", .hyperparameters = {{"global_clipnorm", 1}}}).value();
  VariableStore store(Vectors({{"a", 2}}), lamb.get());
  store.SkipEmptyUpdates();
  const ContributedGradient nothing = {nullptr, 0};
  for (Norms norms : lamb->norms()) {
    const auto measured = store.Measure(norms, {.gradients = {&nothing, 1}});
    ASSERT_TRUE(measured.ok());
    EXPECT_THAT(measured->at(0).bands, ElementsAre(Squares()));
  }
  ASSERT_TRUE(store.ApplyMean({.gradients = {&nothing, 1}}).ok());
  EXPECT_EQ(store.current().version, 1);
  EXPECT_THAT(ToVector(store.current()), ElementsAre(0, 0));
}

TEST(VariableStoreEmptyUpdates, LeaveTheAverageAtTheEnd) {
  const auto sgd =
      MakeOptimizer(
          {.name = "SGD", .hyperparameters = {{"learning_rate", 1}, {"use_ema", 1}, {"ema_momentum", 0.5}}})
          .value();
  VariableStore store(Vectors({{"a", 1}}), sgd.get());
  store.SkipEmptyUpdates();
  for (int update = 0; update < 2; ++update) ASSERT_TRUE(ApplyTo(store, {2}).ok());
  const ContributedGradient nothing = {nullptr, 0};
  ASSERT_TRUE(store.ApplyMean({.gradients = {&nothing, 1}, .last = true}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-3));
}

TEST(VariableStoreUpdates, AnUnexpectedEndLeavesTheAverageToo) {
  const auto sgd =
      MakeOptimizer(
          {.name = "SGD", .hyperparameters = {{"learning_rate", 1}, {"use_ema", 1}, {"ema_momentum", 0.5}}})
          .value();
  std::vector<net::Slice> slices = Vectors({{"a", 1}, {"statistic", 1}});
  slices[1].moving_average_momentum = 0.0f;
  VariableStore store(slices, sgd.get());
  store.EndHere();
  EXPECT_THAT(ToVector(store.current()), ElementsAre(0, 0)) << "no update, no average";
  ASSERT_TRUE(ApplyTo(store, {2, 7}).ok());
  ASSERT_TRUE(ApplyTo(store, {2, 7}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-4, 7));
  store.EndHere();
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-3, 7));
  EXPECT_EQ(store.current().version, 2);
}

TEST(VariableStoreUpdates, UseTheRateThatReplacesTheOptimizers) {
  const auto sgd = Sgd(1);
  VariableStore store(Vectors({{"a", 1}}), sgd.get());
  EXPECT_EQ(store.learning_rate(), 1);
  store.SetLearningRate(0.25f);
  EXPECT_EQ(store.learning_rate(), 0.25f);
  ASSERT_TRUE(ApplyTo(store, {8}).ok());
  EXPECT_THAT(ToVector(store.current()), ElementsAre(-2));
}

TEST(EmptyVariableStore, CountsVersionsToo) {
  const auto sgd = Sgd(1);
  VariableStore store({}, sgd.get());
  const ContributedGradient nothing = {nullptr, 1};
  ASSERT_TRUE(store.ApplyMean({.gradients = {&nothing, 1}}).ok());
  EXPECT_EQ(store.current().version, 1);
}

}  // namespace
}  // namespace cairn::optim
