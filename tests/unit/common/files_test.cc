#include "common/core/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/flags/path_checks.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

class Files : public testing::Test {
 protected:
  Files() { std::filesystem::create_directories(directory_); }
  ~Files() override { std::filesystem::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  const std::string directory_ = testing::TempDir() + "files_test_" + std::to_string(getpid());
};

TEST_F(Files, AWrittenFileCanBeReadBack) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "one").ok());
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "two").ok());
  EXPECT_EQ(*ReadFile(Path("a")), "two");
}

TEST_F(Files, APipeIsWrittenToAndNotReplaced) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const int reader = open(Path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_TRUE(CheckWritable(Path("pipe")).ok());
  EXPECT_TRUE(WriteFileAtomically(Path("pipe"), "text").ok());
  char got[8] = {};
  EXPECT_EQ(read(reader, got, sizeof got), 4);
  EXPECT_STREQ(got, "text");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

TEST_F(Files, APipeWithoutAReaderIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(WriteFileAtomically(Path("pipe"), "text").message()), HasSubstr("cannot open"));
}

TEST_F(Files, AFullDeviceIsAnErrorAndIsNotReplaced) {
  std::filesystem::create_symlink("/dev/full", Path("full"));
  const absl::Status status = WriteFileAtomically(Path("full"), "text");
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
  EXPECT_TRUE(std::filesystem::is_symlink(Path("full")));
}

TEST_F(Files, ACheckNamesTheFaultAndChangesNothing) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "kept").ok());
  EXPECT_TRUE(CheckWritable(Path("a")).ok());
  EXPECT_EQ(*ReadFile(Path("a")), "kept");
  EXPECT_THAT(std::string(CheckWritable(Path("no/a")).message()), HasSubstr("No such file or directory"));
  EXPECT_THAT(std::string(CheckWritable(directory_).message()), HasSubstr("Is a directory"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(Files, AMissingDirectoryIsAsWritableAsItsParent) {
  EXPECT_TRUE(CheckDirectoryWritable(Path("b/c/d")).ok());
  EXPECT_FALSE(FileExists(Path("b")));
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "").ok());
  EXPECT_THAT(std::string(CheckDirectoryWritable(Path("a/c")).message()), HasSubstr("/a is not a directory"));
}

}  // namespace
}  // namespace cairn
