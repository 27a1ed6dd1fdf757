"""The sizes of C++ code: classes, interfaces, functions and lists of parameters have limits. Skipped without
universal-ctags.

A class has the lines of its definition and of its member functions, wherever they are. A class beyond a limit has more
than one responsibility; a function beyond one is split, or takes a struct of options. Each exception has a row in
`ALLOWED` with the reason, and a row that nothing needs is a fault.

    size_test.py           the tests
    size_test.py --list    all sizes beyond the limits, also those that ALLOWED accepts
"""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from language_test import ROOT, SKIPPED, tracked_files

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
CLASS_LINES, VIRTUALS, FUNCTION_LINES, PARAMETERS = "lines of class", "virtual functions", "lines", "parameters"
LIMITS = {CLASS_LINES: 500, VIRTUALS: 12, FUNCTION_LINES: 60, PARAMETERS: 5}


class Allowed(NamedTuple):
    """Accepts sizes of this kind beyond the limit, in files whose paths match `path`, of names that match `name`."""
    path: str
    name: str
    kind: str
    reason: str


ALLOWED = [
    Allowed(r"^kernels/", r"", PARAMETERS, "operations take their tensors and extents one by one, as BLAS does"),
    Allowed(r"^nn/layers/synchronized_batch_norm\.cc$", r"SynchronizedBatchNorm::", PARAMETERS,
            "it implements an operation of kernels/"),
    Allowed(r"^optim/apply\.", r"", PARAMETERS, "loops over elements take their arrays one by one, as BLAS does"),
    Allowed(r"^optim/rules/ftrl\.cc$", r"Ftrl::UpdateWith$", PARAMETERS,
            "a loop over elements takes its arrays one by one, as BLAS does"),
    Allowed(r"^kernels/ops\.h$", r"kernels::OpFactory$", VIRTUALS, "there is one function for each operation"),
    Allowed(r"^kernels/device\.h$", r"kernels::Device$", VIRTUALS,
            "a backend is one object, of which each caller uses memory, the order of its work and operations together"),
    Allowed(r"^nn/layer/layer\.h$", r"nn::Layer$", VIRTUALS,
            "a model has one question for each property in which layers differ, most with a default answer"),
    Allowed(r"^common/monitor/http_server\.cc$", r"Answer$", PARAMETERS, "libmicrohttpd prescribes the signature"),
]


class Size(NamedTuple):
    path: str
    line: int
    name: str  # "cairn::ps::Shard::FinishPush"
    kind: str
    count: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.count} {self.kind}, the limit is {LIMITS[self.kind]}"


def find_ctags() -> Optional[str]:
    """universal-ctags that writes JSON, or None: other programs have the same name."""
    for name in ["ctags-universal", "ctags"]:
        path = shutil.which(name)
        if path is None:
            continue
        features = subprocess.run([path, "--list-features"], capture_output=True, text=True, check=False).stdout
        if re.search(r"^json\b", features, re.MULTILINE):
            return path
    return None


CTAGS = find_ctags()


def tags_of(root: pathlib.Path, names: List[str]) -> Iterator[dict]:
    output = subprocess.run([CTAGS, "-f", "-", "--output-format=json", "--language-force=C++", "--c++-kinds=cfsp",
                             "--fields=+neSK", "-L", "-"], input="\n".join(names), capture_output=True, text=True,
                            check=True, cwd=root).stdout
    for line in output.splitlines():
        tag = json.loads(line)
        if tag["_type"] == "tag":
            yield tag


def parameters_of(signature: str) -> int:
    """The number of parameters in "(int a, std::map<int, int> b = {1, 2})"."""
    text = signature.replace("->", "").strip()
    depth, commas, end = 0, 0, len(text)
    for index, character in enumerate(text):
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
            if depth == 0:
                end = index
                break
        elif character == "," and depth == 1:
            commas += 1
    return 0 if text[1:end].strip() in ("", "void") else commas + 1


def sizes_beyond_limits(root: pathlib.Path, names: List[str]) -> List[Size]:
    texts = {name: (root / name).read_text(encoding="utf-8").splitlines() for name in names}
    lines: Dict[str, Set[Tuple[str, int]]] = collections.defaultdict(set)  # [class]
    begins: Dict[str, Tuple[str, int]] = {}                               # [class] file and line
    found = []

    def check(place: Tuple[str, int], name: str, kind: str, count: int) -> None:
        if count > LIMITS[kind]:
            found.append(Size(*place, re.sub(r"__anon\w+", "(anonymous)", name), kind, count))

    for tag in tags_of(root, names):
        scope = tag.get("scope", "")
        name = f"{scope}::{tag['name']}" if scope else tag["name"]
        place = (tag["path"], tag["line"])
        extent = range(tag["line"], tag.get("end", tag["line"]) + 1)
        if tag["kind"] in ("class", "struct"):
            if "end" not in tag:
                continue
            begins[name] = place
            lines[name].update((tag["path"], line) for line in extent)
            virtuals = sum(1 for line in extent if re.match(r"\s+virtual (?!~)", texts[tag["path"]][line - 1]))
            check(place, name, VIRTUALS, virtuals)
            continue
        check(place, name, PARAMETERS, parameters_of(tag.get("signature", "()")))
        if tag["kind"] == "function":
            check(place, name, FUNCTION_LINES, len(extent))
            if tag.get("scopeKind") in ("class", "struct"):
                lines[scope].update((tag["path"], line) for line in extent)
    for name, place in begins.items():
        check(place, name, CLASS_LINES, len(lines[name]))
    return sorted(found)


