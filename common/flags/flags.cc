#include "common/flags/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/flags/edit_distance.h"
#include "common/flags/flag_arguments.h"
#include "common/flags/flag_docs.h"
#include "common/flags/flag_table.h"
#include "common/system/standard_streams.h"

namespace cairn {
namespace {

std::string Dashed(absl::string_view name) {
  return absl::StrReplaceAll(name, {{"_", "-"}});
}

// The subcommand that was being parsed, or the program itself.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : Innermost(*chosen.back());
}

std::string FullName(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : absl::StrCat(FullName(*app.get_parent()), " ", app.get_name());
}

std::string DescribeStranger(const CLI::App& app, const std::string& argument) {
  if (!absl::StartsWith(argument, "-")) {
    const bool has_commands = !app.get_subcommands([](const CLI::App*) { return true; }).empty();
    return absl::StrCat(has_commands ? "unknown command '" : "unexpected argument '", argument, "'");
  }
  const std::string flag = argument.substr(0, argument.find('='));
  std::string nearest;
  size_t distance = 3;  // a distance of 3 or more is not a typing error
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const size_t candidate = EditDistance(Dashed(flag), absl::StrCat("--", Dashed(name)));
      if (candidate >= distance) continue;
      distance = candidate;
      nearest = absl::StrCat("--", option->get_lnames()[0]);
    }
  }
  return absl::StrCat("unknown flag ", flag,
                      nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?"));
}

// The width of the second column of --help, which contains the descriptions.
constexpr size_t kDescriptionWidth = 70;

// `text` with a line break wherever a word would exceed `width` columns.
std::string Wrapped(absl::string_view text, size_t width) {
  std::string lines;
  size_t column = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const bool breaks = column > 0 && column + 1 + word.size() > width;
    absl::StrAppend(&lines, lines.empty() ? "" : breaks ? "\n" : " ", word);
    column = breaks ? word.size() : column + word.size() + (column > 0 ? 1 : 0);
  }
  return lines;
}

// Prints --help: each flag once, in its `_` spelling, with the name of its value; a switch as --[no]shuffle;
// then the description, wrapped, with the default in brackets. The man pages (flag_docs.h) show the same
// text.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "COMMAND");
  }

  // CLI11 separates groups by two empty lines.
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return absl::StrReplaceAll(CLI::Formatter::make_help(app, std::move(name), mode), {{"\n\n\n", "\n\n"}});
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional || option->get_lnames().empty())
      return CLI::Formatter::make_option_name(option, is_positional);
    const std::string& name = option->get_lnames()[0];
    const std::string shown = absl::StrCat(option->get_fnames().empty() ? "--" : "--[no]", name);
    return option->get_snames().empty() ? shown : absl::StrCat("-", option->get_snames()[0], ", ", shown);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = ValueName(*option);
    return value.empty() ? value : absl::StrCat(" ", value);
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return Wrapped(FullDescription(*option), kDescriptionWidth);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_name(), Wrapped(command->get_description(), kDescriptionWidth),
                             get_column_width());
    return out.str();
  }
};

void UseFormatter(CLI::App& app, const std::shared_ptr<HelpFormatter>& formatter) {
  app.formatter(formatter);
  for (CLI::App* subcommand : app.get_subcommands([](CLI::App*) { return true; }))
    UseFormatter(*subcommand, formatter);
}

// The error for a command that was given no known subcommand.
std::string DescribeSubcommands(const CLI::App& app) {
  const auto name = [](std::string* out, const CLI::App* command) {
    absl::StrAppend(out, command->get_name());
  };
  const std::string known =
      absl::StrJoin(app.get_subcommands([](const CLI::App*) { return true; }), ", ", name);
  const std::vector<std::string> strangers = app.remaining();
  const bool names_one = !strangers.empty() && !absl::StartsWith(strangers.front(), "-");
  return names_one ? absl::StrCat("unknown subcommand '", strangers.front(), "'; known: ", known)
                   : absl::StrCat("a subcommand is missing: ", known);
}

std::string Describe(const CLI::App& app, const CLI::ParseError& error) {
  if (app.get_require_subcommand_min() > 0 && app.get_subcommands().empty()) return DescribeSubcommands(app);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> strangers = app.remaining();
    if (!strangers.empty()) return DescribeStranger(app, strangers.front());
  }
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return absl::StrCat(text.substr(0, text.find(':')),
                        absl::EndsWith(text, " missing") ? " needs a value" : " is given more than once");
  }
  return text;
}

