#include "worker/tensorboard/csv_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/tensorboard/event_reader.h"

namespace cairn::worker {
namespace {

using ::testing::HasSubstr;

class CsvLogTest : public testing::Test {
 protected:
  CsvLog Open(int64_t epoch) { return CsvLog::Open(path_, epoch).value(); }
  void Write(const std::string& text) { std::ofstream(path_) << text; }
  std::string Text() const { return ReadFile(path_).value(); }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "log.csv";
};

TEST_F(CsvLogTest, HasTheFormatOfKeras) {
  CsvLog log = Open(0);
  EXPECT_EQ(log.Add(0, {{"val_loss", 0.5}, {"loss", 0.25}, {"accuracy", 0.1}}), absl::OkStatus());
  EXPECT_EQ(log.Add(1, {{"val_loss", 1e-7}, {"loss", 2}, {"accuracy", 1}}), absl::OkStatus());
  EXPECT_EQ(Text(), "epoch,accuracy,loss,val_loss\n0,0.1,0.25,0.5\n1,1,2,1e-07\n");
}

TEST_F(CsvLogTest, EpochsThatAreTrainedAgainAreWrittenOnce) {
  Write("epoch,loss\n0,3\n1,2\n2,1\n");
  CsvLog log = Open(1);
  EXPECT_EQ(Text(), "epoch,loss\n0,3\n");
  EXPECT_EQ(log.Add(1, {{"loss", 2}}), absl::OkStatus());
  EXPECT_EQ(Text(), "epoch,loss\n0,3\n1,2\n");
}

TEST_F(CsvLogTest, AnIncompleteRowIsRemoved) {
  Write("epoch,loss\n0,3\n1,2");
  Open(9);
  EXPECT_EQ(Text(), "epoch,loss\n0,3\n");
}

TEST_F(CsvLogTest, ANewMetricIsEmptyInOlderRows) {
  Write("epoch,loss\n0,3\n");
  CsvLog log = Open(1);
  EXPECT_EQ(log.Add(1, {{"loss", 2}, {"accuracy", 0.5}}), absl::OkStatus());
  EXPECT_EQ(log.Add(2, {{"loss", 1}}), absl::OkStatus());
  EXPECT_EQ(Text(), "epoch,accuracy,loss\n0,,3\n1,0.5,2\n2,,1\n");
}

TEST_F(CsvLogTest, AnExistingRowCanBeCompleted) {
  Write("epoch,loss,val_loss\n0,3,4\n1,2,\n");
  CsvLog log = Open(9);
  EXPECT_FALSE(log.Lacks(0, "val_"));
  EXPECT_TRUE(log.Lacks(1, "val_"));
  EXPECT_TRUE(log.Lacks(2, "val_"));
  EXPECT_EQ(log.Complete(1, {{"val_loss", 3}, {"val_accuracy", 0.5}}), absl::OkStatus());
  EXPECT_EQ(log.Complete(2, {{"val_loss", 2}}), absl::OkStatus());
  EXPECT_EQ(Text(), "epoch,loss,val_accuracy,val_loss\n0,3,,4\n1,2,0.5,3\n2,,,2\n");
}

TEST_F(CsvLogTest, AnUnrelatedFileOfThatNameIsNotOverwritten) {
  Write("name,age\nada,36\n");
  EXPECT_THAT(CsvLog::Open(path_, 0).status().message(),
              HasSubstr("its header begins with 'name', not 'epoch'"));
  Write("epoch,loss\n0,1,2\n");
  EXPECT_THAT(CsvLog::Open(path_, 0).status().message(), HasSubstr(":2: '0,1,2' does not match"));
}

}  // namespace
}  // namespace cairn::worker