def is_allowed(size: Size, row: Allowed) -> bool:
    return (row.kind == size.kind and re.search(row.path, size.path) is not None
            and re.search(row.name, size.name) is not None)


def faults(sizes: List[Size], allowed: List[Allowed]) -> List[str]:
    """The sizes that no row accepts, and the rows that accept none."""
    result = [str(size) for size in sizes if not any(is_allowed(size, row) for row in allowed)]
    unused = [row for row in allowed if not any(is_allowed(size, row) for size in sizes)]
    return result + [f"ALLOWED: nothing needs the row {row.path!r}, {row.name!r}, {row.kind}" for row in unused]


def product_sources() -> List[str]:
    return [name for name in tracked_files(ROOT)
            if pathlib.Path(name).suffix in SUFFIXES and not name.startswith("tests/")]


NO_CTAGS = "there is no universal-ctags: deploy/setup.sh --with-tests installs it"


@unittest.skipIf(CTAGS is None, NO_CTAGS)
class SizeTest(unittest.TestCase):
    maxDiff = None

    def test_sizes_are_within_the_limits(self):
        names = product_sources()
        self.assertGreater(len(names), 0)
        self.assertEqual(faults(sizes_beyond_limits(ROOT, names), ALLOWED), [])


@unittest.skipIf(CTAGS is None, NO_CTAGS)
class CheckerTest(unittest.TestCase):
    def sizes(self, **files: str) -> List[Tuple[str, str, int]]:
        with tempfile.TemporaryDirectory() as folder:
            names = []
            for stem, text in files.items():
                names.append(stem.replace("_", "."))
                (pathlib.Path(folder) / names[-1]).write_text(text, encoding="utf-8")
            return [(size.name, size.kind, size.count) for size in sizes_beyond_limits(pathlib.Path(folder), names)]

    def test_a_function_may_have_60_lines(self):
        body = "void Good() {\n" + "  Work();\n" * 58 + "}\n"
        self.assertEqual(self.sizes(a_cc=body), [])
        self.assertEqual(self.sizes(a_cc=body.replace("}\n", "  Work();\n}\n")), [("Good", FUNCTION_LINES, 61)])

    def test_a_function_may_have_5_parameters(self):
        self.assertEqual(self.sizes(a_h="int Good(int a, std::map<int, int> b, int c = Of(1, 2), int d, int e);\n"), [])
        self.assertEqual(self.sizes(a_h="struct A {\n  A(int a, int b, int c, int d, int e, int f);\n};\n"),
                         [("A::A", PARAMETERS, 6)])

    def test_an_interface_may_have_12_virtual_functions(self):
        body = "class A {\n public:\n  virtual ~A() = default;\n" + "  virtual void F() = 0;\n" * 12 + "};\n"
        self.assertEqual(self.sizes(a_h=body), [])
        self.assertEqual(self.sizes(a_h=body.replace("};", "  virtual int G() = 0;\n};")), [("A", VIRTUALS, 13)])

    def test_a_class_may_have_500_lines_in_all_its_files(self):
        header = "class A {\n  void F();\n  void G();\n" + "  int a;\n" * 396 + "};\n"
        source = "".join(f"void A::{name}() {{\n" + "  Work();\n" * 48 + "}\n" for name in "FG")
        self.assertEqual(self.sizes(a_h=header, a_cc=source), [])
        self.assertEqual(self.sizes(a_h=header, a_cc=source.replace("{\n", "{\n  Work();\n", 1)),
                         [("A", CLASS_LINES, 501)])

    def test_a_function_within_its_class_is_counted_once(self):
        text = "class A {\n" + "void F() {\n  Work();\n  Work();\n}\n" * 124 + "};\n"
        self.assertEqual(self.sizes(a_cc=text), [])

    def test_classes_of_one_name_in_two_anonymous_namespaces_are_two_classes(self):
        text = "namespace {\nclass A {\n" + "  int a;\n" * 300 + "};\n}\n"
        self.assertEqual(self.sizes(a_cc=text, b_cc=text), [])

    def test_a_row_accepts_a_size_and_a_row_that_nothing_needs_is_a_fault(self):
        size = Size("a/b.cc", 7, "cairn::F", PARAMETERS, 6)
        self.assertEqual(faults([size], [Allowed(r"^a/", r"F$", PARAMETERS, "reason")]), [])
        self.assertEqual(faults([size], []), ["a/b.cc:7: cairn::F: 6 parameters, the limit is 5"])
        self.assertEqual(len(faults([size], [Allowed(r"^a/", r"F$", FUNCTION_LINES, "reason")])), 2)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--list":
        print(*sizes_beyond_limits(ROOT, product_sources()), sep="\n")
    else:
        outcome = unittest.main(verbosity=2, exit=False).result
        if not outcome.wasSuccessful():
            sys.exit(1)
        sys.exit(SKIPPED if outcome.testsRun == len(outcome.skipped) else 0)
