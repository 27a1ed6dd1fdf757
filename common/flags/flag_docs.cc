#include "common/flags/flag_docs.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The options that --help shows.
std::vector<const CLI::Option*> OptionsOf(const CLI::App& app, bool positional) {
  return app.get_options([positional](const CLI::Option* option) {
    return !option->get_group().empty() && option->get_positional() == positional;
  });
}

// The names as --help spells them ("--data_dir"); for a switch also the negated one ("--noshuffle").
std::vector<std::string> Spellings(const CLI::Option& option) {
  std::vector<std::string> spellings;
  for (const std::string& name : option.get_snames()) spellings.push_back(absl::StrCat("-", name));
  if (!option.get_lnames().empty()) spellings.push_back(absl::StrCat("--", option.get_lnames()[0]));
  if (!option.get_fnames().empty()) spellings.push_back(absl::StrCat("--no", option.get_lnames()[0]));
  return spellings;
}

bool TakesValue(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

// The type of the value: the words of its check if it has any ("sync|async" of "TEXT:sync|async"), else the
// name of its type ("HOST:PORT").
std::string TypeOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string check = type.substr(type.rfind(':') + 1);
  return absl::StrContains(check, "|") ? check : type;
}

// The fixed words of a type such as "auto|never|DIR". Words in capitals are placeholders and are left out.
std::vector<std::string> Words(const CLI::Option& option) {
  std::vector<std::string> words;
  const std::string type = TypeOf(option);
  if (!absl::StrContains(type, "|")) return words;
  for (absl::string_view word : absl::StrSplit(type, '|')) {
    if (std::all_of(word.begin(), word.end(),
                    [](char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); })) {
      words.emplace_back(word);
    }
  }
  return words;
}

bool TakesFiles(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return absl::StrContains(type, "FILE") || absl::StrContains(type, "DIR");
}

// --- man ---

std::string Troff(absl::string_view text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  if (absl::StartsWith(escaped, ".") || absl::StartsWith(escaped, "'"))
    escaped = absl::StrCat("\\&", escaped);
  return absl::StrReplaceAll(escaped, {{"\n.", "\n\\&."}, {"\n'", "\n\\&'"}});
}

void AppendOption(const CLI::Option& option, std::string& page) {
  std::vector<std::string> names = Spellings(option);
  if (names.empty()) names = {option.get_name(/*positional=*/true)};
  absl::StrAppend(&page, ".TP\n", absl::StrJoin(names, ", ", [](std::string* out, const std::string& name) {
    absl::StrAppend(out, "\\fB", Troff(name), "\\fR");
  }));
  if (const std::string value = ValueName(option); !value.empty()) {
    absl::StrAppend(&page, " \\fI", Troff(value), "\\fR");
  }
  absl::StrAppend(&page, "\n", Troff(FullDescription(option)), "\n");
}

void AppendOptions(const CLI::App& app, std::string& page) {
  for (const CLI::Option* option : OptionsOf(app, /*positional=*/true)) AppendOption(*option, page);
  for (const std::string& group : app.get_groups()) {
    std::string within;
    for (const CLI::Option* option : OptionsOf(app, /*positional=*/false)) {
      if (option->get_group() == group) AppendOption(*option, within);
    }
    if (!within.empty()) absl::StrAppend(&page, ".PP\n", Troff(group), ":\n.RS\n", within, ".RE\n");
  }
}

std::string Synopsis(const CLI::App& app, const std::string& name) {
  std::string line = absl::StrCat("\\fB", Troff(name), "\\fR");
  const bool flags_first = app.get_prefix_command();  // kProgram of flag_table.h
  if (flags_first) absl::StrAppend(&line, " [\\fIOPTIONS\\fR]");
  for (const CLI::Option* option : OptionsOf(app, /*positional=*/true)) {
    const std::string shown = Troff(option->get_name(/*positional=*/true));
    absl::StrAppend(&line, option->get_required() || flags_first ? absl::StrCat(" \\fI", shown, "\\fR")
                                                                 : absl::StrCat(" [\\fI", shown, "\\fR]"));
  }
  if (!CommandsOf(app).empty()) absl::StrAppend(&line, " \\fICOMMAND\\fR");
  return absl::StrCat(line, flags_first ? " ..." : " [\\fIOPTIONS\\fR]", "\n");
}

