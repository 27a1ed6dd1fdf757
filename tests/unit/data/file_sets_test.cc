#include "data/file_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FindFiles, FindsTheSetAndItsPiecesInTheOrderOfTheirNames) {
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

TEST(FindFiles, PieceNumbersMayFollowTheSuffix) {
  const TemporaryDirectory dir;
  for (const char* name : {"train.tfrecord-00001-of-00002", "train.tfrecord-00000-of-00002.gz"}) {
    WriteText(dir / name, "");
  }
  EXPECT_THAT(FindFiles(dir.path(), "train", ".tfrecord"),
              ElementsAre(dir / "train.tfrecord-00000-of-00002.gz", dir / "train.tfrecord-00001-of-00002"));
}

TEST(FindFiles, FindsNothingInAMissingDirectory) {
  const TemporaryDirectory dir;
  WriteText(dir / "train.csv", "");
  EXPECT_THAT(FindFiles(dir / "train.csv", "train", ".csv"), IsEmpty());
  EXPECT_THAT(FindFiles(dir / "nowhere", "train", ".csv"), IsEmpty());
}

TEST(IsSetName, AcceptsTheNamesOfSetsAndTheirPieces) {
  for (const char* name : {"train", "test", "validation", "valid", "val", "train-0", "train_0", "val.0",
                           "test-00000-of-00002"}) {
    EXPECT_TRUE(IsSetName(name)) << name;
  }
  for (const char* name : {"", "training", "train-old", "train-0x", "strain", "0-train"}) {
    EXPECT_FALSE(IsSetName(name)) << name;
  }
}

TEST(WholeNumber, AcceptsOnlyDigitsThatInt64Holds) {
  EXPECT_EQ(WholeNumber("0"), 0);
  EXPECT_EQ(WholeNumber("007"), 7);
  EXPECT_EQ(WholeNumber("9223372036854775807"), 9223372036854775807);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1.0", "9223372036854775808"}) {
    EXPECT_EQ(WholeNumber(text), std::nullopt) << text;
  }
}

TEST(FindDays, FindsTheFilesWithEachSuffixInTheOrderOfTheirNumbers) {
  const TemporaryDirectory dir;
  for (const char* name :
       {"day_10", "day_9.gz", "day_2", "day_02", "day_", "day_x", "day_3.txt", "today_1"}) {
    WriteText(dir / name, "");
  }
  EXPECT_THAT(FindDays(dir.path(), {"", ".gz"}),
              ElementsAre(dir / "day_02", dir / "day_2", dir / "day_9.gz", dir / "day_10"));
  EXPECT_THAT(FindDays(dir.path(), {".txt"}), ElementsAre(dir / "day_3.txt"));
  EXPECT_THAT(FindDays(dir / "nowhere", {""}), IsEmpty());
}

std::string FaultOfPieces(const std::vector<std::string>& files) {
  return std::string(CheckPieces(files).status().message());
}

TEST(CheckPieces, AllPiecesOfOneSetAreInOrder) {
  EXPECT_EQ(CheckPieces({"d/train-00001-of-00002.csv", "d/train-00000-of-00002.csv.gz"}).value(), "");
  EXPECT_EQ(CheckPieces({"d/train.tfrecord-0-of-1"}).value(), "");
  EXPECT_EQ(CheckPieces({"d/train-1.csv", "d/train-2.csv"}).value(), "");
  EXPECT_EQ(CheckPieces({"d/train.csv"}).value(), "");
  EXPECT_EQ(CheckPieces({"d/train-2020-01.csv", "d/train-2021-01.csv"}).value(), "");
}

