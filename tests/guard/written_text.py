"""The text of the tree's files, in paragraphs of one kind: comments, docstrings, prose, headings, messages and names.

C++, protos, Python, Markdown, and files whose comments begin with #. Python's standard library only.
"""

import pathlib
import re
import tokenize
from typing import Callable, Iterable, Iterator, List, NamedTuple, Tuple

import docs_test

COMMENT, PROSE, HEADING, MESSAGE, NAME, TEST = "comment", "prose", "heading", "message", "name", "test"


class Text(NamedTuple):
    """A paragraph of one kind; its lines are those of the file from `line` on."""
    kind: str
    line: int
    text: str


C_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inc", ".proto", ".pml", ".css"}
HASH_SUFFIXES = {".sh", ".cmake", ".in", ".txt", ".yml", ".yaml", ".toml", ".Dockerfile", ".dict"}
HASH_NAMES = {"Dockerfile", ".clang-format", ".clang-tidy", ".dockerignore", ".gitignore", "run"}

C_TOKEN = re.compile(r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*.*?\*/)
  | (?P<raw>\bR"(?P<end>[^()\\\s]{0,16})\((?:.*?)\)(?P=end)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | '(?:\\.|[^'\\\n])+'
  | \b[0-9](?:'?[0-9a-zA-Z_.])*""", re.VERBOSE | re.DOTALL)
TEST_NAME = re.compile(r"\bTEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)|^ *(?:TYPED_TEST|TYPED_TEST_P)\(\s*\w+,\s*(\w+)\)")
HASH_COMMENT = re.compile(r"^([^'\"#]|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<=[\w${(])#)*?(?:^|(?<=\s))#(?!!)(?P<text>.*)$")


def blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


class Comments:
    """Joins comments on consecutive lines, at one column, into paragraphs."""

    def __init__(self):
        self._lines: List[Tuple[int, int, str]] = []  # line, column, text

    def add(self, line: int, column: int, text: str):
        self._lines.append((line, column, text))

    def paragraphs(self) -> Iterator[Text]:
        first, last, lines = None, None, []
        for line, column, text in self._lines:
            text = text.strip()
            new = re.match(r"[-*] |\d+\. ", text)
            if lines and (line != last[0] + 1 or column != last[1] or not text or new):
                yield Text(COMMENT, first, "\n".join(lines))
                lines = []
            last = (line, column)
            if not text:
                continue
            if not lines:
                first = line
            lines.append(text[new.end():] if new else text)
        if lines:
            yield Text(COMMENT, first, "\n".join(lines))


def texts_of_c(source: str) -> Iterator[Text]:
    comments, code, at = Comments(), [], 0
    starts = [0] + [match.end() for match in re.finditer(r"\n", source)]
    number = 1
    for token in C_TOKEN.finditer(source):
        code.append(source[at:token.start()])
        text, at = token.group(), token.end()
        if token.lastgroup not in ("line", "block", "string", "raw", "end"):
            code.append(text)
            continue
        code.append(blank(text))
        while number < len(starts) and starts[number] <= token.start():
            number += 1
        if token.lastgroup == "line":
            comments.add(number, token.start() - starts[number - 1], re.sub(r"^/+<?", "", text))
        elif token.lastgroup == "block":
            for i, line in enumerate(text[2:-2].split("\n")):
                comments.add(number + i, -1, re.sub(r"^\s*\*+", "", line))
        else:
            yield Text(MESSAGE, number, text)
    code.append(source[at:])
    yield from comments.paragraphs()
    blanked = "".join(code)
    yield Text(NAME, 1, blanked)
    for i, line in enumerate(blanked.split("\n"), start=1):
        for match in TEST_NAME.finditer(line):
            yield Text(TEST, i, match[1] or match[2])


def texts_of_python(path: pathlib.Path, source: str) -> Iterator[Text]:
    comments, fresh = Comments(), True
    lines = source.split("\n")
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            (line, column), (last, end) = token.start, token.end
            kind = tokenize.tok_name[token.type]
            if kind == "COMMENT":
                comments.add(line, column, re.sub(r"^#+!?", "", token.string))
            elif kind == "STRING" and fresh and token.string.rstrip("\"'") != token.string:
                text = re.sub(r"^\w*(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$", "", token.string)
                paragraphs = Comments()
                for i, part in enumerate(text.split("\n")):
                    paragraphs.add(line + i, -1, part)
                yield from paragraphs.paragraphs()
            elif kind in ("STRING", "FSTRING_MIDDLE"):
                yield Text(MESSAGE, line, token.string)
            if kind in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
                for i in range(line, last + 1):
                    begin = column if i == line else 0
                    stop = end if i == last else len(lines[i - 1])
                    lines[i - 1] = lines[i - 1][:begin] + " " * (stop - begin) + lines[i - 1][stop:]
            if kind not in ("COMMENT", "NL", "ENCODING"):
                fresh = kind in ("NEWLINE", "INDENT", "DEDENT")
    yield from comments.paragraphs()
    yield Text(NAME, 1, "\n".join(lines))
    for i, line in enumerate(lines, start=1):
        for match in re.finditer(r"^\s*def test_(\w+)\(", line):
            yield Text(TEST, i, "".join(word.capitalize() for word in match[1].split("_")))


def texts_with_hashes(source: str) -> Iterator[Text]:
    comments, code = Comments(), []
    for number, line in enumerate(source.split("\n"), start=1):
        match = HASH_COMMENT.match(line) if "#" in line else None
        if match is None:
            code.append(line)
            continue
        code.append(line[:match.start("text")])
        comments.add(number, match.start("text"), match["text"])
    yield from comments.paragraphs()
    yield Text(NAME, 1, "\n".join(code))


def texts_of_markdown(source: str) -> Iterator[Text]:
    """Paragraphs and headings; blocks of code are names."""
    fenced, first, lines = False, 0, []

    def flush() -> Iterator[Text]:
        if lines:
            yield Text(PROSE, first, "\n".join(lines))
            lines.clear()

    for number, line in enumerate(source.split("\n"), start=1):
        heading = docs_test.HEADING.match(line)
        if docs_test.FENCE.match(line):
            yield from flush()
            fenced = not fenced
        elif fenced:
            yield Text(NAME, number, line)
        elif heading:
            yield from flush()
            yield Text(HEADING, number, heading[2])
        elif not line.strip():
            yield from flush()
        else:
            if not lines:
                first = number
            lines.append(line)
    yield from flush()


def texts_of(path: pathlib.Path) -> Iterator[Text]:
    """Everything in a file that people read; nothing for data."""
    suffix = path.suffix
    readers: List[Tuple[bool, Callable[[str], Iterable[Text]]]] = [
        (suffix in C_SUFFIXES, texts_of_c),
        (suffix == ".py", lambda source: texts_of_python(path, source)),
        (suffix == ".md", texts_of_markdown),
        (suffix in HASH_SUFFIXES or path.name in HASH_NAMES, texts_with_hashes),
    ]
    for fits, reader in readers:
        if fits:
            return iter(reader(path.read_text(encoding="utf-8")))
    return iter(())