void AppendCommands(const CLI::App& app, const std::string& name, std::string& page) {
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string full = absl::StrCat(name, " ", command->get_name());
    absl::StrAppend(&page, ".SS ", Troff(full), "\n", Troff(command->get_description()), "\n.PP\n",
                    Synopsis(*command, full));
    AppendOptions(*command, page);
    AppendCommands(*command, full, page);
  }
}

constexpr char kExitStatus[] =
    ".SH EXIT STATUS\n"
    ".TP\n0\ndone\n"
    ".TP\n1\npermanent failure: bad data, a NaN\n"
    ".TP\n2\na flag, the cluster config or the model file is wrong\n"
    ".TP\n3\nincompatible checkpoint, model or protocol\n"
    ".TP\n138\ntemporary failure, retry: the cluster was not reached in time, or a task was lost\n"
    ".TP\n130, 143\nstopped by SIGINT, SIGTERM\n";

// --- shells ---

// Calls visit(path, app) for the program, with an empty path, and for each command ("checkpoint list").
template <typename Visit>
void ForEachCommand(const CLI::App& app, const std::string& path, Visit visit) {
  visit(path, app);
  for (const CLI::App* command : CommandsOf(app)) {
    ForEachCommand(*command,
                   path.empty() ? command->get_name() : absl::StrCat(path, " ", command->get_name()), visit);
  }
}

std::string Identifier(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"-", "_"}, {" ", "_"}});
}

// `text` in single quotes, for a shell.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Escapes a description for use between brackets in zsh's _arguments.
std::string ZshText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}, {"\n", " "}});
}

// The ":message:action" part of zsh's _arguments for the option's value.
std::string ZshValue(const CLI::Option& option) {
  const std::vector<std::string> words = Words(option);
  const std::string what = ZshText(TypeOf(option).empty() ? "value" : TypeOf(option));
  if (TakesFiles(option)) return absl::StrCat(":", what, ":_files");
  if (!words.empty()) return absl::StrCat(":", what, ":(", absl::StrJoin(words, " "), ")");
  return absl::StrCat(":", what, ": ");
}

}  // namespace

std::string ValueName(const CLI::Option& option) {
  if (!TakesValue(option)) return "";
  if (option.get_positional()) return option.get_items_expected_max() > 1 ? "..." : "";
  return TypeOf(option);
}

std::string FullDescription(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) absl::StrAppend(&text, " [", option.get_default_str(), "]");
  if (option.get_required()) absl::StrAppend(&text, " (required)");
  for (const CLI::Option* needed : option.get_needs()) {
    absl::StrAppend(&text, " (needs --", needed->get_lnames()[0], ")");
  }
  return text;
}

std::string ManPage(const CLI::App& app, absl::string_view version) {
  const std::string name = app.get_name();
  std::string page =
      absl::StrCat(".TH ", absl::AsciiStrToUpper(Troff(name)), " 1 \"\" \"cairn ", version,
                   "\" \"Cairn\"\n.SH NAME\n", Troff(name), " \\- ", Troff(app.get_description()),
                   "\n.SH SYNOPSIS\n", Synopsis(app, name), ".SH OPTIONS\n");
  AppendOptions(app, page);
  if (!CommandsOf(app).empty()) {
    absl::StrAppend(&page, ".SH COMMANDS\n");
    AppendCommands(app, name, page);
  }
  absl::StrAppend(&page, ".PP\nFlags take _ or \\- between their words.\n", kExitStatus);
  return page;
}