TEST(CheckPieces, NamesMissingPieces) {
  const auto result = CheckPieces({"d/train-00000-of-00003.csv", "d/train-00002-of-00003.csv"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(result.status().message(),
            "d/train-00000-of-00003.csv: of 3 pieces 1 is missing: train-00001-of-00003.csv");
  EXPECT_THAT(FaultOfPieces({"d/train.tfrecord-00001-of-00003"}),
              HasSubstr("2 are missing: train.tfrecord-00000-of-00003, train.tfrecord-00002-of-00003"));
  EXPECT_THAT(FaultOfPieces({"d/train-3-of-100.csv"}), HasSubstr("of 100 pieces 99 are missing"));
}

TEST(CheckPieces, RefusesPiecesOfTwoSets) {
  const std::string one_of_three = "d/train-00000-of-00003.csv";
  EXPECT_THAT(FaultOfPieces({one_of_three, "d/train-00001-of-00004.csv"}),
              HasSubstr("train-00000-of-00003.csv and train-00001-of-00004.csv belong to different sets"));
  EXPECT_THAT(FaultOfPieces({"d/train-00000-of-00002.tfrecord", "d/train.tfrecord-00001-of-00002"}),
              HasSubstr("belong to different sets"));
  EXPECT_THAT(
      FaultOfPieces({one_of_three, "d/train.csv"}),
      HasSubstr("train.csv exists in addition to the pieces of a set, such as train-00000-of-00003.csv"));
  EXPECT_THAT(FaultOfPieces({"d/train-3-of-3.csv"}), HasSubstr("have the numbers 0 to 2"));
}

TEST(CheckPieces, RefusesDuplicatePieces) {
  EXPECT_THAT(FaultOfPieces({"d/train.csv", "d/train.csv.gz"}),
              HasSubstr("d/train.csv and train.csv.gz are the same piece"));
  EXPECT_THAT(FaultOfPieces({"d/train-1.csv", "d/train-01.csv"}),
              HasSubstr("d/train-1.csv and train-01.csv have the same number"));
  EXPECT_THAT(FaultOfPieces({"d/train.tfrecord", "d/train.tfrecords"}),
              HasSubstr("d/train.tfrecord and train.tfrecords are both complete sets"));
  EXPECT_THAT(FaultOfPieces({"d/train-0-of-2.csv", "d/train-00-of-2.csv", "d/train-1-of-2.csv"}),
              HasSubstr("d/train-0-of-2.csv and train-00-of-2.csv are the same piece"));
}

TEST(CheckPieces, ReportsGapsBetweenNumbers) {
  EXPECT_THAT(CheckPieces({"d/train-0.csv", "d/train-3.csv"}).value(),
              HasSubstr("numbered from 0 to 3, and numbers 1, 2 are missing"));
  EXPECT_THAT(CheckPieces({"d/train-1.csv", "d/train-3.csv"}).value(),
              HasSubstr("numbered from 1 to 3, and number 2 is missing"));
  EXPECT_THAT(CheckPieces({"d/train-1.csv", "d/train-3.csv", "d/train-2000000000.csv"}).value(),
              HasSubstr("and numbers 2, 4, 5, 6, 7 and 1999999992 more are missing"));
  EXPECT_THAT(CheckPieces({"d/train-0.csv", "d/train.csv"}).value(),
              HasSubstr("train.csv is read as one more piece"));
}

TEST(IncompleteSetRemark, WarnsIfThePathIsOnePieceOfASet) {
  const TemporaryDirectory dir;
  WriteText(dir / "train-00000-of-00003.csv", "");
  WriteText(dir / "train-0-of-1.csv", "");
  EXPECT_THAT(IncompleteSetRemark(dir / "train-00000-of-00003.csv"), HasSubstr("is one of 3 pieces"));
  EXPECT_EQ(IncompleteSetRemark(dir / "train-0-of-1.csv"), "");
  EXPECT_EQ(IncompleteSetRemark(dir.path()), "");
}

TEST(FindSets, NamesFilesThatAreInNeitherSet) {
  const TemporaryDirectory dir;
  for (const char* name : {"train.csv", "val.csv", "extra.csv", "notes.txt"}) WriteText(dir / name, "");
  const auto sets = FindSets(dir.path(), {".csv"});
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_THAT(sets->train, ElementsAre(dir / "train.csv"));
  EXPECT_THAT(sets->validation, ElementsAre(dir / "val.csv"));
  EXPECT_THAT(sets->remarks, ElementsAre(HasSubstr("not read: extra.csv")));
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
