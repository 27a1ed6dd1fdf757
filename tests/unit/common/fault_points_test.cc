#include "common/system/fault_points.h"

#include <unistd.h>

#include <csignal>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

using testing::HasSubstr;

TEST(FaultPoints, AreReadFromText) {
  const auto fault = FaultPoints::Parse("applied:12:STOP");
  ASSERT_TRUE(fault.ok()) << fault.status();
  EXPECT_EQ(fault->point, "applied");
  EXPECT_EQ(fault->passing, 12);
  EXPECT_EQ(fault->signal, SIGSTOP);
}

TEST(FaultPoints, OtherTextIsRefused) {
  for (const char* text :
       {"applied", "applied:0:KILL", "applied:x:KILL", ":1:KILL", "applied:1:HUP", "a:1:KILL:2"}) {
    EXPECT_THAT(std::string(FaultPoints::Parse(text).status().message()), HasSubstr(text));
  }
}

TEST(FaultPointsDeathTest, RaiseTheSignalAtThePassingThatWasNamed) {
  const auto pass = [](int times) {
    FaultPoints faults(*FaultPoints::Parse("here:3:KILL"));
    for (int i = 0; i < times; ++i) {
      faults.Pass("here");
      faults.Pass("there");
    }
    _exit(7);
  };
  EXPECT_EXIT(pass(2), testing::ExitedWithCode(7), "");
  EXPECT_EXIT(pass(3), testing::KilledBySignal(SIGKILL), "");
}

TEST(FaultPointsDeathTest, WithoutAFaultNoPassingRaisesASignal) {
  const auto pass = [] {
    FaultPoints faults(*FaultPoints::Parse(""));
    for (const char* point : {"", "here", ""}) faults.Pass(point);
    _exit(7);
  };
  EXPECT_EXIT(pass(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace cairn
