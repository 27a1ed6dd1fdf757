"""Makes stand-ins for NVIDIA's libraries, which PyTorch loads at import even on a machine without a GPU.

    nvidia_stand_ins.py SITE_PACKAGES/torch/lib

The tests use PyTorch on CPUs. The real libraries have 2.4 GB; a stand-in has the symbols that PyTorch's own libraries
refer to, and each of its functions returns 100, which is cudaErrorNoDevice: torch.cuda.is_available() is false. Those
that describe an error return a text.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

SECONDS = 60
LIBRARY = re.compile(r"lib(cu|nv|nccl)")
FUNCTION = re.compile(r"(__)?(cu[a-zA-Z]|nccl|nvrtc|nvshmem)")
DESCRIPTION = re.compile(r"(?!cu[A-Z])\w+Get(Error|Status)(String|Name)$|ncclGetLastError$")
UNVERSIONED = "libnccl.so.2"  # a loader finds a symbol without version in any library


def call(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=SECONDS).stdout


def missing(folder):
    """The names of the libraries that are not in the folder, and the functions of each by [library, version]."""
    own = sorted(folder.glob("*.so*"))
    defined, wanted, libraries, library_of = set(), set(), set(), {"": UNVERSIONED}
    for path in own:
        for line in call("nm", "-D", path).splitlines():
            *_, kind, symbol = line.split()
            name, _, version = symbol.partition("@")
            if kind == "U":
                wanted.add((name, version))
            elif kind not in "wv":
                defined.add(name)
        libraries |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", call("readelf", "-d", path)))
        library = None
        for line in call("readelf", "-V", path).splitlines():
            if match := re.search(r"File: (\S+)", line):
                library = match[1]
            elif match := re.search(r"Name: (\S+)  Flags", line):
                library_of[match[1]] = library
    functions = collections.defaultdict(list)
    for name, version in sorted(wanted):
        if name not in defined and FUNCTION.match(name):
            functions[library_of[version], version].append(name)
    return sorted(name for name in libraries - {path.name for path in own} if LIBRARY.match(name)), functions


def labels(names):
    return "".join(f".globl {name}\n.type {name},@function\n{name}:\n" for name in names)


def main():
    folder = pathlib.Path(sys.argv[1])
    libraries, functions = missing(folder)
    for library in libraries:
        versions = {version: names for (owner, version), names in functions.items() if owner == library}
        with tempfile.TemporaryDirectory() as temporary:
            source, exports = pathlib.Path(temporary, "functions.s"), pathlib.Path(temporary, "exports.map")
            names = [name for of_version in versions.values() for name in of_version]
            source.write_text(f'''.text
{labels(name for name in names if not DESCRIPTION.match(name))}mov $100,%eax
ret
{labels(filter(DESCRIPTION.match, names))}lea text(%rip),%rax
ret
text: .asciz "NVIDIA's libraries are not installed"
.section .note.GNU-stack,"",@progbits
''')
            exports.write_text("".join(f"{version} {{ {'; '.join(names)}; }};\n"
                                       for version, names in versions.items() if version) or "{ global: *; };\n")
            call("gcc", "-shared", "-nostdlib", f"-Wl,-soname,{library}", f"-Wl,--version-script={exports}", "-o",
                 folder / library, source)


if __name__ == "__main__":
    main()
