// Every kind of damage that a disk, a crash or a person can do to the files of a checkpoint.
#include <sys/stat.h>

#include "tests/support/effort.h"
#include "tests/unit/worker/checkpoint/small_job.h"

namespace cairn::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class DamageTest : public CheckpointFiles {
 protected:
  DamageTest() : directory_(Write(2)) {}

  std::string PathOf(const std::string& name) const { return directory_ + "/" + name; }

  // The status of opening and loading; the values must be the original ones if it is OK.
  absl::Status Outcome() const {
    const auto loaded = OpenAndLoad(directory_);
    if (!loaded.ok()) return loaded.status();
    return SameBits(*loaded, whole_) ? absl::OkStatus() : absl::InternalError("other values were loaded");
  }
  // Expects DATA_LOSS naming the directory.
  void ExpectLoss(const std::string& what) const {
    const absl::Status status = Outcome();
    EXPECT_TRUE(absl::IsDataLoss(status)) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(directory_)) << what;
  }
  std::string LossOf() const {
    const absl::Status status = Outcome();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  }

  const std::string directory_;
};

// Files are changed in place, because some file systems flush a file that is truncated and rewritten.
TEST_F(DamageTest, AnyChangedByteIsFound) {
  for (const std::string& name : NamesIn(directory_)) {
    std::fstream file(PathOf(name), std::ios::binary | std::ios::in | std::ios::out);
    const std::string bytes = *ReadFile(PathOf(name));
    const auto put = [&](size_t at, char byte) {
      file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
      ASSERT_TRUE(file.good());
    };
    for (size_t at = 0; at < bytes.size(); at += test::Effort(1, 5)) {
      for (size_t i = 0; i < static_cast<size_t>(test::Effort(3, 1)); ++i) {
        const char flip = "\x01\x20\x80"[(at + i) % 3];
        put(at, static_cast<char>(bytes[at] ^ flip));
        ExpectLoss(absl::StrCat(name, " byte ", at));
        if (HasFailure()) return;
      }
      put(at, bytes[at]);
    }
  }
  EXPECT_TRUE(Outcome().ok()) << "the original bytes are back";
}

TEST_F(DamageTest, AnyChangedLengthIsFound) {
  for (const std::string& name : NamesIn(directory_)) {
    const std::string bytes = *ReadFile(PathOf(name));
    Put(PathOf(name), bytes + '\n');
    ExpectLoss(absl::StrCat(name, " with a byte more"));
    for (size_t missing = 1; missing <= bytes.size(); missing += test::Effort(1, 5)) {
      const size_t size = bytes.size() - missing;
      std::filesystem::resize_file(PathOf(name), size);
      ExpectLoss(absl::StrCat(name, " cut to ", size));
      if (HasFailure()) return;
    }
    Put(PathOf(name), bytes);
  }
}

TEST_F(DamageTest, VerifyFindsDamageThatOpenDoesNotReadAndNamesFileAndTensor) {
  std::string bytes = *ReadFile(PathOf(kFirstFile));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Put(PathOf(kFirstFile), bytes);
  const auto checkpoint = Checkpoint::Open(directory_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const absl::Status status = checkpoint->Verify();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(kFirstFile), HasSubstr("tensor 'slot/v/"), HasSubstr("is damaged")));
}

TEST_F(DamageTest, MissingFileIsFound) {
  for (const std::string& name : NamesIn(directory_)) {
    const std::string bytes = *ReadFile(PathOf(name));
    std::filesystem::remove(PathOf(name));
    EXPECT_THAT(LossOf(), HasSubstr(name));
    std::filesystem::create_directory(PathOf(name));
    EXPECT_THAT(LossOf(), HasSubstr("is not a regular file"));
    std::filesystem::remove(PathOf(name));
    ASSERT_EQ(mkfifo(PathOf(name).c_str(), 0600), 0);
    EXPECT_THAT(LossOf(), HasSubstr("is not a regular file")) << "opening a pipe does not block";
    std::filesystem::remove(PathOf(name));
    Put(PathOf(name), bytes);
  }
}

