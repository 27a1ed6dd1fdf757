"""The language of the tree: plain sentences in comments and pages, no retired words, readable line lengths and commits.

Each row of the tables below is a pattern and what to write instead. Needs only Python's standard library. Without git,
the test reads all files below the root, and the test of the commits is skipped.

    language_test.py [CommitTest]    the tests
    language_test.py --count         the number of findings in this tree, one line for each row
    language_test.py --list [ROW]    the findings themselves
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, Iterator, List, NamedTuple, Optional, Pattern, Tuple

import docs_test
from written_text import COMMENT, HEADING, MESSAGE, NAME, PROSE, TEST, Text, texts_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 120
SUBJECT_WIDTH = 72
# Older commits are not checked: their subjects cannot be changed.
COMMITS_SINCE = "2026-11-26T00:00:00+00:00"
SKIPPED = 77  # the exit code if every test was skipped; CMakeLists.txt declares it to ctest

# --- The tables: pattern -> what to write instead -----------------------------------------------------------------

# The first words of a comment, a docstring or a heading. Case matters.
BEGINNINGS = {
    "Who": "name the subject: 'the sender', 'a worker that ...'",
    "Whom": "name the subject",
    "Whoever": "name the subject",
    "What": "name the subject; as a heading: the term that readers search for",
    "Whatever": "name the subject",
    "Likewise": "repeat the statement, or leave it out",
    "Of": "begin with the subject: 'the rows of ...'",
}

# Phrases in comments, docstrings, pages and messages: regular expressions, whose spaces match any white space.
PHRASES = {
    r"is told(?! apart)": "is notified, receives, learns",
    r"are told(?! apart)": "are notified, receive, learn",
    "says so": "reports, states, logs + what",
    "comes to": "amounts to, totals, reaches",
    "by itself": "automatically; alone",
    "likewise": "also, or repeat the statement",
    "anew": "again",
    "as ever": "as before, as usual; or leave it out",
    "for want of": "for lack of, because there is no",
    "nobody": "no task, no worker, no client, no thread ...",
}

# Words of the glossary that are gone, anywhere: in text and in names (crew, Crew, crew_size, CrewSize), also with an s.
RETIRED = {
    "crew": "thread pool",
    "update ahead": "speculative update",
    "announcer": "gradient queue",
    "passage": "host staging",
    "lent": "borrowed, pinned, mapped",
    "amendment": "config change",
    "doctor": "preflight",
    "round pace": "flow control, RoundFlowControl",
    "held elements": "gradient view",
    "direct stream": "stream of the data channel, DataStream",
    "part search": "shard search",
}

# Names that are gone, in code and in the names of files: regular expressions, for words that are good ones in prose.
RETIRED_NAMES = {
    "Elsewhere": "RemoteStages",
    r"\bCrossing": "StageTensor",
    "Allowance": "CreditLimit",
    r"\b[Aa]mend(?!ment)": "ConfigChange, ChangeConfig, config_change",
    r"\bDirect(?!Convolution|Forward|Backward|Stream)(?=[A-Z])": "Data...",
    r"Meters|(?<![a-z])meters(?![a-z])": "Metrics, metrics",
    r"Formation|(?<![a-z])formation(?![a-z])": "RingEpoch, ring_epoch",
    r"Ticket|(?<![a-z])tickets?(?![a-z])": "WorkItem, work_item",
    r"\bMark(?=Request|Response|Snapshot)|\bMarks\b": "PlaceMarker..., Marker, MarkerTable",
    r"\bCopy(?=Body|Item|Answer|Sink|Header|Origin|Wire|Dialer|Closed|Link|Frame|S(tream|ession))": "Replication..., Backup...",
    r"\bCopied(?=[A-Z])": "Replicated...",
    r"\bModelPart(?!ition)|\bDivision": "ModelPartition, PipelineStage",
    "PagePipe": "ZeroCopySender",
    "EntryCheck": "LogValidator",
    r"\bkMost(?=[A-Z])": "kMax...",
    r"\bkLeast(?=[A-Z])": "kMin...",
}

# An example of each regular expression above. The tests plant it, and expect the row to find it.
EXAMPLES = {
    r"is told(?! apart)": "is told",
    r"are told(?! apart)": "are told",
    r"\bCrossing": "Crossing",
    r"\b[Aa]mend(?!ment)": "amend",
    r"\bDirect(?!Convolution|Forward|Backward|Stream)(?=[A-Z])": "DirectStub",
    r"Meters|(?<![a-z])meters(?![a-z])": "wire_meters",
    r"Formation|(?<![a-z])formation(?![a-z])": "formation_",
    r"Ticket|(?<![a-z])tickets?(?![a-z])": "open_tickets",
    r"\bMark(?=Request|Response|Snapshot)|\bMarks\b": "MarkRequest",
    r"\bCopy(?=Body|Item|Answer|Sink|Header|Origin|Wire|Dialer|Closed|Link|Frame|S(tream|ession))": "CopyItem",
    r"\bCopied(?=[A-Z])": "CopiedShard",
    r"\bModelPart(?!ition)|\bDivision": "ModelPart",
    r"\bkMost(?=[A-Z])": "kMostRows",
    r"\bkLeast(?=[A-Z])": "kLeastRows",
}

# How the names of tests must not begin.
TEST_NAME_BEGINNINGS = {
    "Who": "a sentence of fact that names its subject",
    "Whoever": "a sentence of fact that names its subject",
    "What": "a sentence of fact that names its subject",
    "Whatever": "a sentence of fact that names its subject",
    "Of": "a sentence of fact that names its subject",
}

SUBJECTS = {
    r"(?i)\bwip\b": "a finished change",
    r";": "one concern for each commit",
    rf"^.{{{SUBJECT_WIDTH + 1},}}": f"at most {SUBJECT_WIDTH} characters",
}


class Allowed(NamedTuple):
    """Accepts findings of rows that match `rows`, on lines that match `line`, in files whose paths match `path`."""
    path: str
    line: str
    reason: str
    rows: str = r""


ALLOWED = [
    Allowed(r"deploy/kubernetes/base/cairn\.yaml$", r"^#   cairn cluster generate ", "a command line, as it was typed",
            rows=r"^width$"),
    Allowed(r"deploy/monitoring/alerts\.yml$", r"severity: ticket", "a severity, as Prometheus' users name it",
            rows=r"^Ticket"),
    Allowed(r"tests/guard/language_test\.py$", r"", "it holds the tables", rows=r"^(?!width)"),
    Allowed(r"docs/design/glossary\.md$", r"^\| [^|]+ \| [^|]+ \|$", "it lists the words that are not used",
            rows=r"^(?:crew|lent|amendment|update ahead|announcer|passage|doctor|direct stream)$"),
    Allowed(r"CHANGELOG\.md$", r"^\| call `Amend`|^\| `Decision|^\| `CopiedQueue|`crew-N`", "it lists the names that changed",
            rows=r"^(?:crew|amendment|direct stream)$"),
]

# Markdown files with tables that cannot be wrapped, in addition to those of docs_test.py.
WIDE_TABLES = docs_test.WIDE_TABLES | {"tests/fault/README.md", "tests/gpu/README.md"}

# Files that are data, generated, or not written here.
UNREAD = [
    r"docs/reference/flags\.md$",  # generated from the flags, whose descriptions are checked
    r"tests/bench/results/",  # raw results, each as it was measured
    r"tests/support/data/.*\.json$",
    r"tests/fuzz/seeds/",
    r"LICENSE$",
]

# --- The checks ------------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    row: str  # of its table
    pattern: Pattern
    kinds: Tuple[str, ...]
    advice: str


class Finding(NamedTuple):
    path: str
    line: int
    row: str
    found: str
    advice: str
    text: str  # the line

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.found}' ({self.row}): write {self.advice}"


def word_pattern(words: str) -> Pattern:
    """The words in prose, in snake_case and in CamelCase, not within longer words."""
    plain = r"[\s_-]+".join(re.escape(word) for word in words.split())
    camel = "".join(word.capitalize() for word in words.split())
    return re.compile(rf"(?<![A-Za-z])(?i:{plain})s?(?![A-Za-z])|(?<![A-Z]){camel}s?(?![a-z])")


def phrase_pattern(phrase: str) -> Pattern:
    return re.compile(r"\b" + r"\s+".join(phrase.split(" ")) + r"\b", re.IGNORECASE)


WRITTEN = (COMMENT, PROSE, HEADING, MESSAGE)
RULES = (
    [Rule(f"begins with {word}", re.compile(rf"\A{word}\b"), (COMMENT, HEADING), advice)
     for word, advice in BEGINNINGS.items()]
    + [Rule(phrase, phrase_pattern(phrase), WRITTEN, advice) for phrase, advice in PHRASES.items()]
    + [Rule(word, word_pattern(word), (*WRITTEN, NAME), advice) for word, advice in RETIRED.items()]
    + [Rule(name, re.compile(name), (NAME,), advice) for name, advice in RETIRED_NAMES.items()]
    + [Rule(f"test {word}", re.compile(rf"\A{word}(?![a-z])"), (TEST,), advice)
       for word, advice in TEST_NAME_BEGINNINGS.items()])


def tracked_files(root: pathlib.Path) -> List[str]:
    """The files that git tracks; without git, all that are neither built nor in a hidden folder."""
    listed = git(root, "ls-files", "-z")
    if listed is not None:
        return [name for name in listed.split("\0") if name and (root / name).is_file()]
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*")
                  if path.is_file() and "__pycache__" not in path.parts
                  and not any(part in docs_test.SKIPPED or part.startswith(".")
                              for part in path.relative_to(root).parts[:-1]))


def git(folder: pathlib.Path, *arguments: str) -> Optional[str]:
    """The output of a git command, or None if there is no git, or if this folder is not the root of a repository."""
    try:
        command = ["git", "-C", str(folder)]
        top = subprocess.run([*command, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True)
        if pathlib.Path(top.stdout.rstrip("\n")).resolve() != folder.resolve():
            return None
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def findings_in(root: pathlib.Path, name: str) -> Iterator[Finding]:
    path = root / name
    texts = list(texts_of(path))
    if not texts:
        return
    lines = path.read_text(encoding="utf-8").split("\n")
    for rule in RULES:
        if NAME in rule.kinds:
            for match in rule.pattern.finditer(name):
                yield Finding(name, 0, rule.row, match.group(), rule.advice, name)
        for text in texts:
            if text.kind not in rule.kinds:
                continue
            for match in rule.pattern.finditer(text.text):
                number = text.line + text.text.count("\n", 0, match.start())
                found = " ".join(match.group().split())
                yield Finding(name, number, rule.row, found, rule.advice, lines[number - 1])
    yield from long_lines(name, texts, lines)


def long_lines(name: str, texts: List[Text], lines: List[str]) -> Iterator[Finding]:
    """All lines of Markdown, except for the rows of wide tables; elsewhere, those with comments and docstrings."""
    if name.endswith(".md"):
        numbers = [i for i, line in enumerate(lines, start=1)
                   if not (name in WIDE_TABLES and line.startswith("|"))]
    else:
        numbers = sorted({text.line + i for text in texts if text.kind == COMMENT
                          for i in range(text.text.count("\n") + 1)})
    for number in numbers:
        columns = len(lines[number - 1])
        if columns > WIDTH:
            yield Finding(name, number, "width", f"{columns} columns", f"at most {WIDTH}", lines[number - 1])


def allowances(finding: Finding) -> List[Allowed]:
    return [allowed for allowed in ALLOWED if re.match(allowed.path, finding.path)
            and re.search(allowed.line, finding.text) and re.search(allowed.rows, finding.row)]


def all_findings(root: pathlib.Path) -> List[Finding]:
    return [finding for name in tracked_files(root) if not any(re.match(unread, name) for unread in UNREAD)
            for finding in findings_in(root, name)]


def findings(root: pathlib.Path) -> List[Finding]:
    return sorted(finding for finding in all_findings(root) if not allowances(finding))


def subject_faults(commit: str, subject: str) -> List[str]:
    return [f"{commit}: '{subject}': write {advice}" for pattern, advice in SUBJECTS.items()
            if re.search(pattern, subject)]


def commit_faults(root: pathlib.Path) -> Optional[List[str]]:
    """The faults of recent commits; None without a history."""
    log = git(root, "log", "--no-merges", f"--since={COMMITS_SINCE}", "--format=%h %s")
    if log is None:
        return None
    return [fault for line in log.splitlines() for fault in subject_faults(*line.split(" ", 1))]


# --- The tests -------------------------------------------------------------------------------------------------------


class LanguageTest(unittest.TestCase):
    maxDiff = None

    def test_the_tree_is_written_plainly(self):
        self.assertEqual([str(finding) for finding in findings(ROOT)], [])

    def test_every_exception_is_needed(self):
        found = all_findings(ROOT)
        used = {allowed for finding in found for allowed in allowances(finding)}
        self.assertEqual([allowed for allowed in ALLOWED if allowed not in used], [])
        for name in WIDE_TABLES - docs_test.WIDE_TABLES:
            self.assertTrue(docs_test.long_lines(ROOT / name), name)


class CommitTest(unittest.TestCase):
    def test_subjects_are_short_and_name_one_finished_change(self):
        faults = commit_faults(ROOT)
        if faults is None:
            self.skipTest("there is no git history here")
        self.assertEqual(faults, [])


class CheckerTest(unittest.TestCase):
    """The checks find a fault of every kind that is planted into a small tree."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def plant(self, name: str, text: str) -> List[Tuple[int, str]]:
        """The line and the row of each finding in a tree that has only this file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        found = [(finding.line, finding.row) for finding in findings(self.root)]
        path.unlink()
        return found

    def test_a_beginning_is_found_in_every_language(self):
        for word in BEGINNINGS:
            found = [(3, f"begins with {word}")]
            with self.subTest(word):
                also = [(3, word.lower())] if word.lower() in PHRASES else []
                for name, text in {
                    "a.h": f"#pragma once\n\n// {word} waits for\n// the sender.\n",
                    "a.cu": f"int i;\n\nint j;  // {word} waits.\n",
                    "a.css": f"a {{}}\n\n/* {word} waits. */\n",
                    "a.proto": f'syntax = "proto3";\n\n// {word} waits.\n',
                    "a.py": f"import sys\n\n# {word} waits.\n",
                    "b.py": f'def f():\n\n    """{word} waits."""\n',
                    "a.sh": f"#!/bin/sh\n\n# {word} waits.\n",
                    "CMakeLists.txt": f"project(a)\n\nset(A 1)  # {word} waits.\n",
                    "a.md": f"# A\n\n## {word} waits\n",
                }.items():
                    self.assertEqual(self.plant(name, text), found + also, name)

    def test_words_that_only_begin_alike_or_stand_later_are_no_beginning(self):
        self.assertEqual(self.plant("a.h", "// Often.\n\n// The sender\n// Of\n\n// Whole.\n"), [])

    def test_a_new_paragraph_and_a_list_begin_again(self):
        self.assertEqual(self.plant("a.h", "// A.\n//\n// What waits.\n// - Of rows.\n"),
                         [(3, "begins with What"), (4, "begins with Of")])

    def test_a_phrase_is_found_in_every_kind_of_text(self):
        for row in PHRASES:
            phrase = EXAMPLES.get(row, row)
            with self.subTest(row):
                torn = phrase.replace(" ", "\n// ", 1)
                self.assertEqual(self.plant("a.h", f"\n// A worker {torn} here.\n"), [(2, row)])
                self.assertEqual(self.plant("a.cc", f'auto a = "it {phrase} b";\n'), [(1, row)])
                self.assertEqual(self.plant("a.md", f"# A\n\nA worker {phrase.upper()} b.\n"), [(3, row)])
                self.assertEqual(self.plant("a.py", f'a = 1\nb = f"it {phrase} b"\n'), [(2, row)])

    def test_words_that_are_told_apart_are_no_phrase(self):
        self.assertEqual(self.plant("a.h", "// A push is told apart by its number.\n"), [])

    def test_a_retired_word_is_found_in_text_and_in_names(self):
        for word in RETIRED:
            with self.subTest(word):
                snake, camel = word.replace(" ", "_"), "".join(part.capitalize() for part in word.split())
                for line in [f"// The {word}s.", f"// {word.capitalize()}", f"int {snake}_size;", f"int my_{snake}_;",
                             f"class {camel}Size;", f"int k{camel};", f'auto a = "a {word}";']:
                    self.assertEqual(self.plant("a.cc", f"\n{line}\n"), [(2, word)], line)
                self.assertEqual(self.plant("a.md", f"A {word}\n"), [(1, word)])
                self.assertEqual(self.plant("a.md", f"```\n{word}\n```\n"), [(2, word)])
                self.assertEqual(self.plant(f"{snake}_a.h", "int a;\n"), [(0, word)])

    def test_a_retired_word_within_another_is_none(self):
        self.assertEqual(self.plant("a.cc", "// Excellent, doctorate, silent. Crewman\nint equivalent, lentil, aLentil;\n"), [])

    def test_a_retired_name_is_found_in_code_alone(self):
        for row in RETIRED_NAMES:
            name = EXAMPLES.get(row, row)
            with self.subTest(row):
                self.assertEqual(self.plant("a.cc", f"// {name}\nint {name} = 1;\n"), [(2, row)])
                self.assertEqual(self.plant(f"{name}.h", "int a;\n"), [(0, row)])
        self.assertEqual(self.plant("a.cc", "int kMostly, kLeast;\n"), [])

    def test_the_name_of_a_test_that_begins_with_no_subject_is_found(self):
        self.assertEqual(self.plant("a.cc", "TEST(A, WhoWaits) {}\nTEST_F(A, WholeWaits) {}\nTEST_P(A, OfNone) {}\n"),
                         [(1, "test Who"), (3, "test Of")])
        self.assertEqual(self.plant("a.py", "def test_what_waits():\n    pass\n"), [(1, "test What")])

    def test_a_long_line_is_found_where_people_read_it(self):
        wide = "x" * WIDTH
        self.assertEqual(self.plant("a.md", f"{wide}\n{wide}y\n| {wide} |\n```\n{wide}y\n```\n"),
                         [(2, "width"), (3, "width"), (5, "width")])
        self.assertEqual(self.plant("a.cc", f'// {wide[3:]}\n// {wide}\nauto a = "{wide}";\n'), [(2, "width")])
        self.assertEqual(self.plant("a.sh", f"a={wide}\n#\n# {wide}\n"), [(3, "width")])
        self.assertEqual(self.plant("a.py", f'"""A.\n\n{wide}y\n"""\n'), [(3, "width")])
        self.assertEqual(self.plant("docs/benchmarks.md", f"| {wide} |\n"), [])

    def test_strings_hide_no_comment_and_comments_no_string(self):
        self.assertEqual(self.plant("a.cc", 'auto a = "// Who";  // "Of\nauto b = R"(// Who\n")";\n// Who\n'),
                         [(4, "begins with Who")])
        self.assertEqual(self.plant("a.cc", "int a = 1'000'000;  // Of\nchar b = '\"';  // Who\n"),
                         [(1, "begins with Of"), (2, "begins with Who")])
        self.assertEqual(self.plant("a.sh", "echo '# Who' \"# Of\" ${#a} $#\n"), [])

    def test_data_is_not_read(self):
        self.assertEqual(self.plant("a.json", '{"a": "crew"}\n'), [])
        self.assertEqual(self.plant("tests/bench/results/a.md", "A crew\n"), [])

    def test_subjects_of_commits_are_judged(self):
        self.assertEqual(subject_faults("0", "ps: refuse pushes from an older incarnation"), [])
        self.assertEqual(subject_faults("0", "x" * SUBJECT_WIDTH), [])
        for subject in ["x" * (SUBJECT_WIDTH + 1), "WIP: ps", "ps: wip", "ps: refuse pushes; tests"]:
            self.assertEqual(len(subject_faults("0", subject)), 1, subject)

    def test_the_commits_of_a_repository_are_found(self):
        self.assertIsNone(commit_faults(self.root))
        if git(ROOT, "--version") is None:
            self.skipTest("there is no git here")
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false"]
        command = ["git", "-C", str(self.root)]
        subprocess.run([*command, "init", "--quiet"], check=True)
        for subject, date in [("wip, long ago", "2026-11-01T00:00:00Z"), ("wip", "2026-12-01T00:00:00Z"),
                              ("ps: count bytes", "2026-12-02T00:00:00Z")]:
            subprocess.run([*command, *identity, "commit", "--quiet", "--allow-empty", "--no-verify", "-m", subject],
                           check=True, env={**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date})
        faults = commit_faults(self.root)
        self.assertEqual(len(faults), 1, faults)
        self.assertIn("'wip'", faults[0])


def report(arguments: List[str]):
    found = findings(ROOT)
    if arguments[0] == "--count":
        counts: Dict[str, int] = collections.Counter(finding.row for finding in found)
        for row in [*(rule.row for rule in RULES), "width"]:
            print(f"{counts[row]:6} {row}")
        print(f"{len(found):6} all")
    else:
        for finding in found:
            if len(arguments) == 1 or finding.row == arguments[1]:
                print(finding, finding.text.strip(), sep="\n    ")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("--count", "--list"):
        report(sys.argv[1:])
    else:
        result = unittest.main(verbosity=2, exit=False).result
        if not result.wasSuccessful():
            sys.exit(1)
        sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)
