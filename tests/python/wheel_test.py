#!/usr/bin/env python3
"""The wheel: makes it from a finished build, installs it into a fresh environment, and trains with it alone.

    CAIRN_BUILD_DIR=build/release python3 tests/python/wheel_test.py

CAIRN_PEERS_DIR: a folder with further packages, of `pip install --target`. If TensorFlow is there, its import takes
part in all orders too: 24 instead of 6, which takes minutes.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAIRN_BUILD_DIR", SOURCE / "build/release")).resolve()
PEERS_DIR = os.environ.get("CAIRN_PEERS_DIR", "")
sys.path.insert(0, str(SOURCE / "tests/integration"))

from harness import MLP, small_data  # noqa: E402

SKIPPED = 77
SECONDS = 300
BUILD_SECONDS = 900  # 40 s on an idle machine
MAX_BYTES = 40 * 1000 * 1000
VERSION = re.search(r"project\(cairn VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
TAG = "cp310-abi3-manylinux_2_35_x86_64"
# Libraries that a wheel of manylinux may take from the system: those of the C and C++ compiler, and zlib.
SYSTEM = re.compile(r"(lib(c|m|z|dl|rt|pthread|resolv|stdc\+\+|gcc_s)|ld-linux-x86-64)\.so\.\d+")
THREE_STEPS = textwrap.dedent("""\
    import importlib, sys
    for name in sys.argv[1:]:
        importlib.import_module(name)
    import cairn, cairn.torch, grpc, torch
    grpc.insecure_channel("localhost:1").close()
    model = torch.nn.Linear(2, 1, bias=False)
    with cairn.local(ps=1) as job:
        sgd = {"class_name": "SGD", "config": {"learning_rate": 0.25}}
        values = job.start({"weight": torch.zeros(1, 2).numpy()}, sgd)
        for _ in range(3):
            model.weight.data = torch.tensor(values["weight"])
            model.zero_grad()
            model(torch.tensor([[1.0, 2.0]])).sum().backward()
            job.push({"weight": model.weight.grad.numpy()})
            values = job.values
        assert values["weight"].tolist() == [[-0.75, -1.5]], values
    if "tensorflow" in sys.modules:
        assert float(sys.modules["tensorflow"].constant([1.0, 2.0])[1]) == 2.0
    print("trained")
    """)


def call(*command, seconds=SECONDS, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds, check=False,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def peers():
    """The modules that may bring other copies of the wheel's libraries, as far as they are installed."""
    tensorflow = PEERS_DIR and (pathlib.Path(PEERS_DIR) / "tensorflow").is_dir()
    return ("torch", "grpc", "tensorflow") if tensorflow else ("torch", "grpc")


class WheelTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.has_cuda = (BUILD / "bin/libcairn_cuda.so").exists()
        call(sys.executable, SOURCE / "python/build_wheel.py", "--no_build", "--build_dir", BUILD,
             "--output", cls.folder / "dist", *["--cuda"] * cls.has_cuda, seconds=BUILD_SECONDS)
        [cls.wheel] = (cls.folder / "dist").glob("cairn-*")
        cls.environment = cls.folder / "venv"
        call(sys.executable, "-m", "venv", "--without-pip", cls.environment)
        cls.python = cls.environment / "bin/python"
        call(sys.executable, "-m", "pip", "--python", cls.python, "install", "--no-index", "--no-deps", cls.wheel)
        # NumPy, nanobind's backend and the peers are not of the wheel.
        [site] = cls.environment.glob("lib/python3*/site-packages")
        (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{PEERS_DIR}\n")
        cls.package = site / "cairn"
        cls.binaries = [*(cls.package / "_bin").iterdir(), cls.package / "_native.abi3.so",
                        *(site / "cairn.libs").iterdir()]
        # Without PATH and CAIRN_BIN_DIR, which could lead to programs of the build.
        cls.variables = {"PATH": "/usr/bin:/bin", "HOME": str(cls.folder), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def call(self, *command):
        return call(*command, env=self.variables, cwd=self.folder)

    def test_name_and_size(self):
        self.assertEqual(self.wheel.name, f"cairn-{VERSION}-{TAG}.whl")
        self.assertLessEqual(self.wheel.stat().st_size, MAX_BYTES)
        with zipfile.ZipFile(self.wheel) as archive:
            metadata = archive.read(f"cairn-{VERSION}.dist-info/METADATA").decode()
            self.assertIn(f"cairn-{VERSION}.dist-info/licenses/LICENSE", archive.namelist())
        for line in ["Name: cairn", f"Version: {VERSION}", "Requires-Dist: numpy>=1.24", "Requires-Python: >=3.10",
                     "Requires-Dist: nanobind-backend<2,>=1", 'Requires-Dist: torch>=2.1; extra == "torch"']:
            self.assertIn(line, metadata.splitlines())

    def test_contains_all_sources_of_the_package(self):
        sources = SOURCE / "python/cairn"
        expected = {path.relative_to(sources) for path in sources.rglob("*.py")}
        self.assertEqual({path.relative_to(self.package) for path in self.package.rglob("*.py")}, expected)
        for name in ("py.typed", "_native.pyi"):
            self.assertTrue((self.package / name).exists(), name)

    def test_binaries_load_only_each_other_and_those_of_the_system(self):
        names = {path.name for path in self.binaries}
        for path in self.binaries:
            for library in re.findall(r"\(NEEDED\).*\[(.*)\]", call("readelf", "-d", path)):
                if library not in names:
                    self.assertRegex(library, SYSTEM, path)
        self.assertFalse([name for name in names if "hdf5" in name or "python" in name])

    def test_binaries_export_only_names_that_no_other_copy_has(self):
        for path in self.binaries:
            for line in call("nm", "-D", "--defined-only", path).splitlines():
                *_, kind, name = line.split()
                if kind == "A" or name.endswith(".cairn") or ".cairn@" in name:
                    continue
                if path.name == "_native.abi3.so":
                    self.assertEqual(name, "PyInit__native")
                else:  # instances of templates that the C++ library exports too, so that all have them already
                    self.assertRegex(name, r"^_Z(NK?)?St", path)

    def test_programs_are_of_the_wheel(self):
        for program in ("cairn", "cairn-ps", "cairn-worker"):
            self.assertRegex(self.call(self.environment / "bin" / program, "--version"),
                             rf"^{program} {re.escape(VERSION)} ")
        self.assertRegex(self.call(self.python, "-m", "cairn", "--version"), rf"^cairn {re.escape(VERSION)} ")

    def test_programs_run_in_a_target_folder(self):
        target = self.folder / "target"
        call(sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", target, self.wheel)
        variables = {**self.variables, "PYTHONPATH": f"{target}:{sysconfig.get_path('purelib')}"}
        self.assertRegex(call(sys.executable, "-m", "cairn", "--version", env=variables), r"^cairn ")

    def test_the_wheel_for_cuda_adds_the_backend(self):
        if not self.has_cuda:
            self.skipTest("the build has no CUDA backend")
        [wheel] = (self.folder / "dist").glob("cairn_cuda13-*")
        target = self.folder / "cuda"
        call(sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", target, self.wheel, wheel)
        backend = target / "cairn/_bin/libcairn_cuda.so"
        names = {path.name for path in (target / "cairn.libs").iterdir()}
        dynamic = call("readelf", "-d", backend)
        for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            if library not in names:
                self.assertRegex(library, rf"{SYSTEM.pattern}|lib(cublas|cublasLt)\.so\.13|libcudnn\.so\.9")
        for folder in ("cairn.libs", "nvidia/cu13/lib", "nvidia/cudnn/lib"):
            self.assertIn(f"$ORIGIN/../../{folder}", dynamic)
        self.assertIn("cairn_cuda_backend", call("nm", "-D", "--defined-only", backend).split())
        metadata = next(target.glob("cairn_cuda13-*.dist-info/METADATA")).read_text()
        for line in (f"Requires-Dist: cairn=={VERSION}", "Requires-Dist: nvidia-cublas>=13,<14",
                     "Requires-Dist: nvidia-cudnn-cu13>=9,<10"):
            self.assertIn(line, metadata.splitlines())
        # Found and opened: NVIDIA's libraries or its driver are what is missing on a machine without a GPU.
        devices = call(target / "cairn/_bin/cairn", "devices", env=self.variables)
        self.assertRegex(devices, r"libcublas\.so\.13|no NVIDIA driver|/gpu:0")

    def test_trains_with_the_wheel_alone(self):
        data = small_data()
        summary = self.folder / "summary.json"
        self.call(self.environment / "bin/cairn", "train", MLP, "--data_dir", data, "--ps", 1, "--workers", 2,
                  "--sync_replicas", "--epochs", 1, "--threads", 1, "--summary", summary)
        self.assertGreater(json.loads(summary.read_text())["global_step"], 0)

    def test_hdf5_is_refused_with_the_reason(self):
        file = self.folder / "model.h5"
        file.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(1000))
        done = subprocess.run([self.environment / "bin/cairn", "model", file], capture_output=True, text=True,
                              check=False, timeout=SECONDS, env=self.variables)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is HDF5, which this build cannot read", done.stderr)

    def test_trains_beside_other_copies_of_its_libraries_in_any_order_of_imports(self):
        for order in itertools.permutations(("cairn", *peers())):
            with self.subTest(order=order):
                self.assertEqual(self.call(self.python, "-c", THREE_STEPS, *order), "trained\n")


if __name__ == "__main__":
    if shutil.which("readelf") is None:
        print("skipped: there is no readelf (binutils)", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
