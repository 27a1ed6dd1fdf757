#include "common/flags/flag_docs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "common/flags/flag_table.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A program with all kinds of flags: a choice, a directory, a switch, an address, a hidden flag, a command.
class FlagDocs : public testing::Test {
 protected:
  FlagDocs() {
    AddFlags(app_, {{"--mode", &mode_, "How it goes", OneOf({"sync", "async"})}});
    AddFlags(app_, "Data", {{"--data_dir DIR", &text_, "Where it's [kept]"}});
    AddFlags(app_, {{"--listen HOST:PORT", &text_, "Where to listen"}, {"--[no]shuffle", &shuffle_, "Mix"}});
    AddFlags(app_, "", {{"--hidden", &text_, "Not to be seen"}});
    CLI::App* command = app_.add_subcommand("show", "Show a thing");
    AddFlags(*command,
             {{"THING", &text_, ".hidden things too", {}, kRequired}, {"--json", &shuffle_, "For programs"}});
  }

  CLI::App app_{"Does things", "do-it"};
  std::string mode_ = "sync", text_;
  bool shuffle_ = false;
};

TEST_F(FlagDocs, APageHasNameVersionFlagsAndCommands) {
  const std::string page = ManPage(app_, "1.2.3");
  EXPECT_THAT(
      page, StartsWith(".TH DO\\-IT 1 \"\" \"cairn 1.2.3\" \"Cairn\"\n.SH NAME\ndo\\-it \\- Does things\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-mode\\fR \\fIsync|async\\fR\nHow it goes [sync]\n"));
  EXPECT_THAT(page, HasSubstr(".PP\nData:\n.RS\n.TP\n\\fB\\-\\-data_dir\\fR \\fIDIR\\fR\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-listen\\fR \\fIHOST:PORT\\fR\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-shuffle\\fR, \\fB\\-\\-noshuffle\\fR\nMix\n"));
  EXPECT_THAT(
      page,
      HasSubstr(
          ".SS do\\-it show\nShow a thing\n.PP\n\\fBdo\\-it show\\fR \\fITHING\\fR [\\fIOPTIONS\\fR]\n"));
  EXPECT_THAT(page, HasSubstr(".SH EXIT STATUS\n"));
  EXPECT_THAT(page, Not(HasSubstr("hidden\\fR")));
}

TEST_F(FlagDocs, TheFlagsOfACommandPrecedeTheProgramThatItStarts) {
  std::vector<std::string> program;
  AddFlags(*app_.add_subcommand("run", "Run a program"),
           {{"PROGRAM", &program, "Any program", {}, kProgram}});
  EXPECT_THAT(ManPage(app_, "1"), HasSubstr("\n\\fBdo\\-it run\\fR [\\fIOPTIONS\\fR] \\fIPROGRAM\\fR ...\n"));
}

TEST_F(FlagDocs, TextThatTroffWouldReadAsARequestIsEscaped) {
  EXPECT_THAT(ManPage(app_, "1"), HasSubstr("\\fBTHING\\fR\n\\&.hidden things too"));
}

TEST_F(FlagDocs, BashCompletesWordsFilesAndCommands) {
  const std::string script = BashCompletion(app_);
  EXPECT_THAT(script,
              AllOf(HasSubstr("\n_do_it() {\n"), HasSubstr("complete -o filenames -F _do_it do-it\n")));
  EXPECT_THAT(script, HasSubstr("':--mode') COMPREPLY=($(compgen -W 'sync async' -- \"$word\"))"));
  EXPECT_THAT(script, HasSubstr("':--data_dir') COMPREPLY=($(compgen -f -- \"$word\"))"));
  EXPECT_THAT(script, HasSubstr("'show') path=$next ;;"));
  EXPECT_THAT(script, HasSubstr("'show') candidates='-h --help --json' ;;"));
  EXPECT_THAT(script, Not(HasSubstr("--hidden")));
}

TEST_F(FlagDocs, ZshCompletesTheSameWithDescriptions) {
  const std::string script = ZshCompletion(app_);
  EXPECT_THAT(script, StartsWith("#compdef do-it\n"));
  EXPECT_THAT(script, HasSubstr("'--mode=[How it goes]:sync|async:(sync async)'"));
  EXPECT_THAT(script, HasSubstr("'--data_dir=[Where it'\\''s \\[kept\\]]:DIR:_files'"));
  EXPECT_THAT(script, HasSubstr("'show[Show a thing]'"));
  EXPECT_THAT(script, HasSubstr("show) _do_it_show ;;"));
  EXPECT_THAT(script, HasSubstr("_do_it \"$@\"\n"));
  EXPECT_THAT(script, Not(HasSubstr("--hidden")));
}

}  // namespace
}  // namespace cairn
