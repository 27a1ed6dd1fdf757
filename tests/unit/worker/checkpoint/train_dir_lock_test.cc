#include "worker/checkpoint/train_dir_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace cairn::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string EmptyDirectory(const char* name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/cairn_lock_", getpid(), name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

TEST(TrainDirLock, SecondChiefGetsAnErrorNamingTheFirst) {
  const std::string directory = EmptyDirectory("second");
  const auto first = TrainDirLock::Take(directory, Duration::zero());
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = TrainDirLock::Take(directory, Duration::zero());
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(directory), HasSubstr(absl::StrCat("process ", getpid(), " on "))));
}

TEST(TrainDirLock, IsReleasedByItsDestructor) {
  const std::string directory = EmptyDirectory("again");
  EXPECT_TRUE(TrainDirLock::Take(directory, Duration::zero()).ok());
  EXPECT_TRUE(TrainDirLock::Take(directory, Duration::zero()).ok());
}

TEST(TrainDirLock, IsReleasedWhenItsProcessDies) {
  const std::string directory = EmptyDirectory("killed");
  int held[2];
  ASSERT_EQ(pipe(held), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = TrainDirLock::Take(directory, Duration::zero());
    if (write(held[1], "x", 1) == 1) pause();
    _exit(1);
  }
  char byte;
  ASSERT_EQ(read(held[0], &byte, 1), 1);
  EXPECT_FALSE(TrainDirLock::Take(directory, Duration::zero()).ok());
  kill(child, SIGKILL);
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(TrainDirLock::Take(directory, Duration::zero()).ok());
}

TEST(TrainDirLock, MissingDirectoryIsAnError) {
  EXPECT_TRUE(absl::IsInvalidArgument(TrainDirLock::Take("/no/such/directory", Duration::zero()).status()));
}

TEST(PrepareTrainDir, CreatesAndLocksTheDirectory) {
  const std::string directory = EmptyDirectory("prepared") + "/runs/1";
  const auto lock = PrepareTrainDir(directory);
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_TRUE(absl::IsUnavailable(TrainDirLock::Take(directory, Duration::zero()).status()));
}

TEST(PrepareTrainDir, ADirectoryThatCannotBeCreatedIsNamed) {
  const std::string file = EmptyDirectory("blocked") + "/file";
  ASSERT_TRUE(std::ofstream(file).put('x').good());
  const absl::Status refused = PrepareTrainDir(file + "/run").status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("cannot create '", file, "/run'")));
}

}  // namespace
}  // namespace cairn::worker