std::string BashCompletion(const CLI::App& app) {
  const std::string name = app.get_name(), function = absl::StrCat("_", Identifier(name));
  std::string script =
      absl::StrCat("# Completes ", name, ", for bash. Generated from its tables of flags.\n", function,
                   "() {\n"
                   "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                   "  local path='' next candidates i\n"
                   "  COMPREPLY=()\n"
                   "  if [[ $word == '=' ]]; then word=''; fi\n"
                   "  if [[ $before == '=' ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                   "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
                   "    next=\"${path:+$path }${COMP_WORDS[i]}\"\n"
                   "    case $next in\n");
  std::string commands, values, candidates;
  ForEachCommand(app, "", [&](const std::string& path, const CLI::App& command) {
    if (!path.empty()) absl::StrAppend(&commands, "      ", Quoted(path), ") path=$next ;;\n");
    std::vector<std::string> words;
    for (const CLI::App* sub : CommandsOf(command)) words.push_back(sub->get_name());
    for (const CLI::Option* option : OptionsOf(command, /*positional=*/false)) {
      const std::vector<std::string> spellings = Spellings(*option);
      words.insert(words.end(), spellings.begin(), spellings.end());
      if (!TakesValue(*option)) continue;
      const auto patterns = absl::StrJoin(spellings, "|", [&](std::string* out, const std::string& spelling) {
        absl::StrAppend(out, Quoted(absl::StrCat(path, ":", spelling)));
      });
      const std::vector<std::string> taken = Words(*option);
      absl::StrAppend(&values, "    ", patterns, ") ",
                      TakesFiles(*option)
                          ? "COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
                          : absl::StrCat("COMPREPLY=($(compgen -W ", Quoted(absl::StrJoin(taken, " ")),
                                         " -- \"$word\")); return ;;\n"));
    }
    absl::StrAppend(&candidates, "    ", Quoted(path), ") candidates=", Quoted(absl::StrJoin(words, " ")),
                    " ;;\n");
  });
  absl::StrAppend(
      &script, commands, "    esac\n  done\n  case \"$path:$before\" in\n", values,
      "  esac\n  case $path in\n", candidates,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$candidates\" -- \"$word\"))\n"
      "  if [[ ${#COMPREPLY[@]} -eq 0 && $word != -* ]]; then COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
      "}\n"
      "complete -o filenames -F ",
      function, " ", name, "\n");
  return script;
}

std::string ZshCompletion(const CLI::App& app) {
  const std::string name = app.get_name(), function = absl::StrCat("_", Identifier(name));
  std::string script = absl::StrCat("#compdef ", name, "\n# Completes ", name,
                                    ", for zsh. Generated from its tables of flags.\n");
  ForEachCommand(app, "", [&](const std::string& path, const CLI::App& command) {
    absl::StrAppend(&script, path.empty() ? function : absl::StrCat(function, "_", Identifier(path)),
                    "() {\n");
    const std::vector<const CLI::App*> subs = CommandsOf(command);
    if (!subs.empty())
      absl::StrAppend(&script, "  local context state state_descr line\n  typeset -A opt_args\n");
    absl::StrAppend(&script, "  _arguments", subs.empty() ? "" : " -C");
    for (const CLI::Option* option : OptionsOf(command, /*positional=*/false)) {
      for (const std::string& spelling : Spellings(*option)) {
        const bool takes = TakesValue(*option);
        const char* joint = !takes ? "" : absl::StartsWith(spelling, "--") ? "=" : "+";
        absl::StrAppend(&script, " \\\n    ",
                        Quoted(absl::StrCat(spelling, joint, "[", ZshText(option->get_description()), "]",
                                            takes ? ZshValue(*option) : "")));
      }
    }
    for (const CLI::Option* option : OptionsOf(command, /*positional=*/true)) {
      absl::StrAppend(&script, " \\\n    ", Quoted(absl::StrCat("*", ZshValue(*option))));
    }
    if (subs.empty()) {
      absl::StrAppend(&script, "\n}\n");
      return;
    }
    absl::StrAppend(&script,
                    " \\\n    '1: :->command' '*:: :->rest'\n  case $state in\n    command) _values command");
    for (const CLI::App* sub : subs) {
      absl::StrAppend(&script, " \\\n      ",
                      Quoted(absl::StrCat(sub->get_name(), "[", ZshText(sub->get_description()), "]")));
    }
    absl::StrAppend(&script, " ;;\n    rest) case $line[1] in\n");
    for (const CLI::App* sub : subs) {
      const std::string sub_path = path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name());
      absl::StrAppend(&script, "      ", sub->get_name(), ") ", function, "_", Identifier(sub_path), " ;;\n");
    }
    absl::StrAppend(&script, "    esac ;;\n  esac\n}\n");
  });
  absl::StrAppend(&script, function, " \"$@\"\n");
  return script;
}

}  // namespace cairn
