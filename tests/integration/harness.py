"""Starts Cairn's programs as real processes and ensures that none outlives its test.

A test class derives from IntegrationTest, which gives each test its own directory, start() and run(). Cluster starts
tasks one by one. Every wait has a limit. Every process and its children carry the test's mark in their environment,
so all of them can be found, whatever their parent.

Environment variables, all set by ctest:
  CAIRN_BIN_DIR    where cairn, cairn-ps and cairn-worker are        [build/release/bin]
  CAIRN_CACHE_DIR  where data is kept from one run to the next        [build/release/integration_data]
  CAIRN_MNIST_DIR  the real MNIST                                     [none: generated digits]
"""

import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BIN_DIR = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", REPOSITORY / "build/release/bin"))
CACHE_DIR = pathlib.Path(os.environ.get("CAIRN_CACHE_DIR", REPOSITORY / "build/release/integration_data"))
MNIST_DIR = os.environ.get("CAIRN_MNIST_DIR", "")

CNN = REPOSITORY / "tests/support/data/keras316_mnist_cnn.json"  # an export of Keras 3.16
MLP = REPOSITORY / "deploy/examples/mnist_mlp.json"  # two dense layers, for quick steps

# Exit codes, as docs/reference/exit-codes.md defines them.
DONE, FAILURE, USAGE, INCOMPATIBLE, RETRYABLE, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 138, 130, 143

TIME_LIMIT = 60  # seconds, for waits that take a few seconds on an idle machine
MARK = "CAIRN_TEST_MARK"
SKIPPED = 77  # our exit code, as CMakeLists.txt declares to ctest


