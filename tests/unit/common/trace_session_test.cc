#include "common/trace/trace_session.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <thread>

#include "common/core/files.h"
#include "common/flags/flags.h"
#include "common/trace/trace_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The path of a file that does not exist.
std::string Path(const char* name) {
  std::string path = absl::StrCat(::testing::TempDir(), "/cairn_session_", getpid(), name);
  std::remove(path.c_str());
  return path;
}

void RecordOne(TraceRecorder& trace) {
  const TraceSpan span(&trace, TraceLane::kStep, "step");
}

TEST(TraceSteps, AreParsedFromTwoNumbers) {
  const auto steps = ParseTraceSteps("5:20");
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps->first, 5);
  EXPECT_EQ(steps->last, 20);
  EXPECT_TRUE(ParseTraceSteps("7:7").ok());
  EXPECT_EQ(ParseTraceSteps("5:2").status().message(), "'5:2': step 2 comes before step 5");
  EXPECT_EQ(ParseTraceSteps("0:2").status().message(), "'0:2': steps count from 1");
  for (const char* text : {"", "5", "a:b", "1:2:3", "1:", ":4", "1.5:2"}) {
    EXPECT_EQ(ParseTraceSteps(text).status().message(),
              absl::StrCat("'", text, "' is not a range FIRST:LAST of steps"));
  }
}

TEST(TraceFlags, ErrorsNameTheFlag) {
  CLI::App app("a program", "cairn-test");
  TraceFlags flags;
  AddTraceFlags(app, flags);
  EXPECT_THAT(std::string(ReadFlags(app, {"--trace_file=a", "--trace-steps=5:2"}).message()),
              HasSubstr("--trace_steps: '5:2': step 2 comes before step 5"));
  EXPECT_EQ(CheckTraceFlags({.steps = TraceSteps()}).message(), "--trace_steps needs --trace_file");
  const absl::Status unwritable = CheckTraceFlags({.file = Path("no_such_directory/t.json")});
  EXPECT_EQ(unwritable.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unwritable.message()), HasSubstr("--trace_file: cannot create "));
  EXPECT_TRUE(CheckTraceFlags({}).ok());
  EXPECT_TRUE(CheckTraceFlags({.file = Path("writable.json")}).ok());
}

TEST(TraceSession, WithoutAFileNothingIsRecorded) {
  TraceSession session({}, "ps/0");
  EXPECT_EQ(session.recorder(), nullptr);
}

TEST(TraceSession, TheFileIsWrittenAtTheEnd) {
  const std::string file = Path("session_end.json");
  {
    TraceSession session({.file = file}, "ps/0");
    RecordOne(*session.recorder());
  }
  const auto trace = ParseTrace(ReadFile(file).value(), file);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->task, "ps/0");
  EXPECT_THAT(trace->slices, SizeIs(1));
}

TEST(TraceSession, TheFileIsWrittenAfterTheStepsAndLaterEventsAreAdded) {
  const std::string file = Path("session_window.json");
  {
    TraceSession session({.file = file, .steps = TraceSteps{.first = 2, .last = 3}}, "worker/0");
    TraceRecorder& trace = *session.recorder();
    trace.AtStep(3);
    const TraceSpan late(&trace, TraceLane::kSnapshot, "save");
    RecordOne(trace);
    trace.AtStep(4);
    RecordOne(trace);
    while (!FileExists(file)) std::this_thread::yield();  // limited by the timeout of the test
    EXPECT_THAT(ParseTrace(ReadFile(file).value(), file)->slices, SizeIs(1));
  }
  EXPECT_THAT(ParseTrace(ReadFile(file).value(), file)->slices, SizeIs(2));
}

// The text of a file with one slice.
std::string LifeOf(const std::string& task, bool ended) {
  TraceRecorder recorder(task);
  RecordOne(recorder);
  TaskTrace trace = LayOut(recorder);
  trace.ended = ended;
  return ToJson(trace);
}

TEST(TraceSession, FilesOfUnfinishedEarlierLivesAreKept) {
  const std::string file = Path("session_life.json");
  const std::string first = LifeOf("ps/0", false), second = LifeOf("ps/0", false);
  for (const std::string& life : {first, second}) {
    ASSERT_TRUE(WriteFileAtomically(file, life).ok());
    const TraceSession session({.file = file}, "ps/0");
  }
  const std::vector<std::string> lives = EarlierLives(file);
  ASSERT_THAT(lives, ElementsAre(file + ".1", file + ".2"));
  EXPECT_EQ(ReadFile(lives[0]).value(), first);
  EXPECT_EQ(ReadFile(lives[1]).value(), second);
  EXPECT_THAT(ParseTrace(ReadFile(file).value(), file)->slices, IsEmpty());

  {
    const TraceSession session({.file = file}, "ps/0");
  }  // the previous life ended normally
  EXPECT_THAT(EarlierLives(file), IsEmpty());
}

TEST(TraceSession, OtherFilesAreNotTakenForEarlierLives) {
  const std::string file = Path("session_other.json");
  for (const std::string& text :
       {LifeOf("ps/0", true), LifeOf("ps/1", false), std::string("{}"), std::string("\n\"otherData\":")}) {
    ASSERT_TRUE(WriteFileAtomically(file, text).ok());
    {
      const TraceSession session({.file = file}, "ps/0");
    }
    EXPECT_THAT(EarlierLives(file), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace cairn