// The text for --help_as=man|bash|zsh, which the build uses and --help does not show.
std::optional<std::string> DocumentAs(const CLI::App& app, absl::string_view argument) {
  if (argument == "--help_as=man") return ManPage(app, Version());
  if (argument == "--help_as=bash") return BashCompletion(app);
  if (argument == "--help_as=zsh") return ZshCompletion(app);
  return std::nullopt;
}

// Stores the result of TakeProgram() in the variable of the chosen command's kProgram.
void StoreProgram(CLI::App& app, const std::vector<std::string>& program) {
  if (const std::vector<CLI::App*> chosen = app.get_subcommands(); !chosen.empty()) {
    return StoreProgram(*chosen.back(), program);
  }
  if (!app.get_prefix_command()) return;
  // With prefix_command(), CLI11 accepts unknown flags.
  if (const auto strangers = app.remaining(); !strangers.empty()) {
    throw CLI::ExtrasError(app.get_name(), strangers);
  }
  if (program.empty()) return;
  for (CLI::Option* option : app.get_options([](CLI::Option* each) { return each->get_positional(); })) {
    option->add_result(program);
    option->run_callback();
  }
}

// The exit code after --help and similar flags have printed their text.
ExitCode EndOfPrinting(const CLI::App& app) {
  const absl::Status status = FlushStandardOutput();
  if (status.ok()) return ExitCode::kDone;
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), std::string(status.message()).c_str());
  return ExitCode::kFailure;
}

}  // namespace

void AddLogFlags(CLI::App& app, std::string& level, std::string& format) {
  AddFlags(app, kLoggingGroup,
           {{"--log_level", &level, "Lowest severity of the messages on stderr",
             OneOf({"debug", "info", "warning", "error"})},
            {"--log_format", &format, "Format of log lines and progress: text, or one JSON object per line",
             OneOf({"text", "json"})}});
}

LogFormat LogFormatOf(absl::string_view name) {
  return name == "json" ? LogFormat::kJson : LogFormat::kText;
}

void AddFaultFlag(CLI::App& app, FaultPoints::Fault& fault) {
  AddFlags(app, "", {{"--fault", Parsed(&fault, &FaultPoints::Parse)}});
}

LogLevel LogLevelOf(absl::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  CAIRN_CHECK(name == "error");
  return LogLevel::kError;
}

std::optional<ExitCode> ParseCommandLine(CLI::App& app, int argc, const char* const* argv,
                                         absl::string_view version) {
  app.set_version_flag("--version", absl::StrCat(app.get_name(), " ", version), "Print the version and exit");
  UseFormatter(app, std::make_shared<HelpFormatter>());
  if (argc == 2) {
    if (const auto text = DocumentAs(app, argv[1])) {
      std::fwrite(text->data(), 1, text->size(), stdout);
      return EndOfPrinting(app);
    }
  }
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const std::vector<std::string> program = TakeProgram(app, arguments);
  if (const auto fault = FindArgumentFault(app, arguments)) {
    return UsageError(FullName(*fault->command), fault->text);
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 expects reverse order
    StoreProgram(app, program);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);
      return EndOfPrinting(app);
    }
    const CLI::App& innermost = Innermost(app);
    return UsageError(FullName(innermost), Describe(innermost, error));
  } catch (const std::exception& error) {  // CLI11's conversions throw more than they document
    return UsageError(FullName(Innermost(app)), error.what());
  }
}

absl::Status ReadFlags(CLI::App& app, const std::vector<std::string>& flags) {
  if (const auto fault = FindArgumentFault(app, flags)) return absl::InvalidArgumentError(fault->text);
  try {
    app.parse(std::vector<std::string>(flags.rbegin(), flags.rend()));  // CLI11 expects them in reverse order
    return absl::OkStatus();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0)
      return absl::InvalidArgumentError("the flags request help instead of training");
    return absl::InvalidArgumentError(Describe(app, error));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

ExitCode UsageError(absl::string_view program, absl::string_view fault) {
  const std::string line = absl::StrCat(
      program, ": ", absl::StrJoin(absl::StrSplit(fault, '\n', absl::SkipWhitespace()), " "), "\n");
  std::fputs(line.c_str(), stderr);
  return ExitCode::kUsage;
}

std::vector<std::string> GivenFlags(const CLI::App& parsed, const CLI::App& declares) {
  std::vector<std::string> arguments;
  for (const CLI::Option* declared : declares.get_options()) {
    const CLI::Option* option = parsed.get_option_no_throw(declared->get_name());
    if (option == nullptr || option->empty() || declared == declares.get_help_ptr()) continue;
    arguments.push_back(absl::StrCat(declared->get_name(), "=", absl::StrJoin(option->results(), ",")));
  }
  return arguments;
}

absl::string_view Version() {
  return CAIRN_VERSION;
}

}  // namespace cairn
