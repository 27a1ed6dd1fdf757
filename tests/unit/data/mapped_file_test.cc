#include "data/file/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/array/npz.h"
#include "tests/unit/data/data_files.h"

namespace cairn::data {
namespace {

using ::testing::HasSubstr;

TEST(MappedFile, IrregularFilesAreRefusedWithoutBlocking) {
  const TemporaryDirectory dir;
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  for (const std::string& path : {dir / "fifo", dir.path(), std::string("/dev/zero")}) {
    EXPECT_THAT(std::string(MappedFile::Open(path).status().message()), HasSubstr("is not a regular file"))
        << path;
    EXPECT_THAT(std::string(NpzFile::Open(path).status().message()), HasSubstr("is not a regular file"))
        << path;
  }
}

// Runs in a child process, which exits.
TEST(MappedFileDeathTest, AFileTruncatedWhileMappedIsNamed) {
  const TemporaryDirectory dir;
  const std::string path = dir / "x.npy";
  WriteText(path, std::string(1 << 16, 'x'));
  EXPECT_EXIT(
      {
        ExplainTruncatedFiles();
        MappedFile::Open(path).IgnoreError();  // leaves a free entry
        const auto file = MappedFile::Open(path);
        if (truncate(path.c_str(), 100) != 0) _exit(2);
        _exit((*file)->bytes()[1 << 15] == 'x' ? 3 : 4);
      },
      ::testing::ExitedWithCode(1), "x.npy: was cut short while it was in use");
}

}  // namespace
}  // namespace cairn::data
