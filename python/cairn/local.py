"""Servers on this machine, for notebooks and tests: cairn.local(), cairn.servers()."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import IO, Any, overload

from cairn import _programs
from cairn._options import whole
from cairn.errors import Error
from cairn.job import Job, init

_END_SECONDS = 10


@overload
def local(ps: int = 1, workers: None = None, **options: Any) -> AbstractContextManager[Job]: ...


@overload
def local(ps: int = 1, *, workers: int, **options: Any) -> AbstractContextManager[list[Job]]: ...


def local(ps: int = 1, workers: int | None = None, **options: Any) -> AbstractContextManager[Any]:
    """Starts `ps` servers on this machine and gives the job of one worker on them; `options` are those of init().

    With `workers`, a list of so many jobs, one for each worker: a thread for each trains a model of its own. Each must
    close its job, also after an error: the other workers wait for it.

        def train(job):
            with job:
                ...

        with cairn.local(ps=1, workers=2) as jobs, ThreadPoolExecutor(2) as pool:
            results = list(pool.map(train, jobs))

    The servers end with the job, with the block, and with this process. For workers that are processes use
    `cairn run --ps 1 --workers 2 program.py`.
    """
    return _one_worker(ps, options) if workers is None else _several_workers(ps, workers, options)


@contextlib.contextmanager
def _one_worker(ps: int, options: dict[str, Any]) -> Iterator[Job]:
    with servers(ps) as addresses, init(addresses, worker=0, workers=1, **options) as job:
        yield job


@contextlib.contextmanager
def _several_workers(ps: int, workers: int, options: dict[str, Any]) -> Iterator[list[Job]]:
    workers = whole(workers, "workers", 1)
    with servers(ps) as addresses, contextlib.ExitStack() as stack:
        # Closed in the opposite order: the chief waits for the others.
        yield [stack.enter_context(init(addresses, worker=worker, workers=workers, **options)) for worker in range(workers)]


@contextlib.contextmanager
def servers(ps: int = 1) -> Iterator[list[str]]:
    """Starts `ps` servers on this machine and yields their addresses, for workers that something else starts on this
    machine, with init(addresses, worker=..., workers=...).

    The servers end with the job, with the block, and with this process.
    """
    ps = whole(ps, "ps", 1)
    before_exec = _programs.dying_with_parent()
    started: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        addresses = [f"127.0.0.1:{stack.enter_context(_reserved_port()).getsockname()[1]}" for _ in range(ps)]
        command = [_programs.path("cairn-ps"), "--ps_hosts", ",".join(addresses), "--job_name", "ps", "--reuse_port"]
        # A file for each log: an unread pipe fills, and its server then stops at the next line.
        logs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(ps)]
        for index, log in enumerate(logs):
            with warnings.catch_warnings():  # JAX warns of forks, but this one runs nothing else before exec
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                process = subprocess.Popen([*command, "--task_index", str(index)], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL, stderr=log, preexec_fn=before_exec)
            started.append(process)
            stack.callback(_end, process)
        try:
            yield addresses
        except Error as error:
            dead = [f"ps/{i} ended with code {server.returncode}: {_last_line(log)}"
                    for i, (server, log) in enumerate(zip(started, logs)) if server.poll() not in (None, 0)]
            if dead:
                raise type(error)(f"{error}; {'; '.join(dead)}", error.code) from error
            raise


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return lines[-1] if lines else "it wrote no log"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _reserved_port() -> socket.socket:
    """Holds a port that a server may share, so that until the server listens no other program gets it."""
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
    except OSError:
        held.close()
        raise
    return held
