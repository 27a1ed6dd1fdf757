"""Missing includes. The tests compile the sources of a folder together and with precompiled headers, which hides them.

A name is visible to a file whose includes lead to the name's header, through any of Cairn's headers. Names of the
standard library and of Abseil: `STANDARD` and `ABSEIL` say which headers declare them. Cairn's own: types, functions
and constants outside classes that only one header declares.

    includes_test.py           the tests
    includes_test.py --list    all faults
"""

import collections
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import Dict, FrozenSet, Iterator, List, NamedTuple, Set

from language_test import ROOT, SKIPPED, tracked_files
from size_test import CTAGS, NO_CTAGS

FOLDERS = ("api/", "cli/", "client/", "common/", "data/", "embedding/", "include/", "kernels/", "nn/", "optim/", "ps/",
           "worker/")

# Header: the names that it declares, with a * for any end.
STANDARD = {
    "algorithm": "adjacent_find all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if find_if_not"
                 " for_each generate is_permutation is_sorted lower_bound max max_element min min_element minmax mismatch"
                 " none_of nth_element partial_sort partition partition_point remove_if reverse sort stable_sort"
                 " swap_ranges transform unique upper_bound",
    "array": "array",
    "atomic": "atomic atomic_* memory_order*",
    "bit": "bit_* countl_* countr_* endian has_single_bit popcount rotl rotr",
    "chrono": "chrono",
    "cmath": "ceil cos erf exp expm1 fabs floor fmax fmin frexp isfinite isinf isnan llround log log10 log1p nan pow"
             " round sin sqrt tanh",
    "condition_variable": "condition_variable cv_status",
    "csetjmp": "jmp_buf longjmp",
    "csignal": "signal",
    "cstdio": "FILE fclose ferror fflush fopen fprintf fputs fread fscanf fwrite printf putchar snprintf",
    "cstdlib": "_Exit abort aligned_alloc calloc free getenv malloc realloc strtol",
    "cstring": "memchr memcmp memcpy memmove memset strcmp strerror strlen",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception set_terminate terminate_handler",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "function not_equal_to",
    "initializer_list": "initializer_list",
    "iostream": "cerr cout",
    "iterator": "back_inserter istreambuf_iterator make_move_iterator",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "make_shared make_unique shared_ptr static_pointer_cast unique_ptr weak_ptr",
    "mutex": "lock_guard unique_lock",
    "new": "bad_alloc launder",
    "numbers": "numbers",
    "numeric": "accumulate gcd iota lcm",
    "optional": "nullopt optional",
    "random": "random_device",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "span",
    "sstream": "istringstream ostringstream",
    "stdexcept": "length_error logic_error runtime_error",
    "string": "string to_string",
    "string_view": "string_view",
    "system_error": "errc error_code system_error",
    "thread": "this_thread thread",
    "tuple": "tie tuple",
    "type_traits": "conditional_t decay_t enable_if_t integral_constant is_* remove_*_t",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "exchange in_range index_sequence make_pair move pair",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
ABSEIL = {
    "algorithm/container": "c_*",
    "cleanup/cleanup": "Cleanup",
    "container/flat_hash_map": "flat_hash_map",
    "container/inlined_vector": "InlinedVector",
    "functional/any_invocable": "AnyInvocable",
    "functional/function_ref": "FunctionRef",
    "numeric/int128": "Int128* int128 uint128",
    "status/status": "*Error ErrnoTo* OkStatus Status StatusCode StatusCodeToString",
    "status/statusor": "StatusOr",
    "strings/ascii": "AsciiStrTo* StripAsciiWhitespace ascii_*",
    "strings/escaping": "BytesToHexString CEscape CHexEscape CUnescape HexStringToBytes Utf8Safe*",
    "strings/match": "EndsWith EqualsIgnoreCase StartsWith StartsWithIgnoreCase StrContains",
    "strings/numbers": "SimpleAto*",
    "strings/str_cat": "Hex StrAppend StrCat kZeroPad*",
    "strings/str_format": "PrintF StrAppendFormat StrFormat",
    "strings/str_join": "StrJoin",
    "strings/str_replace": "StrReplaceAll",
    "strings/str_split": "ByAnyChar MaxSplits SkipEmpty SkipWhitespace StrSplit",
    "strings/string_view": "string_view",
    "strings/strip": "ConsumePrefix ConsumeSuffix StripPrefix StripSuffix",
    "synchronization/mutex": "CondVar Condition MutexLock",
    "time/clock": "Now",
    "time/time": "Duration FormatDuration FormatTime FromChrono Seconds Time ToDoubleSeconds UTCTimeZone UnixEpoch",
    "types/span": "MakeConstSpan MakeSpan Span",
}
# Headers that promise the names of others.
BRINGS = {
    "absl/status/statusor.h": ["absl/status/status.h"],
    "absl/synchronization/mutex.h": ["absl/time/time.h"],
    "absl/time/clock.h": ["absl/time/time.h"],
    "CLI/CLI.hpp": ["functional", "memory", "string", "vector"],
    "map": ["utility"],
    "nlohmann/json.hpp": ["initializer_list", "map", "string", "utility", "vector"],
    "string": ["initializer_list"],
    "vector": ["initializer_list"],
}
PUBLIC = "include/"  # the folder of the public headers, which are included without it


def patterns(table: Dict[str, str], prefix: str, suffix: str) -> Dict[str, List]:
    exact: Dict[str, str] = {}
    wild = []
    for header, names in table.items():
        for name in names.split():
            if "*" in name:
                wild.append((re.compile(name.replace("*", r"\w*") + r"\Z"), prefix + header + suffix))
            else:
                exact[name] = prefix + header + suffix
    return {"exact": exact, "wild": wild}


LIBRARIES = {"std": patterns(STANDARD, "", ""), "absl": patterns(ABSEIL, "absl/", ".h")}
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
LIBRARY_NAME = re.compile(r"(?<!\w)(?<!\w::)(std|absl)::(\w+)")
FOREIGN_NAME = re.compile(r"\b(?:std|absl|google|grpc|nlohmann)::[\w:]+")
PROTO_NAME = re.compile(r"^\s*(?:message|enum)\s+(\w+)", re.MULTILINE)
WORD = re.compile(r"(?<![\w.:>])[A-Za-z_]\w*|(?<=::)[A-Za-z_]\w*")


class File(NamedTuple):
    includes: List[str]
    code: str


def header_of(library: str, name: str) -> str:
    found = LIBRARIES[library]["exact"].get(name)
    if found is None:
        found = next((header for pattern, header in LIBRARIES[library]["wild"] if pattern.match(name)), "")
    return found


def read(root: pathlib.Path, names: Set[str]) -> Dict[str, File]:
    files = {}
    for name in sorted(names):
        text = (root / name).read_text(encoding="utf-8")
        code = NOT_CODE.sub(lambda match: "\n" * match.group().count("\n"), text)
        code = re.sub(r"^[ \t]*#[ \t]*include[^\n]*", "", code, flags=re.MULTILINE)
        includes = [PUBLIC + each if PUBLIC + each in names else each for each in INCLUDE.findall(text)]
        files[name] = File(includes, code)
    return files


def tags_of(root: pathlib.Path, names: List[str]) -> Iterator[dict]:
    output = subprocess.run([CTAGS, "-f", "-", "--output-format=json", "--language-force=C++",
                             "--c++-kinds=cdefgmnpstuvx", "--fields=+sK", "-L", "-"], input="\n".join(names),
                            capture_output=True, text=True, check=True, cwd=root).stdout
    for line in output.splitlines():
        tag = json.loads(line)
        if tag["_type"] == "tag":
            yield tag


class Names(NamedTuple):
    headers: Dict[str, str]         # our names outside classes that only one header declares: that header
    declared: Dict[str, Set[str]]   # file: all names that it declares, wherever


def our_names(root: pathlib.Path, files: Dict[str, File]) -> Names:
    """The names that only one header declares, and neither a class nor a message declares too."""
    outside: Dict[str, Set[str]] = collections.defaultdict(set)
    declared: Dict[str, Set[str]] = collections.defaultdict(set)
    inside = {name for proto in (root / "proto").rglob("*.proto")
              for name in PROTO_NAME.findall(proto.read_text(encoding="utf-8"))}
    for tag in tags_of(root, list(files)):
        name, path = tag["name"], tag["path"]
        declared[path].add(name)
        if path.endswith(".h") and tag.get("scopeKind", "namespace") == "namespace" and tag["kind"] != "namespace":
            outside[name].add(path)
        elif tag["kind"] != "namespace":
            inside.add(name)
    # A forward declaration is enough, and ctags does not list it.
    for path, file in files.items():
        declared[path] |= set(re.findall(r"\b(?:class|struct|enum class) (\w+)(?= *(?:: *\w+)? *;)", file.code))
    headers = {name: next(iter(paths)) for name, paths in outside.items()
               if len(paths) == 1 and name not in inside}
    return Names(headers, declared)


def faults(root: pathlib.Path, names: List[str]) -> List[str]:
    files = read(root, set(names))
    ours = our_names(root, files)

    @functools.lru_cache(maxsize=None)
    def reachable(name: str) -> FrozenSet[str]:
        found: Set[str] = set()
        open_files = [name]
        while open_files:
            for include in files[open_files.pop()].includes:
                if include not in found and include in files:
                    open_files.append(include)
                found.update([include], BRINGS.get(include, []))
        return frozenset(found)

    result = []
    for name, file in files.items():
        seen = reachable(name)
        missing: Dict[str, str] = {}
        for library, used in sorted(set(LIBRARY_NAME.findall(file.code))):
            header = header_of(library, used)
            if header and header not in seen:
                missing.setdefault(header, f"{library}::{used}")
        words = set(WORD.findall(FOREIGN_NAME.sub("", file.code))) & ours.headers.keys()
        for used in sorted(words - ours.declared[name]):
            header = ours.headers[used]
            if header not in seen and header != name and not any(used in ours.declared[each] for each in seen
                                                                 if each in files):
                missing.setdefault(header, used)
        result += [f"{name}: {used} needs {header}" for header, used in missing.items()]
    return result


def product_files() -> List[str]:
    return [name for name in tracked_files(ROOT)
            if name.startswith(FOLDERS) and name.endswith((".h", ".cc", ".cu", ".cuh"))]


@unittest.skipIf(CTAGS is None, NO_CTAGS)
class IncludesTest(unittest.TestCase):
    maxDiff = None

    def test_includes_lead_to_the_names_that_a_file_uses(self):
        names = product_files()
        self.assertGreater(len(names), 0)
        self.assertEqual(faults(ROOT, names), [])


@unittest.skipIf(CTAGS is None, NO_CTAGS)
class CheckerTest(unittest.TestCase):

    def faults_of(self, **files: str) -> List[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            names = []
            for name, text in files.items():
                names.append(name.replace("_", "."))
                (root / names[-1]).write_text(text, encoding="utf-8")
            return faults(root, names)

    def test_a_name_of_the_standard_library_without_its_header_is_a_fault(self):
        self.assertEqual(self.faults_of(a_cc="std::vector<int> v;"), ["a.cc: std::vector needs vector"])
        self.assertEqual(self.faults_of(a_cc="#include <vector>\nstd::vector<int> v;"), [])

    def test_a_name_of_abseil_without_its_header_is_a_fault(self):
        self.assertEqual(self.faults_of(a_cc="absl::Status s;"), ["a.cc: absl::Status needs absl/status/status.h"])
        self.assertEqual(self.faults_of(a_cc='#include "absl/status/statusor.h"\nabsl::Status s;'), [])

    def test_a_name_of_ours_without_its_header_is_a_fault(self):
        header = "namespace cairn {\nclass Widget {};\n}"
        self.assertEqual(self.faults_of(a_h=header, b_cc="cairn::Widget w;"), ["b.cc: Widget needs a.h"])
        self.assertEqual(self.faults_of(a_h=header, b_cc="class Widget;\nWidget* w;"), [])
        self.assertEqual(self.faults_of(a_h=header, b_cc='#include "a.h"\ncairn::Widget w;'), [])

    def test_another_header_of_ours_may_lead_to_the_name(self):
        self.assertEqual(self.faults_of(a_h="#include <string>\n", b_h='#include "a.h"\n',
                                        c_cc='#include "b.h"\nstd::string s;'), [])

    def test_names_in_comments_and_literals_do_not_count(self):
        self.assertEqual(self.faults_of(a_cc='// std::vector\nconst char* s = "std::string";'), [])


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(faults(ROOT, product_files())))
        sys.exit()
    result = unittest.main(exit=False).result
    if result.wasSuccessful() and result.testsRun and len(result.skipped) == result.testsRun:
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
