"""The documentation: links and anchors resolve, pages and lines stay short, the site's navigation has every page.

Python's standard library only; MkDocs is not needed.
"""

import pathlib
import re
import tempfile
import unittest
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH = 120
PAGE_LINES, README_LINES = 200, 150

# Not part of the tree: built files, and data next to a checkout.
SKIPPED = {"build", "shared"}
# Generated, one entry for each flag, function and class.
LONG_PAGES = {"docs/reference/flags.md", "docs/reference/python-api.md"}
# Tables with sentences in their cells, whose rows cannot be wrapped.
WIDE_TABLES = {"docs/benchmarks.md", "docs/security.md"}

FENCE = re.compile(r"^\s*(```|~~~)")
CODE_SPAN = re.compile(r"`[^`]*`")
# [text](target), [label]: target, src="target"
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)|\b(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
# A file or a folder of the tree, as `ps/shard/shard.h` or `tests/bench`; `ps/0` is a task.
TREE_PATH = re.compile(
    r"`((?:cli|client|common|data|deploy|docs|embedding|kernels|nn|optim|proto|ps|tests|worker)/(?!\d+`)[\w./-]+)`")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:|^//")


class Line(NamedTuple):
    number: int
    text: str


def lines_of(path: pathlib.Path) -> List[Line]:
    return [Line(i, text) for i, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)]


def prose_of(path: pathlib.Path) -> Iterator[Line]:
    """The lines outside of code blocks."""
    fenced = False
    for line in lines_of(path):
        if FENCE.match(line.text):
            fenced = not fenced
        elif not fenced:
            yield line


def anchors_of(path: pathlib.Path) -> Set[str]:
    """Those of the headings, as GitHub and the site make them, and explicit ones."""
    anchors: Set[str] = set()
    times: Dict[str, int] = {}
    for line in prose_of(path):
        anchors.update(ANCHOR.findall(line.text))
        heading = HEADING.match(line.text)
        if heading is None:
            continue
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).lower()
        slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        count = times.get(slug, 0)
        times[slug] = count + 1
        anchors.add(slug if count == 0 else f"{slug}-{count}")
    return anchors


def links_of(path: pathlib.Path) -> Iterator[Tuple[int, str]]:
    for line in prose_of(path):
        for link in LINK.finditer(CODE_SPAN.sub("", line.text)):
            yield line.number, next(group for group in link.groups() if group is not None)


def broken_links(page: pathlib.Path) -> List[str]:
    """"docs/a.md:3: b.md leads nowhere"."""
    faults = []
    for number, link in links_of(page):
        if EXTERNAL.match(link):
            continue
        target, _, anchor = link.partition("#")
        path = page if not target else page.parent / target
        if path.is_dir() and (path / "README.md").exists():
            path = path / "README.md"
        if not path.exists():
            faults.append(f"{page}:{number}: {link} leads nowhere")
        elif anchor and path.suffix == ".md" and anchor not in anchors_of(path):
            faults.append(f"{page}:{number}: {link}: {path.name} has no such heading")
    return faults


def long_lines(page: pathlib.Path, tables: bool = True) -> List[str]:
    return [f"{page}:{line.number}: {len(line.text)} columns" for line in lines_of(page)
            if len(line.text) > WIDTH and (tables or not line.text.startswith("|"))]


def absent_paths(page: pathlib.Path) -> List[str]:
    return [f"{page}:{line.number}: {path} is not in the tree" for line in prose_of(page)
            for path in TREE_PATH.findall(line.text)
            if not (ROOT / path).exists() and not list((ROOT / path).parent.glob(pathlib.Path(path).name + ".*"))]


def pages_under(folder: pathlib.Path) -> List[pathlib.Path]:
    found = []
    for path in sorted(folder.rglob("*.md")):
        parts = path.relative_to(folder).parts
        if not any(part in SKIPPED or part.startswith(".") for part in parts[:-1]):
            found.append(path)
    return found


