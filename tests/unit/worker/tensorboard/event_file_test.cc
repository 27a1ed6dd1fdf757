#include "worker/tensorboard/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/worker/tensorboard/event_reader.h"

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void WriteScalars(const std::string& directory, const std::string& tag, int64_t begin, int64_t end) {
  auto file = EventFile::Create(directory);
  ASSERT_TRUE(file.ok()) << file.status();
  for (int64_t step = begin; step < end; ++step) (*file)->AddScalar(tag, step, 0.5);
  EXPECT_EQ((*file)->Flush(), absl::OkStatus());
}

TEST(EventFile, BeginsWithItsVersionAndHasANameThatTensorBoardFinds) {
  const TemporaryDirectory directory;
  WriteScalars(directory / "deep/run", "epoch_loss", 7, 8);
  const auto paths = FilesIn(directory / "deep/run");
  ASSERT_THAT(paths, SizeIs(1));
  EXPECT_THAT(paths[0], HasSubstr("/events.out.tfevents."));
  EXPECT_THAT(paths[0], EndsWith(".cairn"));
  const auto events = EventsIn(directory / "deep/run");
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].step(), 7);
  EXPECT_EQ(events[1].summary().value(0).tag(), "epoch_loss");
  EXPECT_EQ(events[1].summary().value(0).simple_value(), 0.5f);
  EXPECT_GT(events[1].wall_time(), 1.5e9);
}

TEST(EventFile, TwoFilesOfOneSecondHaveDifferentNames) {
  const TemporaryDirectory directory;
  WriteScalars(directory.path(), "a", 0, 1);
  WriteScalars(directory.path(), "a", 1, 2);
  EXPECT_THAT(FilesIn(directory.path()), SizeIs(2));
  EXPECT_THAT(StepsIn(directory.path())["a"], ElementsAre(0, 1));
}

TEST(EventFile, AnErrorNamesTheFileThatCannotBeCreated) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file") << "x";
  const auto file = EventFile::Create(directory / "file");
  EXPECT_THAT(file.status().message(), HasSubstr(directory / "file"));
}

TEST(KeepEvents, OtherEventsAndEmptyFilesAreRemoved) {
  const TemporaryDirectory directory;
  WriteScalars(directory.path(), "a", 0, 3);
  WriteScalars(directory.path(), "a", 3, 5);
  EXPECT_EQ(
      KeepEvents(directory.path(), [](const tensorboard::v1::Event& event) { return event.step() < 2; }),
      absl::OkStatus());
  EXPECT_THAT(FilesIn(directory.path()), SizeIs(1));
  EXPECT_THAT(StepsIn(directory.path())["a"], ElementsAre(0, 1));
}

TEST(KeepEvents, AnIncompleteRecordIsRemoved) {
  const TemporaryDirectory directory;
  WriteScalars(directory.path(), "a", 0, 3);
  const std::string path = FilesIn(directory.path())[0];
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  EXPECT_EQ(KeepEvents(directory.path(), [](const tensorboard::v1::Event&) { return true; }),
            absl::OkStatus());
  EXPECT_THAT(StepsIn(directory.path())["a"], ElementsAre(0, 1));
}

TEST(KeepEvents, FilesOfOtherProgramsAreNotTouched) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "events.out.tfevents.1.host.v2") << "of another program";
  EXPECT_EQ(KeepEvents(directory.path(), [](const tensorboard::v1::Event&) { return false; }),
            absl::OkStatus());
  EXPECT_EQ(ReadFile(directory / "events.out.tfevents.1.host.v2").value(), "of another program");
}

TEST(KeepEvents, AMissingDirectoryIsNoError) {
  const TemporaryDirectory directory;
  EXPECT_EQ(KeepEvents(directory / "none", [](const tensorboard::v1::Event&) { return true; }),
            absl::OkStatus());
  EXPECT_THAT(FilesIn(directory.path()), IsEmpty());
}

}  // namespace
}  // namespace cairn::worker