TEST_F(DamageTest, FileTruncatedAfterOpenIsFound) {
  const auto checkpoint = Checkpoint::Open(directory_);
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(PathOf(kFirstFile), std::filesystem::file_size(PathOf(kFirstFile)) - 1);
  EXPECT_TRUE(absl::IsDataLoss(Load(*checkpoint).status()));
  std::filesystem::remove(PathOf(kFirstFile));
  EXPECT_TRUE(absl::IsDataLoss(Load(*checkpoint).status()));
}

TEST_F(DamageTest, FilesOfAnotherCheckpointAreFound) {
  run_.global_step = 2000;
  Whole other = whole_;
  other[0][0] += 1;
  const Servers job(2, other);
  const auto path = WriteCheckpoint(train_dir_, run_, "{}", job.states(), {});
  ASSERT_TRUE(path.ok());
  for (const std::string& name : {std::string(kFirstFile), std::string("model.json")}) {
    const std::string bytes = *ReadFile(PathOf(name));
    Put(PathOf(name), *ReadFile(*path + "/" + name));
    ExpectLoss(name);
    Put(PathOf(name), bytes);
  }
}

TEST_F(DamageTest, ForeignStateIsFound) {
  for (const char* text :
       {"", "{}", "null", "{\"global_step\": 1000}\n", "\xff\xfe", "[[[[", "epoch = 3\n"}) {
    Put(PathOf("state.json"), text);
    ExpectLoss(text);
  }
}

TEST_F(DamageTest, UndamagedStateWithAWrongFieldNamesTheField) {
  const std::string good = *ReadFile(PathOf("state.json"));
  const std::vector<std::pair<std::string, std::string>> forgeries = {
      {"\"global_step\": 1000", "\"global_step\": -1"},
      {"\"global_step\": 1000", "\"global_step\": 1e300"},
      {"\"global_step\": 1000", "\"global_step\": 9223372036854775808"},
      {"\"global_step\": 1000", "\"step\": 1000"},
      {"\"mode\": \"async\"", "\"mode\": 7"},
      {"\"slots\": [", "\"slots\": [3,"},
      {"\"learning_rate\": 0.10000000149011612", "\"learning_rate\": 1e39"},
      {"\"batch_size\": 64", "\"batch_size\": \"64\""},
      {"\"name\": \"shard-", "\"name\": \"../shard-"},
      {"\"name\": \"shard-", "\"name\": \".shard-"},
      {"\"head_bytes\": ", "\"head_bytes\": 9000000"},
      {"\"head_bytes\": ", "\"head_bytes\": -"},
      {"\"bytes\": ", "\"bytes\": 1"},
      {"\"row_end\": ", "\"row_end\": 1"},
      {"\"row_begin\": 0", "\"row_begin\": -1"},
      {"\"name\": \"dense/", "\"name\": \"dance/"},
      {"\"shape\": [", "\"shape\": [9223372036854775807, 9223372036854775807,"},
      {"\"shape\": [", "\"shape\": [1,"},
      {"\"files\": [", "\"files\": [[],"},
      {"\"files\": [", "\"files\": {}, \"more\": ["},
      {"\"model_bytes\": ", "\"model_bytes\": 99"},
  };
  for (const auto& [from, to] : forgeries) {
    Forge(directory_, from, to);
    ExpectLoss(to);
    Put(PathOf("state.json"), good);
  }
}