class Process:
    """A started program. Its output is collected while it runs."""

    def __init__(self, name, command, env, cwd):
        self.name = name
        self._changed = threading.Condition()
        self._lines = {"stdout": [], "stderr": []}
        # setpriv makes the kernel kill the program when we die, even by ctest's SIGKILL.
        self._popen = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *map(str, command)],
            env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True)
        self._readers = [threading.Thread(target=self._read, args=(stream,)) for stream in self._lines]
        for reader in self._readers:
            reader.start()

    def _read(self, stream):
        with getattr(self._popen, stream) as pipe:
            for line in pipe:
                with self._changed:
                    self._lines[stream].append(line)
                    self._changed.notify_all()

    pid = property(lambda self: self._popen.pid)
    running = property(lambda self: self._popen.poll() is None)
    code = property(lambda self: self._popen.returncode)  # negative: killed by that signal
    stdout = property(lambda self: self._text("stdout"))
    stderr = property(lambda self: self._text("stderr"))

    def _text(self, stream):
        with self._changed:
            return "".join(self._lines[stream])

    def wait(self, seconds):
        """Waits for the end of the process. True: it has ended, and all its output has been read."""
        deadline = time.monotonic() + seconds
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        for reader in self._readers:  # ends when its children, too, have closed the pipe
            reader.join(max(0, deadline - time.monotonic()))
        return not any(reader.is_alive() for reader in self._readers)

    def wait_for(self, pattern, seconds):
        """True when a line of either stream matches; False when the time is over or the output has ended."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                if any(re.search(pattern, line) for lines in self._lines.values() for line in lines):
                    return True
                left = deadline - time.monotonic()
                if left <= 0 or not any(reader.is_alive() for reader in self._readers):
                    return False
                self._changed.wait(min(left, 0.2))

    def signal(self, number):
        self._popen.send_signal(number)

    def story(self):
        state = "runs" if self.running else f"ended with {self.code}"
        tail = "".join(f"    | {line}\n" for line in (self.stdout + self.stderr).splitlines()[-12:])
        return f"  {self.name} (pid {self.pid}) {state}\n{tail}"


class IntegrationTest(unittest.TestCase):

    def setUp(self):
        self.mark = uuid.uuid4().hex
        self.processes = []
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="cairn-test-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(self._kill_all)

    def start(self, program, *arguments, name=None, env=None, cwd=None):
        """Starts one of Cairn's programs."""
        return self.start_command([BIN_DIR / program, *arguments], name=name or program, env=env, cwd=cwd)

    def start_command(self, command, name=None, env=None, cwd=None):
        environment = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "OMP_WAIT_POLICY")}
        environment.update(env or {}, **{MARK: self.mark})
        process = Process(name or command[0], command, environment, cwd or self.directory)
        self.processes.append(process)
        return process

    def run_to_end(self, program, *arguments, seconds=TIME_LIMIT, **options):
        """Starts a program and waits for its end. Any exit code is accepted."""
        process = self.start(program, *arguments, **options)
        if not process.wait(seconds):
            self.fail(f"{program} still runs after {seconds} s\n{self._stories()}")
        return process

    def train(self, *arguments, threads=1, **options):
        """Runs `cairn train` on the small data set. One thread each gives the same bits on every machine."""
        return self.run_to_end("cairn", "train", *arguments, "--data_dir", small_data(), "--threads", threads, **options)

    def assert_exit(self, code, *processes, seconds=TIME_LIMIT):
        deadline = time.monotonic() + seconds
        for process in processes:
            if not process.wait(max(0, deadline - time.monotonic())):
                self.fail(f"{process.name} still runs after {seconds} s\n{self._stories()}")
            if process.code != code:
                self.fail(f"{process.name} ended with {process.code}, expected {code}\n{self._stories()}")

    def assert_says(self, process, pattern, seconds=TIME_LIMIT):
        if not process.wait_for(pattern, seconds):
            self.fail(f"{process.name} did not say {pattern!r} within {seconds} s\n{self._stories()}")

    def assert_stops(self, process, seconds=TIME_LIMIT):
        """Asserts that SIGSTOP has paused the process."""
        deadline = time.monotonic() + seconds
        while process.running and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T":
                    return
            time.sleep(0.02)
        self.fail(f"{process.name} did not stop within {seconds} s\n{self._stories()}")

    def assert_refused(self, process, pattern):
        """Asserts a usage error: one line that names the fault, and no process was started."""
        self.assert_exit(USAGE, process)
        self.assertRegex(process.stderr, pattern)
        self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
        self.assertEqual(process.stdout, "")
        self.assert_nothing_runs()

    def marked(self):
        """Ids of the running processes that this test has started, directly or not."""
        entry = f"{MARK}={self.mark}".encode()
        pids = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # ended meanwhile, or not ours
                if entry in path.read_bytes().split(b"\0"):
                    pids.append(int(path.parent.name))
        return pids

    def assert_nothing_runs(self, seconds=0):
        """Asserts that none of the test's processes runs, now or within so many seconds while the kernel kills them."""
        self.assertEqual(self._await_none(seconds), [], "these processes are left")

    def _await_none(self, seconds):
        deadline = time.monotonic() + seconds
        while (left := self.marked()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in left]

    def _kill_all(self):
        for pid in self.marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait(10)
        self.assertEqual(self._await_none(10), [], "these processes cannot be killed")

    def _stories(self):
        return "".join(process.story() for process in self.processes)


class Cluster:
    """Tasks that a test starts one by one. Each is given the cluster in one of the ways that users have."""

    def __init__(self, test, ps=1, workers=2, chief=False):
        self._test = test
        counts = {"ps": ps, "worker": workers, "chief": int(chief)}
        self.addresses = {job: [f"127.0.0.1:{reserve_port(test)}" for _ in range(n)] for job, n in counts.items() if n}

    def tasks(self):
        return [(job, index) for job, addresses in self.addresses.items() for index in range(len(addresses))]

    def sparse(self):
        return {job: {str(i): address for i, address in enumerate(addresses)}
                for job, addresses in self.addresses.items()}

    def by_flags(self, _job, _index):
        return [f"--{job}_hosts={','.join(addresses)}" for job, addresses in self.addresses.items()], {}

    def by_file(self, _job, _index):
        return [f"--cluster={self._write(self.addresses)}"], {}

    def by_sparse_file(self, _job, _index):
        return [f"--cluster={self._write(self.sparse())}"], {}

    def by_tf_config(self, job, index):
        return [], {"TF_CONFIG": json.dumps({"cluster": self.addresses, "task": {"type": job, "index": index}})}

    def by_kubeflow_config(self, job, index):
        """Kubeflow's sparse form: each ps knows only itself, in a list of one, whatever its index."""
        ps = [self.addresses["ps"][index]] if job == "ps" else self.addresses["ps"]
        sparse = {"ps": ps, "worker": self.sparse()["worker"]}
        return [], {"TF_CONFIG": json.dumps({"sparseCluster": sparse, "task": {"type": job, "index": str(index)}})}

    def start(self, job, index, *flags, told=None):
        cluster_flags, env = (told or self.by_flags)(job, index)
        if not env:
            cluster_flags += [f"--job_name={job}", f"--task_index={index}"]
        if job == "ps":  # shares the port with our reservation
            return self._test.start("cairn-ps", *cluster_flags, "--reuse_port", *flags, name=f"ps/{index}", env=env)
        flags = ["--data_dir", small_data(), "--threads", 1, *flags]
        return self._test.start("cairn-worker", *cluster_flags, *flags, name=f"{job}/{index}", env=env)

    def start_all(self, *flags, told=None):
        """Starts all tasks. Only workers and the chief get the flags: a ps gets the job from the chief."""
        return {f"{job}/{index}": self.start(job, index, *([] if job == "ps" else flags), told=told)
                for job, index in self.tasks()}

    def _write(self, spec):
        """Replaces the file by renaming, because a task that was started earlier may be reading it."""
        path = self._test.directory / "cluster.json"
        new = path.with_suffix(".new")
        new.write_text(json.dumps(spec))
        return new.replace(path)


