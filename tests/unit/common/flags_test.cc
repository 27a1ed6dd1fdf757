#include "common/flags/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/flags/flag_table.h"

namespace cairn {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Outcome {
  std::optional<ExitCode> code;
  std::string out;
  std::string err;
};

Outcome Parse(CLI::App& app, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "/usr/bin/whatever");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = ParseCommandLine(app, static_cast<int>(arguments.size()), arguments.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

class Flags : public testing::Test {
 protected:
  Flags() {
    AddFlags(app_, {{"--batch_size", &batch_size_, "", WholeNumberFrom(1)},
                    {"--step_timeout", &timeout_, "", NumberAbove(0)},
                    {"--threads", &threads_, "", WholeNumberBetween(0, 1024)},
                    {"--mode", &mode_, "", OneOf({"sync", "async"})},
                    {"--[no]log_it", &log_it_},
                    {"--hosts", &hosts_},
                    {"-o, --output", &output_}});
    app_.add_option("--fault", faults_)->group("");
    app_.add_option("--watch", watch_)->expected(0, 1)->default_str("2");
  }
  CLI::App app_{"A program", "cairn-test"};
  int64_t batch_size_ = 32;
  double timeout_ = 1;
  int threads_ = 0;
  std::string mode_ = "async";
  bool log_it_ = true;
  std::string output_;
  int watch_ = 0;
  std::vector<std::string> hosts_, faults_;
};

TEST_F(Flags, BothSpellingsAreOneFlag) {
  EXPECT_EQ(Parse(app_, {"--batch-size", "64"}).code, std::nullopt);
  EXPECT_EQ(batch_size_, 64);
  EXPECT_EQ(Parse(app_, {"--batch_size=16"}).code, std::nullopt);
  EXPECT_EQ(batch_size_, 16);
}

TEST_F(Flags, ANegatedSwitchHasBothSpellingsToo) {
  EXPECT_EQ(Parse(app_, {"--nolog-it"}).code, std::nullopt);
  EXPECT_FALSE(log_it_);
  EXPECT_EQ(Parse(app_, {"--log_it"}).code, std::nullopt);
  EXPECT_TRUE(log_it_);
}

TEST_F(Flags, HelpGoesToStdoutAndExitsWithSuccess) {
  const Outcome outcome = Parse(app_, {"--help"});
  EXPECT_EQ(outcome.code, ExitCode::kDone);
  EXPECT_THAT(outcome.out, HasSubstr("--batch_size "));
  EXPECT_THAT(outcome.out, HasSubstr("--[no]log_it "));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Flags, VersionNamesTheProgram) {
  const Outcome outcome = Parse(app_, {"--version"});
  EXPECT_EQ(outcome.code, ExitCode::kDone);
  EXPECT_EQ(outcome.out, "cairn-test " + std::string(Version()) + "\n");
}

TEST_F(Flags, VersionPrintsTheTextOfTheProgram) {
  testing::internal::CaptureStdout();
  const char* const arguments[] = {"cairn-test", "--version"};
  EXPECT_EQ(ParseCommandLine(app_, 2, arguments, "1.2.3 (commit 0123abc)"), ExitCode::kDone);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "cairn-test 1.2.3 (commit 0123abc)\n");
}

TEST(Help, ShowsTheNameOfAValueItsDefaultAndWhatItNeeds) {
  CLI::App app("A program", "cairn-test");
  int threads = 2, devices = 0;
  std::string mode;
  AddFlags(app, {{"--threads N", &threads, "Compute threads", WholeNumberBetween(0, 8)},
                 {"--mode", &mode, "When gradients are applied", OneOf({"sync", "async"})}});
  AddFlags(app, "Devices", {{"--devices N", &devices, "Devices", {}, kDefaultInText}});
  AddRules(app, {{"--devices", kNeeds, "--threads"}});
  const std::string help = Parse(app, {"--help"}).out;
  EXPECT_THAT(help, ContainsRegex("\n  --threads N +Compute threads \\[2\\]\n"));
  EXPECT_THAT(help, ContainsRegex("\n  --mode sync\\|async +When gradients are applied\n"));
  EXPECT_THAT(help, ContainsRegex("\n\nDevices:\n  --devices N +Devices \\(needs --threads\\)\n"));
}

TEST(Help, LongDescriptionsAreWrapped) {
  CLI::App app("A program", "cairn-test");
  std::string text, words;
  for (int i = 0; i < 60; ++i) words += i == 0 ? "word" : " word";
  app.add_option("--text", text, words);
  const std::string help = Parse(app, {"--help"}).out;
  for (size_t begin = 0, end = 0; end < help.size(); begin = end + 1) {
    end = std::min(help.find('\n', begin), help.size());
    EXPECT_LE(end - begin, 100u) << help.substr(begin, end - begin);
  }
}

TEST_F(Flags, FaultsAreOneLineThatNamesTheFlag) {
  const std::vector<std::pair<std::vector<const char*>, std::string>> faults = {
      {{"--batch_size", "0"}, "--batch_size: '0' is not a whole number of at least 1"},
      {{"--batch-size=-3"}, "--batch_size: '-3' is not a whole number of at least 1"},
      {{"--batch_size", "-3"}, "--batch_size: '-3' is not a whole number of at least 1"},
      {{"--batch_size", "1e9"}, "--batch_size: '1e9' is not a whole number of at least 1"},
      {{"--threads", "1025"}, "--threads: '1025' is not a whole number from 0 to 1024"},
      {{"--threads=0x10"}, "--threads: '0x10' is not a whole number from 0 to 1024"},
      {{"--step_timeout", "nan"}, "--step_timeout: 'nan' is not a number above 0"},
      {{"--mode", "hogwild"}, "--mode: 'hogwild' is not one of sync, async"},
      {{"--bach_size", "3"}, "unknown flag --bach_size, did you mean --batch_size?"},
      {{"--learning_rate=3"}, "unknown flag --learning_rate"},
      {{"stray"}, "unexpected argument 'stray'"},
      {{"--batch_size"}, "--batch_size needs a value"},
      {{"--batch_size", "1", "--batch-size", "2"}, "--batch_size is given more than once"},
      {{"--log_it", "--nolog_it"}, "--log_it is given more than once"},
      {{"--hosts=a", "--hosts", "b"}, "--hosts is given more than once: its values go between commas"},
      {{"-o", "a", "-ob"}, "--output is given more than once"},
      {{"--mode", ""}, "--mode: the value is empty"},
      {{"--mode=", "sync"}, "--mode: the value is empty"},
      {{"--log_it="}, "--log_it: the value is empty"},
      {{"-o", ""}, "--output: the value is empty"},
      {{""}, "argument 1 is empty"},
      {{"--output", "--mode=sync"}, "--output needs a value before --mode=sync"},
      {{"--output", "-o"}, "--output needs a value before -o"},
      {{"--log_it=maybe"}, "--log_it: 'maybe' is neither true nor false"},
  };
  for (const auto& [arguments, fault] : faults) {
    const Outcome outcome = Parse(app_, arguments);
    EXPECT_EQ(outcome.code, ExitCode::kUsage) << fault;
    EXPECT_EQ(outcome.err, "cairn-test: " + fault + "\n");
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(Flags, AValueAfterEqualsMayLookLikeAFlag) {
  EXPECT_EQ(Parse(app_, {"--output=--mode"}).code, std::nullopt);
  EXPECT_EQ(output_, "--mode");
}

TEST_F(Flags, TheNextFlagIsNotTakenAsAnOptionalValue) {
  EXPECT_EQ(Parse(app_, {"--watch", "--mode=sync"}).code, std::nullopt);
  EXPECT_EQ(watch_, 2);
  EXPECT_EQ(Parse(app_, {"--mode=sync", "--watch", "5"}).code, std::nullopt);
  EXPECT_EQ(watch_, 5);
}

TEST_F(Flags, AHiddenFlagMayBeRepeated) {
  EXPECT_EQ(Parse(app_, {"--fault", "a", "--fault", "b"}).code, std::nullopt);
  EXPECT_THAT(faults_, ElementsAre("a", "b"));
}

TEST_F(Flags, ASwitchTakesTheUsualWords) {
  for (const char* no : {"--log_it=false", "--log_it=0", "--log_it=off", "--nolog_it=true"}) {
    log_it_ = true;
    EXPECT_EQ(Parse(app_, {no}).code, std::nullopt) << no;
    EXPECT_FALSE(log_it_) << no;
  }
}

TEST_F(Flags, FlagsForAnotherProgramAreCheckedTheSameWay) {
  EXPECT_EQ(ReadFlags(app_, {"--batch_size=1", "--batch_size=2"}).message(),
            "--batch_size is given more than once");
  EXPECT_EQ(ReadFlags(app_, {"--mode="}).message(), "--mode: the value is empty");
}

TEST_F(Flags, AFaultInASubcommandNamesIt) {
  CLI::App outer("All", "cairn");
  outer.require_subcommand(1);
  int epochs = 1;
  AddFlags(*outer.add_subcommand("train", "Train"), {{"--epochs N", &epochs, "", WholeNumberFrom(1)}});
  EXPECT_EQ(Parse(outer, {"train", "--epochs", "x"}).err,
            "cairn train: --epochs: 'x' is not a whole number of at least 1\n");
  EXPECT_EQ(Parse(outer, {"train", "--epoch", "1"}).err,
            "cairn train: unknown flag --epoch, did you mean --epochs?\n");
  EXPECT_EQ(Parse(outer, {"train", "--epochs=1", "--epochs=1"}).err,
            "cairn train: --epochs is given more than once\n");
}

TEST_F(Flags, AnUnknownCommandIsNamed) {
  CLI::App outer("All", "cairn");
  outer.add_subcommand("train", "Train");
  EXPECT_EQ(Parse(outer, {"trian"}).err, "cairn: unknown command 'trian'\n");
}

TEST_F(Flags, GivenFlagsAreOnlyThoseOfTheCommandLine) {
  ASSERT_EQ(Parse(app_, {"--nolog_it", "--mode", "sync"}).code, std::nullopt);
  EXPECT_THAT(GivenFlags(app_, app_), ElementsAre("--mode=sync", "--log_it=false"));
}

TEST_F(Flags, GivenFlagsHaveTheSameEffectWhenParsedAgain) {
  ASSERT_EQ(Parse(app_, {"--nolog_it", "--batch-size", "7"}).code, std::nullopt);
  const std::vector<std::string> given = GivenFlags(app_, app_);
  batch_size_ = 1;
  log_it_ = true;
  std::vector<const char*> again;
  for (const std::string& argument : given) again.push_back(argument.c_str());
  ASSERT_EQ(Parse(app_, again).code, std::nullopt);
  EXPECT_EQ(batch_size_, 7);
  EXPECT_FALSE(log_it_);
}

// A program whose command "run" starts another program.
class ProgramFlag : public testing::Test {
 protected:
  ProgramFlag() {
    app_.require_subcommand(0, 1);
    app_.add_subcommand("train", "");
    CLI::App* run = app_.add_subcommand("run", "");
    AddFlags(*run, {{"PROGRAM", &program_, "", {}, kProgram},
                    {"--workers N", &workers_, "", WholeNumberFrom(1)},
                    {"--[no]log_it", &log_it_}});
  }
  CLI::App app_{"A program", "cairn-test"};
  std::vector<std::string> program_;
  int workers_ = 1;
  bool log_it_ = true;
};

TEST_F(ProgramFlag, EverythingFromTheProgramOnBelongsToIt) {
  ASSERT_EQ(Parse(app_, {"run", "--workers", "2", "--nolog_it", "train", "--workers", "3", "--help", "",
                         "[1,2]", "{}", "--", "a,b"})
                .code,
            std::nullopt);
  EXPECT_THAT(program_, ElementsAre("train", "--workers", "3", "--help", "", "[1,2]", "{}", "--", "a,b"));
  EXPECT_EQ(workers_, 2);
  EXPECT_FALSE(log_it_);
}

TEST_F(ProgramFlag, TwoDashesMayPrecedeTheProgram) {
  ASSERT_EQ(Parse(app_, {"run", "--workers=2", "--", "-x", "y"}).code, std::nullopt);
  EXPECT_THAT(program_, ElementsAre("-x", "y"));
  EXPECT_EQ(workers_, 2);
}

TEST_F(ProgramFlag, FaultsInTheFlagsBeforeTheProgramAreReported) {
  const std::pair<std::vector<const char*>, std::string> faults[] = {
      {{"run", "--worker", "2", "x"}, "cairn-test run: unknown flag --worker, did you mean --workers?\n"},
      {{"run", "--workers", "x"}, "cairn-test run: --workers: 'x' is not a whole number of at least 1\n"},
      {{"run", "--workers", "1", "--workers", "2", "x"},
       "cairn-test run: --workers is given more than once\n"},
      {{"run", "--workers"}, "cairn-test run: --workers needs a value\n"}};
  for (const auto& [arguments, fault] : faults) {
    const Outcome outcome = Parse(app_, arguments);
    EXPECT_EQ(outcome.code, ExitCode::kUsage);
    EXPECT_EQ(outcome.err, fault);
  }
}

TEST_F(ProgramFlag, TheProgramMayBeMissing) {
  ASSERT_EQ(Parse(app_, {"run", "--workers", "2"}).code, std::nullopt);
  EXPECT_TRUE(program_.empty());
}

TEST(LogLevelFlag, ParsesTheNamesOfLevels) {
  CLI::App app("A program", "cairn-test");
  std::string level = "info", format = "text";
  AddLogFlags(app, level, format);
  ASSERT_EQ(Parse(app, {"--log-level=warning"}).code, std::nullopt);
  EXPECT_EQ(LogLevelOf(level), LogLevel::kWarning);
  EXPECT_THAT(Parse(app, {"--log_level=loud"}).err, HasSubstr("not one of debug, info, warning, error"));
}

}  // namespace
}  // namespace cairn
