#include "worker/tensorboard/tensorboard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <set>

#include "tests/support/fake_clock.h"
#include "tests/unit/nn/models.h"
#include "tests/unit/worker/tensorboard/event_reader.h"

namespace cairn::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;

class TensorBoardWriterTest : public testing::Test {
 protected:
  TensorBoardWriterTest()
      : model_(*nn::Model::FromJson(
            nn::SequentialOf(
                R"({"class_name": "Dense", "config": {"name": "d", "input_shape": [1], "units": 1}})"),
            "test")) {}

  std::unique_ptr<TensorBoardWriter> Make(TensorBoardWriter::Options options = {}) {
    options.directory = directory_.path();
    return std::make_unique<TensorBoardWriter>(
        options, model_, Hyperparameters{{"optimizer", "sgd"}, {"momentum", 0.5}}, clock_);
  }
  void TrainEpoch(TensorBoardWriter& tensorboard, int64_t epoch, double loss) {
    clock_.Advance(std::chrono::seconds(2));
    const std::vector<float> parameters = {1, 2}, gradients = {3, 4};
    tensorboard.OnEpochEnd({.epoch = epoch,
                            .version = 10 * (epoch + 1),
                            .examples = 640 * (epoch + 1),
                            .learning_rate = 0.5,
                            .metrics = {{"loss", loss}, {"val_loss", loss + 1}},
                            .parameters = parameters,
                            .last_gradients = gradients});
  }
  std::string Csv() const { return ReadFile(directory_ / "log.csv").value(); }
  std::map<std::string, std::vector<int64_t>> Train() const { return StepsIn(directory_ / "train"); }
  std::map<std::string, std::vector<int64_t>> Validation() const {
    return StepsIn(directory_ / "validation");
  }
  double LastOf(const std::string& tag) const {
    double last = -1;
    for (const tensorboard::v1::Event& event : EventsIn(directory_ / "train")) {
      for (const auto& value : event.summary().value()) {
        if (value.tag() == tag) last = value.simple_value();
      }
    }
    return last;
  }

  const TemporaryDirectory directory_;
  const nn::Model model_;
  test::FakeClock clock_;
};

TEST_F(TensorBoardWriterTest, TagsMatchThoseOfKeras) {
  const auto tensorboard = Make();
  tensorboard->Begin(0, 0, 0);
  TrainEpoch(*tensorboard, 0, 3);
  TrainEpoch(*tensorboard, 1, 2);
  EXPECT_THAT(Train()["epoch_loss"], ElementsAre(0, 1));
  EXPECT_THAT(Validation()["epoch_loss"], ElementsAre(0, 1));
  EXPECT_THAT(Validation()["evaluation_loss_vs_iterations"], ElementsAre(10, 20));
  EXPECT_EQ(LastOf("epoch_loss"), 2);
  EXPECT_EQ(LastOf("epoch_learning_rate"), 0.5);
  EXPECT_EQ(LastOf("epoch_steps_per_second"), 5);
  EXPECT_EQ(LastOf("epoch_examples_per_second"), 320);
  EXPECT_EQ(Csv(), "epoch,loss,val_loss\n0,3,4\n1,2,3\n");
}

TEST_F(TensorBoardWriterTest, AResumedRunWritesEachStepOnce) {
  const auto killed = Make({.update_freq = 5});
  killed->Begin(0, 0, 0);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    killed->OnStep(10 * epoch + 5, {{"loss", 1}});
    killed->OnStep(10 * epoch + 10, {{"loss", 1}});
    TrainEpoch(*killed, epoch, 3);
  }
  const auto resumed = Make({.update_freq = 5});
  resumed->Begin(1, 15, 960);  // in the middle of the second epoch
  EXPECT_EQ(Csv(), "epoch,loss,val_loss\n0,3,4\n");
  EXPECT_THAT(Train()["batch_loss"], ElementsAre(5, 10, 15));
  EXPECT_FALSE(resumed->WantsStep(19));
  EXPECT_TRUE(resumed->WantsStep(20));
  resumed->OnStep(20, {{"loss", 1}});
  TrainEpoch(*resumed, 1, 2);
  TrainEpoch(*resumed, 2, 1);
  EXPECT_THAT(Train()["epoch_loss"], ElementsAre(0, 1, 2));
  EXPECT_THAT(Train()["batch_loss"], ElementsAre(5, 10, 15, 20));
  EXPECT_THAT(Validation()["epoch_loss"], ElementsAre(0, 1, 2));
  EXPECT_THAT(Validation()["evaluation_loss_vs_iterations"], ElementsAre(10, 20, 30));
  EXPECT_EQ(Csv(), "epoch,loss,val_loss\n0,3,4\n1,2,3\n2,1,2\n");
}