def reserve_port(test):
    """A port that is reserved until the test ends. A server may listen on it with SO_REUSEPORT."""
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    test.addCleanup(reservation.close)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind(("0.0.0.0", 0))
    return reservation.getsockname()[1]


class Relay:
    """A TCP port that forwards everything to another port, until cut() breaks all its connections."""

    def __init__(self, test, to_port=None, host="127.0.0.1"):
        """Forwards to 127.0.0.1, by default to the port of the same number."""
        self._lock = threading.Lock()
        self._sockets = set()
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        self._to_port = to_port or self.port
        threading.Thread(target=self._accept, daemon=True).start()
        test.addCleanup(self._close)

    def cut(self):
        """Breaks all connections. Returns how many there were."""
        with self._lock:
            broken = len(self._sockets) // 2
            for end in self._sockets:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return broken

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to_port), timeout=TIME_LIMIT)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._sockets |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets.discard(source)
        source.close()

    def _close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()


SMALL = {"train": 2000, "t10k": 500}  # examples


def small_data():
    """A directory with SMALL examples in IDX files: the first ones of the real MNIST, or synthetic digits."""
    kind = "mnist" if MNIST_DIR else "digits"
    directory = CACHE_DIR / f"{kind}-{SMALL['train']}-{SMALL['t10k']}"
    if not directory.exists():
        CACHE_DIR.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE_DIR) as parent:
            made = pathlib.Path(parent) / "data"
            made.mkdir()
            (cut_mnist if MNIST_DIR else make_digits)(made)
            with contextlib.suppress(OSError):  # another test was faster
                made.rename(directory)
    return directory


def cut_mnist(directory):
    for split, count in SMALL.items():
        for kind, header_bytes, bytes_each in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
            name = f"{split}-{kind}-ubyte"
            packed = pathlib.Path(MNIST_DIR) / f"{name}.gz"
            with gzip.open(packed) if packed.exists() else open(pathlib.Path(MNIST_DIR) / name, "rb") as file:
                header = file.read(header_bytes)
                values = file.read(count * bytes_each)
            (directory / name).write_bytes(header[:4] + struct.pack(">I", count) + header[8:] + values)


def make_digits(directory, train=SMALL["train"]):
    subprocess.run([BIN_DIR / "cairn", "digits", directory, "--train", str(train),
                    "--validation", str(SMALL["t10k"])], check=True, stdout=subprocess.DEVNULL, timeout=TIME_LIMIT)


def floats_of(path):
    """All values of a .safetensors file, by name."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + length])
    values = {}
    for name, tensor in head.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            part = data[8 + length + begin:8 + length + end]
            values[name] = struct.unpack(f"<{len(part) // 4}f", part)
    return values


def read_summary(path):
    return json.loads(pathlib.Path(path).read_text())


def main():
    """Runs the file's tests. Exits with SKIPPED if all of them were skipped."""
    print(f"data: {MNIST_DIR or 'generated digits (CAIRN_MNIST_DIR is not set)'}; programs: {BIN_DIR}", file=sys.stderr)
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)