TEST_F(DamageTest, ImpossibleNumberNamesTheField) {
  const std::string good = *ReadFile(PathOf("state.json"));
  struct Forgery {
    const char* from;
    const char* to;
    const char* names;
  };
  const Forgery forgeries[] = {
      {"\"global_step\": 1000", "\"global_step\": 4611686018427387904", "global_step is 4611686018427387904"},
      {"\"positions\": [\n  501", "\"positions\": [\n  -501", "positions[0] is -501"},
      {"\"learning_rate\": 0.10000000149011612", "\"learning_rate\": -0.1", "learning_rate is -0.1"},
      {"\"learning_rate\": 0.10000000149011612", "\"learning_rate\": \"nan\"", "learning_rate is nan"},
      {"\"learning_rate\": 0.1\n", "\"learning_rate\": -1\n", "hyperparameters.learning_rate is -1"},
      {"\"batch_size\": 64", "\"batch_size\": -64", "batch_size is -64"},
      {"\"final_version\": 5000", "\"final_version\": -5000", "final_version is -5000"},
      {"\"examples\": 64000", "\"examples\": 9223372036854775807", "examples is 9223372036854775807"},
      {"\"staleness_histogram\": [\n  900", "\"staleness_histogram\": [\n  -9",
       "staleness_histogram[0] is -9"},
      {"\"next\": 90", "\"next\": -90", "data.next is -90"},
      {"\"next\": 90", "\"next\": 5", "data.open[3] is 1"},
      {"\"missed\": 2", "\"missed\": -2", "data.missed is -2"},
  };
  for (const Forgery& forgery : forgeries) {
    Forge(directory_, forgery.from, forgery.to);
    EXPECT_THAT(LossOf(), AllOf(HasSubstr("state.json"), HasSubstr(forgery.names))) << forgery.to;
    Put(PathOf("state.json"), good);
  }
}

TEST_F(DamageTest, FileInsteadOfACheckpointIsSkipped) {
  Put(absl::StrCat(train_dir_, "/checkpoints/", StepName(2000)), "a file");
  int told = 0;
  const auto newest = OpenNewest(train_dir_, [&](const absl::Status&) { ++told; });
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->directory(), directory_);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(absl::IsNotFound(Checkpoint::Open(train_dir_ + "/checkpoints/step-00003000").status()));
}

TEST_F(DamageTest, OtherFormatIsNotDamage) {
  Forge(directory_, "\"format\": 1", "\"format\": 2");
  const absl::Status status = Outcome();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 2, this program reads 1"));
}

TEST_F(DamageTest, NewestUndamagedCheckpointIsOpenedAndOthersAreReported) {
  WriteStep(2000);
  const std::string newest = WriteStep(3000);
  std::string bytes = *ReadFile(newest + "/" + kFirstFile);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Put(newest + "/" + kFirstFile, bytes);
  std::vector<std::string> told;
  const auto tell = [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsDataLoss(status));
    told.push_back(std::string(status.message()));
  };
  auto checkpoint = OpenNewest(train_dir_, tell);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->run().global_step, 2000);
  EXPECT_THAT(told, ElementsAre(HasSubstr("step-00003000")));

  for (const int step : {1000, 2000}) {
    std::filesystem::remove(absl::StrCat(train_dir_, "/checkpoints/", StepName(step), "/state.json"));
  }
  told.clear();
  const absl::Status none = OpenNewest(train_dir_, tell).status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(
      told, ElementsAre(HasSubstr("step-00003000"), HasSubstr("step-00002000"), HasSubstr("step-00001000")));
}

TEST_F(DamageTest, ARunThatContinuesFindsNoCheckpointOnlyWhereThereIsNone) {
  int told = 0;
  const auto tell = [&](const absl::Status&) { ++told; };
  const auto found = FindNewest(train_dir_, tell);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->directory(), directory_);

  std::filesystem::remove(PathOf("state.json"));
  const absl::Status damaged = FindNewest(train_dir_, tell).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(StepName(1000)));
  EXPECT_EQ(told, 1);

  std::filesystem::remove_all(directory_);
  const auto none = FindNewest(train_dir_, tell);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
}

TEST_F(DamageTest, CheckpointOfANewerProgramIsNotSkipped) {
  Forge(WriteStep(2000), "\"format\": 1", "\"format\": 2");
  const auto opened = OpenNewest(train_dir_, [](const absl::Status& status) { ADD_FAILURE() << status; });
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
}

}  // namespace
}  // namespace cairn::worker
