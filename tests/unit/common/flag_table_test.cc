#include "common/flags/flag_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/flags/flags.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<char> ParseLetter(absl::string_view text) {
  if (text.size() == 1) return text[0];
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a letter"));
}

// A program with a flag of every kind.
class FlagTable : public testing::Test {
 protected:
  FlagTable() {
    AddFlags(app_, {{"INPUT FILE", &input_, "What to read"},
                    {"-o, --output FILE", &output_, "What to write"},
                    {"--big_number N", &big_, "A number", WholeNumberFrom(0)},
                    {"--seed N", &seed_, "A number; 0: any", WholeNumberFrom(0), kDefaultInText},
                    {"--rate X", &rate_, "A rate", NumberBetween(0, 1)},
                    {"--limit N", &limit_, "A limit", WholeNumberBetween(0, 9)},
                    {"--mode", &mode_, "A mode", OneOf({"sync", "async"})},
                    {"--letter C", Parsed(&letter_, &ParseLetter), "A letter"},
                    {"--checked C", &checked_, "A letter", ParsedBy(&ParseLetter)},
                    {"--[no]log_it", &log_it_, "A switch with an opposite"},
                    {"--json", &json_, "A switch"},
                    {"--[no]sync", SwitchReader([this](bool yes) { mode_ = yes ? "sync" : "async"; })}});
    AddFlags(app_, "Lists",
             {{"--hosts A,B", &hosts_, "Words"},
              {"--devices A,B", &devices_, "One word", {}, kOneWord},
              {"--place A,B", &place_, "Several times", {}, kRepeatable}});
    AddFlags(app_, "", {{"--hidden N", &big_}});
    AddRules(app_, {{"--sync", kExcludes, "--mode"}, {"--limit", kNeeds, "--seed"}});
  }

  // Parses the arguments; returns the error without the program's name.
  std::string Fault(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "cairn-test");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    ParseCommandLine(app_, static_cast<int>(arguments.size()), arguments.data());
    out_ = testing::internal::GetCapturedStdout();
    const std::string err = testing::internal::GetCapturedStderr();
    return err.empty() ? "" : err.substr(std::string("cairn-test: ").size());
  }

  CLI::App app_{"A program", "cairn-test"};
  std::string input_, output_, mode_ = "async", checked_, out_;
  int64_t big_ = 7;
  uint64_t seed_ = 0;
  double rate_ = 0.5;
  std::optional<int> limit_;
  char letter_ = 'a';
  bool log_it_ = true, json_ = false;
  std::vector<std::string> hosts_, devices_, place_;
};

TEST_F(FlagTable, StoresTheValuesOfAllKinds) {
  ASSERT_EQ(Fault({"in", "-o", "out", "--big-number=9", "--seed=3", "--rate=0.25", "--limit=4", "--letter=b",
                   "--checked=c", "--nolog-it", "--json", "--sync", "--hosts=a,b", "--devices=c,d"}),
            "");
  EXPECT_EQ(input_, "in");
  EXPECT_EQ(output_, "out");
  EXPECT_EQ(big_, 9);
  EXPECT_EQ(seed_, 3u);
  EXPECT_EQ(rate_, 0.25);
  EXPECT_EQ(limit_, 4);
  EXPECT_EQ(letter_, 'b');
  EXPECT_EQ(checked_, "c");
  EXPECT_FALSE(log_it_);
  EXPECT_TRUE(json_);
  EXPECT_EQ(mode_, "sync");
  EXPECT_THAT(hosts_, ElementsAre("a", "b"));
  EXPECT_THAT(devices_, ElementsAre("c", "d"));
}

TEST_F(FlagTable, VariablesKeepTheirValuesIfNothingIsGiven) {
  ASSERT_EQ(Fault({}), "");
  EXPECT_EQ(big_, 7);
  EXPECT_EQ(limit_, std::nullopt);
  EXPECT_EQ(mode_, "async");
  EXPECT_TRUE(log_it_);
}

TEST_F(FlagTable, HelpShowsTheUsageAndTheDefault) {
  Fault({"--help"});
  for (const char* line : {"\n  INPUT ", "\n  -o, --output FILE ", "\n  --big_number N ", "A number [7]\n",
                           "A number; 0: any\n", "\n  --mode sync|async ", "A mode [async]\n",
                           "\n  --[no]log_it ", "\n  --json ", "\n\nLists:\n  --hosts A,B "}) {
    EXPECT_THAT(out_, HasSubstr(line));
  }
  EXPECT_THAT(out_, testing::Not(HasSubstr("--hidden")));
}

TEST_F(FlagTable, FaultsNameTheFlag) {
  EXPECT_EQ(Fault({"--big_number=-1"}), "--big_number: '-1' is not a whole number of at least 0\n");
  EXPECT_EQ(Fault({"--rate=1"}), "--rate: '1' is not a number from 0 to below 1\n");
  EXPECT_EQ(Fault({"--letter=bc"}), "--letter: 'bc' is not a letter\n");
  EXPECT_EQ(Fault({"--checked=bc"}), "--checked: 'bc' is not a letter\n");
  EXPECT_THAT(Fault({"--nojson"}), HasSubstr("unknown flag --nojson"));
}

TEST_F(FlagTable, AListMayBeLimitedToOneWord) {
  ASSERT_EQ(Fault({"in", "--hosts", "a,b", "c"}), "");
  EXPECT_THAT(hosts_, ElementsAre("a", "b", "c"));
  ASSERT_EQ(Fault({"--devices", "a,b", "in"}), "");
  EXPECT_THAT(devices_, ElementsAre("a", "b"));
  EXPECT_EQ(input_, "in");
  ASSERT_EQ(Fault({"--place", "a,b", "--place", "c", "in"}), "");
  EXPECT_THAT(place_, ElementsAre("a", "b", "c"));
}

TEST_F(FlagTable, ARequiredFlagMustBeGiven) {
  std::string text;
  AddFlags(app_, {{"--name NAME", &text, "A name", {}, kRequired}});
  EXPECT_EQ(Fault({}), "--name is required\n");
  EXPECT_EQ(Fault({"--name=a"}), "");
}

TEST_F(FlagTable, RulesAreCheckedWhenFlagsAreGiven) {
  EXPECT_EQ(Fault({"--limit=1"}), "--limit requires --seed\n");
  EXPECT_EQ(Fault({"--limit=1", "--seed=1"}), "");
  EXPECT_EQ(Fault({"--sync", "--mode=sync"}), "--mode excludes --sync\n");
}

TEST(CheckRules, ReportsTheFirstBrokenRule) {
  const FlagUse on{"--on", true}, also{"--also", true}, off{"--off", false};
  EXPECT_TRUE(CheckRules({{on, kNeeds, also, "x"}, {on, kExcludes, off, "x"}, {off, kNeeds, off, "x"}}).ok());
  EXPECT_EQ(CheckRules({{off, kExcludes, on}, {on, kNeeds, off, "reasons"}, {on, kExcludes, also}}),
            absl::InvalidArgumentError("--on needs --off: reasons"));
  EXPECT_EQ(CheckRules({{on, kExcludes, also}}), absl::InvalidArgumentError("--on does not go with --also"));
}

}  // namespace
}  // namespace cairn