def name_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).as_posix()


DOCS = pages_under(ROOT / "docs")


class DocumentationTest(unittest.TestCase):
    maxDiff = None

    def assert_no_faults(self, faults: List[str]):
        self.assertEqual([fault.replace(f"{ROOT}/", "") for fault in faults], [])

    def test_every_relative_link_and_anchor_resolves(self):
        self.assert_no_faults([fault for page in pages_under(ROOT) for fault in broken_links(page)])

    def test_every_path_that_is_named_exists(self):
        self.assert_no_faults([fault for page in DOCS for fault in absent_paths(page)])

    def test_the_readme_fits_its_limit(self):
        self.assertLessEqual(len(lines_of(ROOT / "README.md")), README_LINES)

    def test_every_page_fits_its_limit(self):
        self.assertEqual({name_of(page): len(lines_of(page)) for page in DOCS
                          if name_of(page) not in LONG_PAGES and len(lines_of(page)) > PAGE_LINES}, {})

    def test_no_line_is_too_long(self):
        self.assert_no_faults([fault for page in [ROOT / "README.md", *DOCS]
                               for fault in long_lines(page, tables=name_of(page) not in WIDE_TABLES)])

    def test_every_page_begins_with_its_only_title(self):
        for page in DOCS:
            with self.subTest(name_of(page)):
                titles = [line for line in prose_of(page) if line.text.startswith("# ")]
                self.assertEqual([title.number for title in titles], [1])

    def test_the_navigation_has_every_page_once(self):
        entries = re.findall(r"^\s*- .*?:\s+(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(sorted(entries), sorted(page.relative_to(ROOT / "docs").as_posix() for page in DOCS))

    def test_the_exceptions_are_needed(self):
        for name in LONG_PAGES:
            self.assertGreater(len(lines_of(ROOT / name)), PAGE_LINES, name)
        for name in WIDE_TABLES:
            self.assertTrue(long_lines(ROOT / name), name)


class CheckerTest(unittest.TestCase):
    """The checks find what they are for."""

    def faults_of(self, text: str) -> List[str]:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "other.md").write_text("# Other\n\n## A part, `too`\n\n## Twice\n\n## Twice\n",
                                                           encoding="utf-8")
            page = pathlib.Path(folder) / "page.md"
            page.write_text(text, encoding="utf-8")
            faults = broken_links(page) + long_lines(page) + absent_paths(page)
            return [fault.split(": ", 1)[1] for fault in faults]

    def test_a_link_to_no_file_is_found(self):
        self.assertEqual(self.faults_of("[a](none.md)\n"), ["none.md leads nowhere"])
        self.assertEqual(self.faults_of("[a]: none.md\n"), ["none.md leads nowhere"])
        self.assertEqual(self.faults_of('<img src="none.svg">\n'), ["none.svg leads nowhere"])

    def test_a_link_to_no_heading_is_found(self):
        self.assertEqual(self.faults_of("[a](other.md#none)\n"), ["other.md#none: other.md has no such heading"])
        self.assertEqual(self.faults_of("[a](#none)\n"), ["#none: page.md has no such heading"])

    def test_headings_are_found_as_github_names_them(self):
        self.assertEqual(self.faults_of("[a](other.md#a-part-too) [b](other.md#twice-1)\n"), [])

    def test_code_and_addresses_are_no_links(self):
        self.assertEqual(self.faults_of("```\n[a](none.md)\n```\n`[a](none.md)` [b](https://example.com)\n"), [])

    def test_a_path_that_is_not_there_is_found(self):
        self.assertEqual(self.faults_of("`tests/none.py` `tests/guard` `tests/guard/docs_test`\n"),
                         ["tests/none.py is not in the tree"])

    def test_a_long_line_is_found(self):
        self.assertEqual(self.faults_of("x" * WIDTH + "\n"), [])
        self.assertEqual(self.faults_of("x" * (WIDTH + 1) + "\n"), [f"{WIDTH + 1} columns"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
