#include "worker/data/file_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FindFiles, TakesTheSetAndItsPiecesInTheOrderOfTheirNames) {
  const TemporaryDirectory dir;
  for (const char* name : {"train-1.csv", "train-0.csv.gz", "train.csv", "train_2.csv", "train00003.csv"}) {
    WriteText(dir / name, "");
  }
  for (const char* name : {"train", "train.txt", "train_labels.csv", "train-old.csv", "train.csv.bak",
                           "strain.csv", "test.csv", "training.csv"}) {
    WriteText(dir / name, "");
  }
  EXPECT_THAT(FindFiles(dir.path(), "train", ".csv"),
              ElementsAre(dir / "train-0.csv.gz", dir / "train-1.csv", dir / "train.csv",
                          dir / "train00003.csv", dir / "train_2.csv"));
}

TEST(FindFiles, PieceNumbersMayStandBehindTheSuffix) {
  const TemporaryDirectory dir;
  for (const char* name : {"train.tfrecord-00001-of-00002", "train.tfrecord-00000-of-00002.gz"}) {
    WriteText(dir / name, "");
  }
  EXPECT_THAT(FindFiles(dir.path(), "train", ".tfrecord"),
              ElementsAre(dir / "train.tfrecord-00000-of-00002.gz", dir / "train.tfrecord-00001-of-00002"));
}

TEST(FindFiles, FindsNothingWhereThereIsNoDirectory) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "");
  EXPECT_THAT(FindFiles(dir / "train.csv", "train", ".csv"), IsEmpty());
  EXPECT_THAT(FindFiles(dir / "nowhere", "train", ".csv"), IsEmpty());
}

TEST(FindValidationFiles, PrefersTestToValidation) {
  const TemporaryDirectory dir;
  WriteText(dir / "validation.csv", "");
  EXPECT_THAT(FindValidationFiles(dir.path(), ".csv"), ElementsAre(dir / "validation.csv"));
  WriteText(dir / "test.csv", "");
  EXPECT_THAT(FindValidationFiles(dir.path(), ".csv"), ElementsAre(dir / "test.csv"));
}

}  // namespace
}  // namespace cairn::data