TEST_F(TensorBoardWriterTest, AnInterruptedEvaluationIsCompletedByTheNextProcess) {
  EXPECT_FALSE(Make()->LacksValidation(0));  // this directory has no earlier run
  const auto stopped = Make();
  stopped->Begin(0, 0, 0);
  stopped->OnEpochEnd({.epoch = 0, .version = 10, .metrics = {{"loss", 3}}});
  const auto resumed = Make();
  ASSERT_TRUE(resumed->LacksValidation(0));
  resumed->AddValidation(0, 10, {{"loss", 4}});
  EXPECT_FALSE(resumed->LacksValidation(0));
  resumed->Begin(1, 10, 640);
  TrainEpoch(*resumed, 1, 2);
  EXPECT_EQ(Csv(), "epoch,loss,val_loss\n0,3,4\n1,2,3\n");
  EXPECT_THAT(Validation()["epoch_loss"], ElementsAre(0, 1));
  EXPECT_THAT(Validation()["evaluation_loss_vs_iterations"], ElementsAre(10, 20));
}

TEST_F(TensorBoardWriterTest, HistogramsAreWrittenAtTheRequestedFrequency) {
  const auto tensorboard = Make({.histogram_freq = 2});
  tensorboard->Begin(0, 0, 0);
  for (int64_t epoch = 0; epoch < 3; ++epoch) TrainEpoch(*tensorboard, epoch, 1);
  EXPECT_THAT(Train()["d/kernel/histogram"], ElementsAre(0, 2));
  EXPECT_THAT(Train()["d/bias/gradient_histogram"], ElementsAre(0, 2));
  const auto without = Make();
  without->Begin(0, 0, 0);
  TrainEpoch(*without, 0, 1);
  EXPECT_THAT(Train(), Not(Contains(Key("d/kernel/histogram"))));
}

TEST_F(TensorBoardWriterTest, AResumedRunHasOneGraphAndOneSession) {
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto tensorboard = Make();
    tensorboard->Begin(epoch, 10 * epoch, 0);
    TrainEpoch(*tensorboard, epoch, 1);
    tensorboard->End(true);
  }
  int graphs = 0;
  for (const tensorboard::v1::Event& event : EventsIn(directory_ / "train")) graphs += event.has_graph_def();
  EXPECT_EQ(graphs, 1);
  const auto session = StepsIn(directory_.path());
  EXPECT_EQ(session.at("_hparams_/session_start_info").size(), 1u);
  EXPECT_EQ(session.at("_hparams_/session_end_info").size(), 1u);
}

TEST_F(TensorBoardWriterTest, HyperparametersKeepTheirTypes) {
  const auto tensorboard = Make();
  tensorboard->Begin(0, 0, 0);
  tensorboard->End(true);
  tensorboard::v1::Hparams start;
  for (const tensorboard::v1::Event& event : EventsIn(directory_.path())) {
    for (const auto& value : event.summary().value()) {
      EXPECT_EQ(value.metadata().plugin_data().plugin_name(), "hparams");
      if (value.tag() == "_hparams_/session_start_info") {
        ASSERT_TRUE(start.ParseFromString(value.metadata().plugin_data().content()));
      }
    }
  }
  EXPECT_EQ(start.session_start_info().hparams().at("optimizer").string_value(), "sgd");
  EXPECT_EQ(start.session_start_info().hparams().at("momentum").number_value(), 0.5);
}

TEST_F(TensorBoardWriterTest, AWriteErrorStopsTheWritingAndNothingElse) {
  std::ofstream(directory_ / "train") << "a file where a directory goes";
  const auto tensorboard = Make({.update_freq = 1});
  tensorboard->Begin(0, 0, 0);
  tensorboard->OnStep(1, {{"loss", 1}});
  TrainEpoch(*tensorboard, 0, 3);
  tensorboard->End(false);
  EXPECT_FALSE(FileExists(directory_ / "log.csv"));
  EXPECT_FALSE(FileExists(directory_ / "validation"));
}

}  // namespace
}  // namespace cairn::worker
