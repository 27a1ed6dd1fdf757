#include "worker/checkpoint/train_dir.h"

#include "tests/unit/worker/checkpoint/small_job.h"

namespace cairn::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using TrainDirTest = CheckpointFiles;

TEST_F(TrainDirTest, OnlyNamesThatAreWrittenAreSteps) {
  EXPECT_EQ(StepName(1000), "step-00001000");
  EXPECT_EQ(StepOf("step-00001000"), 1000);
  EXPECT_EQ(StepOf(StepName(123456789012)), 123456789012);
  for (const char* name : {"step-1000", "step-", "step-0000100x", "step-00001000.tmp-1", "step--0000001",
                           "step", "step-000001000", "step-99999999999999999999", "xstep-00001000", ""}) {
    EXPECT_EQ(StepOf(name), -1) << name;
  }
}

TEST_F(TrainDirTest, TrainDirIsFoundByACheckpointsPath) {
  EXPECT_EQ(TrainDirOf("/a/run/checkpoints/step-00000020"), "/a/run");
  EXPECT_EQ(TrainDirOf("/a/run/checkpoints/step-00000020/"), "/a/run");
  EXPECT_EQ(TrainDirOf("/a/run"), "/a/run");
  EXPECT_EQ(TrainDirOf("/a/step-00000020"), "/a/step-00000020");
}

TEST_F(TrainDirTest, CheckpointsAreListedByStepNotByName) {
  EXPECT_THAT(*ListCheckpoints(train_dir_), IsEmpty()) << "the directory does not exist";
  for (const int64_t step : {100000000, 20, 3}) WriteStep(step);
  const std::string in = train_dir_ + "/checkpoints/";
  EXPECT_THAT(*ListCheckpoints(train_dir_),
              ElementsAre(in + "step-00000003", in + "step-00000020", in + "step-100000000"));
}

TEST_F(TrainDirTest, OldestCheckpointsAreRemovedAfterAWrite) {
  for (const int64_t step : {1, 2, 3, 4}) WriteStep(step);
  EXPECT_EQ(Steps().size(), 4u) << "0 keeps all";
  WriteStep(5, 2);
  EXPECT_THAT(Steps(), ElementsAre("step-00000004", "step-00000005"));
  WriteStep(6, 1);
  EXPECT_THAT(Steps(), ElementsAre("step-00000006"));
}

TEST_F(TrainDirTest, NewCheckpointIsKeptWhateverItsStep) {
  WriteStep(500);
  WriteStep(100, 1);
  EXPECT_THAT(Steps(), ElementsAre("step-00000100"));
}

TEST_F(TrainDirTest, ExistingStepIsReplaced) {
  run_.run_id = "first";
  WriteStep(1);
  run_.run_id = "second";
  const auto checkpoint = Checkpoint::Open(WriteStep(1));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->run().run_id, "second");
  EXPECT_THAT(Steps(), ElementsAre("step-00000001"));
}

TEST_F(TrainDirTest, PointerNamesTheNewestCheckpoint) {
  WriteStep(1);
  WriteStep(2);
  EXPECT_EQ(*ReadFile(train_dir_ + "/checkpoint"), "model_checkpoint_path: \"checkpoints/step-00000002\"\n");
  EXPECT_THAT(NamesIn(train_dir_), ElementsAre("checkpoint", "checkpoints"));
}

TEST_F(TrainDirTest, MissingDirectoriesAreCreated) {
  const std::string outer = train_dir_;
  train_dir_ += "/of/a/job";
  EXPECT_TRUE(OpenAndLoad(Write()).ok());
  train_dir_ = outer;
}

// The writer was killed while it wrote files, or while it removed an old checkpoint.
TEST_F(TrainDirTest, RemainsOfAKilledWriterAreIgnoredAndRemovedByTheNextWrite) {
  const std::string whole = WriteStep(1);
  const std::string torn = train_dir_ + "/checkpoints/step-00000002.tmp-4711";
  std::filesystem::copy(whole, torn);
  std::filesystem::remove(torn + "/state.json");
  Put(train_dir_ + "/checkpoint.tmp-4711", "model_check");
  std::filesystem::create_directory(train_dir_ + "/checkpoints/step-notes.tmp-1");
  Put(train_dir_ + "/notes.tmp-1", "mine");
  EXPECT_THAT(*ListCheckpoints(train_dir_), ElementsAre(whole));
  EXPECT_EQ(OpenNewest(train_dir_, [](const absl::Status& status) { ADD_FAILURE() << status; })->directory(),
            whole);
  WriteStep(2);
  EXPECT_THAT(Steps(), ElementsAre("step-00000001", "step-00000002", "step-notes.tmp-1"));
  EXPECT_THAT(NamesIn(train_dir_), ElementsAre("checkpoint", "checkpoints", "notes.tmp-1"));
}

// A process with this process's id died, as in containers, where every process may have the id 1.
TEST_F(TrainDirTest, LeftoverWithTheSameProcessIdIsRemoved) {
  const std::string left = absl::StrCat(train_dir_, "/checkpoints/step-00000002.tmp-", getpid());
  std::filesystem::create_directories(left);
  Put(left + "/state.json", "{");
  EXPECT_TRUE(OpenAndLoad(WriteStep(2)).ok());
  EXPECT_THAT(Steps(), ElementsAre("step-00000002"));
}

TEST_F(TrainDirTest, NewestIsFoundIfTheWriterDiedBeforeUpdatingThePointer) {
  WriteStep(1);
  const std::string pointer = *ReadFile(train_dir_ + "/checkpoint");
  const std::string newest = WriteStep(2);
  Put(train_dir_ + "/checkpoint", pointer);
  const auto skipped = [](const absl::Status& status) { ADD_FAILURE() << status; };
  EXPECT_EQ(OpenNewest(train_dir_, skipped)->directory(), newest);
  std::filesystem::remove(train_dir_ + "/checkpoint");
  EXPECT_EQ(OpenNewest(train_dir_, skipped)->directory(), newest);
}

TEST_F(TrainDirTest, DirectoryThatCannotBeCreatedIsNamed) {
  Put(train_dir_, "a file");
  const Servers job(1, whole_);
  const auto written = WriteCheckpoint(train_dir_, run_, kModel, job.states(), {});
  EXPECT_FALSE(written.ok());
  EXPECT_THAT(std::string(written.status().message()), HasSubstr(train_dir_));
}

}  // namespace
}  // namespace cairn::worker
