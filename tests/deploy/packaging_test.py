#!/usr/bin/env python3
"""Installation: programs with man pages and completions, the C++ library in another project, .deb packages.

    CAIRN_BUILD_DIR=build/release python3 tests/deploy/packaging_test.py

Installs from a finished build into a temporary folder, without root. Skipped if the packaging tools are missing.
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAIRN_BUILD_DIR", SOURCE / "build/release")).resolve()
sys.path.insert(0, str(SOURCE / "tests/integration"))

from harness import IntegrationTest, reserve_port  # noqa: E402

SKIPPED = 77
PROGRAMS = ("cairn", "cairn-ps", "cairn-worker")
LINEAR_MODEL = "kernel 1.00 2.00 -3.00, bias 0.50\n"
VERSION = re.search(r"project\(cairn VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)


def call(*command, seconds=120, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


class PackagingTest(IntegrationTest):

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.root)
        for component in ("cairn", "libcairn", "libcairn-dev"):
            call("cmake", "--install", BUILD, "--prefix", cls.root, "--component", component)

    def completed(self, program, line):
        """The completions that bash offers at the end of `line`."""
        words = line.split(" ")
        script = (f"source {self.root}/share/bash-completion/completions/{program}\n"
                  f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}\n"
                  f"_{program.replace('-', '_')}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return call("bash", "-c", script).split()

    def test_programs_have_one_version_and_pages_of_their_flags(self):
        for program in PROGRAMS:
            self.assertRegex(call(self.root / "bin" / program, "--version"),
                             rf"^{program} {re.escape(VERSION)} \(commit ([0-9a-f]{{7,}}|unknown), .*\)\n$")
            page = gzip.decompress((self.root / f"share/man/man1/{program}.1.gz").read_bytes()).decode()
            shown = program.replace("-", "\\-")
            self.assertEqual(page.splitlines()[0], f'.TH {shown.upper()} 1 "" "cairn {VERSION}" "Cairn"')
            self.assertIn(".SH EXIT STATUS\n", page)
        worker = gzip.decompress((self.root / "share/man/man1/cairn-worker.1.gz").read_bytes()).decode()
        self.assertIn("\\fB\\-\\-data_dir\\fR \\fIDIR\\fR", worker)
        self.assertNotIn("\\-\\-fault", worker)  # which --help does not show either
        if shutil.which("man"):  # that it is troff
            read = subprocess.run(["man", "--warnings", "-l", self.root / "share/man/man1/cairn.1.gz"], capture_output=True,
                                  timeout=60, check=True, text=True, errors="replace")
            self.assertEqual(read.stderr, "")
            self.assertIn("cairn predict", read.stdout)

    def test_shells_complete_commands_flags_and_words(self):
        self.assertIn("predict", self.completed("cairn", "cairn "))
        self.assertEqual(self.completed("cairn", "cairn chec"), ["check", "checkpoint"])
        self.assertEqual(self.completed("cairn", "cairn checkpoint con"), ["consolidate"])
        self.assertEqual(self.completed("cairn-worker", "cairn-worker --sync_rep"), ["--sync_replicas"])
        self.assertIn("--nosync_replicas", self.completed("cairn-worker", "cairn-worker --no"))
        self.assertEqual(self.completed("cairn-worker", "cairn-worker --mode a"), ["async", "allreduce"])
        self.assertEqual(self.completed("cairn-worker", "cairn-worker --mode = s"), ["sync", "ssp"])
        self.assertEqual(self.completed("cairn", f"cairn model {self.root}/share/doc/cairn/READ"),
                         [f"{self.root}/share/doc/cairn/README.md"])
        for program in PROGRAMS:
            function = self.root / f"share/zsh/vendor-completions/_{program}"
            self.assertTrue(function.read_text().startswith(f"#compdef {program}\n"))
            if shutil.which("zsh"):
                call("zsh", "-n", function)

    def test_another_project_builds_and_runs_with_the_library(self):
        for file in (self.root / "lib/cmake/Cairn").iterdir():
            for folder in (SOURCE, BUILD):
                self.assertNotIn(str(folder), file.read_text(), file)
        build = self.directory / "build"
        call("cmake", "-S", SOURCE / "tests/deploy/consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={self.root}",
             f"-DEXAMPLES={SOURCE}/deploy/examples", cwd=self.directory)
        call("cmake", "--build", build, seconds=300)
        servers = [f"127.0.0.1:{reserve_port(self)}" for _ in range(2)]
        for index in (0, 1):
            self.start(self.root / "bin/cairn-ps", "--ps_hosts", ",".join(servers), "--job_name=ps",
                       f"--task_index={index}", "--reuse_port")
        self.assertEqual(call(build / "linear_model", ",".join(servers), "0", "1"), LINEAR_MODEL)
        run = call(self.root / "bin/cairn", "run", "--ps", "2", "--workers", "2", build / "linear_model")
        self.assertEqual(sorted(run.splitlines(keepends=True)), [f"[worker/{i}] {LINEAR_MODEL}" for i in (0, 1)])
        self.assertEqual(call(build / "shared_variables", self.new_server(), "a", "10"), "a * b = 40\n")

    def new_server(self):
        address = f"127.0.0.1:{reserve_port(self)}"
        self.start(self.root / "bin/cairn-ps", "--ps_hosts", address, "--job_name=ps", "--task_index=0", "--reuse_port")
        return address

    def test_headers_include_only_each_other_and_the_standard_library(self):
        headers = sorted((self.root / "include").rglob("*"))
        self.assertEqual({str(path.relative_to(self.root / "include")) for path in headers if path.is_file()},
                         {f"cairn/{path.name}" for path in (SOURCE / "include/cairn").iterdir()})
        for header in headers:
            if header.is_file():
                for included in re.findall(r'^#include ["<](.*)[">]', header.read_text(), re.MULTILINE):
                    self.assertRegex(included, r"^(cairn/[a-z_]+\.h|[a-z_]+)$", header)

    def test_the_library_exports_only_documented_classes(self):
        classes = set()
        for header in (SOURCE / "include/cairn").iterdir():
            classes |= set(re.findall(r"^class CAIRN_EXPORT (?:\[\[nodiscard\]\] )?(\w+)", header.read_text(), re.MULTILINE))
        self.assertEqual(classes, {"AllReduce", "Buffer", "Session", "Status", "UniqueIds", "Variables"})
        exported = call("nm", "-D", "--defined-only", "-C", self.root / "lib/libcairn.so").splitlines()
        names = [line.split(maxsplit=2)[2] for line in exported]
        self.assertIn("cairn::Session::Run(std::function<cairn::Status (cairn::Session&)> const&)", names)
        for name in names:
            self.assertRegex(name, rf"^cairn::({'|'.join(classes)})::[~\w]+(\[abi:cxx11\])?\(.*\)( const)?$")

    def test_debian_packages_have_their_files_and_dependencies(self):
        call("cpack", "-G", "DEB", "-B", self.directory, cwd=BUILD, seconds=300)
        packages = {path.name.split("_")[0]: path for path in self.directory.glob("*.deb")}
        library = f"libcairn{'.'.join(VERSION.split('.')[:2])}"
        self.assertEqual(set(packages) - {"cairn-cuda"}, {"cairn", library, "libcairn-dev"})
        listed = {name: {line.split()[5].removeprefix(".") for line in call("dpkg-deb", "-c", path).splitlines()}
                  for name, path in packages.items()}
        for file in ["/usr/bin/cairn-ps", "/usr/share/man/man1/cairn.1.gz", "/usr/share/doc/cairn/copyright",
                     "/usr/share/bash-completion/completions/cairn", "/usr/share/doc/cairn/examples/mnist_cnn.json"]:
            self.assertIn(file, listed["cairn"])
        for file in ["/usr/include/cairn/session.h", "/usr/lib/libcairn.so", "/usr/lib/cmake/Cairn/CairnConfig.cmake"]:
            self.assertIn(file, listed["libcairn-dev"])
        self.assertIn(f"/usr/lib/libcairn.so.{VERSION}", listed[library])
        shared = {file for file in listed["cairn"] & listed["libcairn-dev"] if not file.endswith("/")}
        self.assertEqual(shared, set())
        field = lambda name, what: call("dpkg-deb", "-f", packages[name], what).strip()  # noqa: E731
        for name in packages:
            self.assertEqual(field(name, "Version"), VERSION)
        self.assertRegex(field("cairn", "Depends"), r"libgrpc\+\+1")  # found by what the programs load
        self.assertRegex(field(library, "Depends"), r"libgrpc\+\+1")
        self.assertEqual(field("libcairn-dev", "Depends"), f"{library} (= {VERSION})")


if __name__ == "__main__":
    if missing := [tool for tool in ("cmake", "cpack", "dpkg-deb", "dpkg-shlibdeps", "file") if shutil.which(tool) is None]:
        print(f"skipped: {', '.join(missing)} not found", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
