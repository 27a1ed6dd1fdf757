"""The programs in the package: cairn, cairn-ps, cairn-worker."""

from __future__ import annotations

import ctypes
import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable

from cairn.errors import Refused

_PR_SET_PDEATHSIG = 1


def path(program: str) -> str:
    """The path of a program: in the package, in CAIRN_BIN_DIR, or on PATH."""
    here = pathlib.Path(__file__).with_name("_bin") / program
    if here.exists():
        return str(here)
    found = shutil.which(program, path=os.environ.get("CAIRN_BIN_DIR")) or shutil.which(program)
    if found is None:
        raise Refused(f"the program {program} is neither in the package nor in CAIRN_BIN_DIR or PATH")
    return found


def dying_with_parent() -> Callable[[], None]:
    """For a child to call before exec: has the kernel end it when the parent's thread ends, and keeps Ctrl-C of the
    parent's terminal away from it. Everything is loaded before the fork, which may leave locks of other threads taken.
    """
    prctl, setpgid, signal_number = ctypes.CDLL(None).prctl, os.setpgid, int(signal.SIGKILL)

    def before_exec() -> None:
        setpgid(0, 0)
        prctl(_PR_SET_PDEATHSIG, signal_number)
    return before_exec


def _run(program: str) -> None:
    try:
        executable = path(program)
    except Refused as error:
        sys.exit(f"{program}: {error}")
    os.execv(executable, [program, *sys.argv[1:]])


def cairn() -> None:
    """The command `cairn`."""
    _run("cairn")


def cairn_ps() -> None:
    """The command `cairn-ps`."""
    _run("cairn-ps")


def cairn_worker() -> None:
    """The command `cairn-worker`."""
    _run("cairn-worker")
