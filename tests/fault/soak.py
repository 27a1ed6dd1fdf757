"""Trains while tasks are killed and paused at random, and proves by the result that each update counted once.

    python3 tests/fault/soak.py --mode sync --seconds 600 --seed 1 [--ps_replication]

A job of 2 servers and 4 workers under `cairn train`; every few seconds a random task, servers and chief included, gets
SIGKILL, or SIGSTOP and some seconds later SIGCONT. When the time is over the job may finish. Ends with 0 when all of
these hold:

  the end      exit code 0 within a limit; no process, listening port or temporary file is left
  the result   the network is linear with mean absolute error and far from its target, so the gradient of every
               variable is exactly -1, and with SGD at rate 1 every element is the number of updates made
  the summary  its counters fit each other and the variables
  the memory   no process grows once it is warm, until the faults end; the end of the last epoch may need more

With --ps_replication each server's shard has a backup on the other server, and nothing is saved before the end. Then
only servers are killed and paused, the next one when both backups are in sync again. No update may be missing or be
applied twice, and no rollback may happen.

The seed determines the faults but not the scheduling of threads, so the same seed need not fail again.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import struct
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from harness import DONE, IntegrationTest, read_summary  # noqa: E402

SERVERS, WORKERS = 2, 4
BATCH = 8  # powers of two, as the gradient's mean is exact then
BATCHES = 64  # of each worker in an epoch
INPUTS = 1024
LEASE = 3  # seconds: some pauses are shorter, some longer
BETWEEN_FAULTS = (1.0, 5.0)  # seconds
PAUSES = (1.0, 8.0)
AFTER_PAUSE = 30  # seconds after a pause's begin: both backups are in sync again by then
CALM = 0.8  # so much of what an undisturbed job does in the time is asked for: the faults must not outlast it
REPLICATED = 0.4  # of that with backups, for which answers wait
WARM_UP = 10  # seconds of a process' life until its memory is what it needs; shorter runs do not look
MOST_GROWTH = 24 << 10  # KiB: one arena of glibc's more, TuneMalloc()'s padding
MOST_TORN = 0.2  # seconds of asynchronous pushes between the snapshot markers on two servers, on a busy machine
LISTENS, CONNECTED = "0A", "01"  # in /proc/net/tcp


def write_npy(path, shape, value):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    count = 1
    for extent in shape:
        count *= extent
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack("<f", value) * count)


def write_data(directory):
    """Inputs of 1, targets that the outputs never reach."""
    directory.mkdir()
    examples = BATCH * BATCHES * WORKERS
    write_npy(directory / "x_train.npy", (examples, INPUTS), 1.0)
    write_npy(directory / "y_train.npy", (examples, 1), 1e30)
    return directory


def write_model(path):
    """The sum of two linear maps, of equal size: one for each server. All variables begin at 0."""
    def comes_from(*layers):
        tensors = [{"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}} for name in layers]
        return [{"args": [tensors if len(tensors) > 1 else tensors[0]], "kwargs": {}}]

    dense = {"units": 1, "kernel_initializer": "zeros"}
    layers = [
        {"class_name": "InputLayer", "name": "in", "config": {"name": "in", "batch_shape": [None, INPUTS]},
         "inbound_nodes": []},
        *({"class_name": "Dense", "name": name, "config": {"name": name, **dense}, "inbound_nodes": comes_from("in")}
          for name in ("left", "right")),
        {"class_name": "Add", "name": "sum", "config": {"name": "sum"}, "inbound_nodes": comes_from("left", "right")},
    ]
    path.write_text(json.dumps({
        "class_name": "Functional",
        "config": {"name": "counter", "layers": layers, "input_layers": [["in", 0, 0]],
                   "output_layers": [["sum", 0, 0]]},
        "compile_config": {"optimizer": {"class_name": "SGD", "config": {"learning_rate": 1.0}},
                           "loss": {"class_name": "MeanAbsoluteError"}}}))
    return path


def read_safetensors(path):
    content = path.read_bytes()
    (head_bytes,) = struct.unpack_from("<Q", content)
    head = json.loads(content[8:8 + head_bytes])
    data = content[8 + head_bytes:]
    tensors = {}
    for name, entry in head.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return tensors


def resident_kib(pid):
    """Without files' pages, which come in as code is used: 50 MiB more when libraries are unloaded at a process' end.
    None when it has ended."""
    with contextlib.suppress(OSError):
        found = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
        return sum(map(int, found)) if found else None
    return None


class Memory:
    """The memory of processes, and its growth since they were warm."""

    def __init__(self):
        self._seen = {}  # by pid: name, first seen, most while warming up, most since

    def look(self, named):
        now = time.monotonic()
        for pid, name in named.items():
            if (kib := resident_kib(pid)) is None:
                continue
            entry = self._seen.setdefault(pid, [name, now, 0, 0])
            phase = 2 if now - entry[1] < WARM_UP else 3
            entry[phase] = max(entry[phase], kib)

    def growth(self):
        """The growth of the processes that outlived the warm-up: (KiB, task, pid), the largest first."""
        return sorted(((since - warm, name, pid) for pid, (name, _, warm, since) in self._seen.items() if since),
                      reverse=True)


class Faults:
    """Kills and pauses, and what was done so far."""

    def __init__(self, seed, servers_only=False):
        self._random = random.Random(seed)
        self._servers_only = servers_only
        self._start = time.monotonic()
        self._next = self._start + BETWEEN_FAULTS[1]
        self._paused = {}  # pid: when it continues
        self.kills = []  # names of tasks
        self.pauses = []  # seconds

    def step(self, tasks, calm=True):
        """Resumes paused tasks that are due, and injects the next fault if it is due and `calm`. `tasks`: names by
        pid."""
        now = time.monotonic()
        for pid in [pid for pid, until in self._paused.items() if until <= now]:
            self._resume(pid)
        if now < self._next or not calm or (self._servers_only and self._paused):
            return
        self._next = now + self._random.uniform(*BETWEEN_FAULTS)
        servers, workers = [f"ps/{i}" for i in range(SERVERS)], [f"worker/{i}" for i in range(WORKERS)]
        name = self._random.choice(servers if self._servers_only else servers + workers)
        kill, pause = self._random.random() < 0.5, self._random.uniform(*PAUSES)
        pid = next((pid for pid, task in tasks.items() if task == name and pid not in self._paused), None)
        if pid is None:  # paused, or about to be started again
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if kill else signal.SIGSTOP)
            self._say(f"{name} ({pid}) " + ("is killed" if kill else f"pauses for {pause:.1f} s"))
            if kill:
                self.kills.append(name)
            else:
                self.pauses.append(pause)
                self._paused[pid] = now + pause

    def end(self):
        for pid in list(self._paused):
            self._resume(pid)
        self._say("no more faults")

    def _resume(self, pid):
        del self._paused[pid]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _say(self, what):
        print(f"{time.monotonic() - self._start:7.1f} s: {what}", file=sys.stderr)


class Soak(IntegrationTest):
    options = None  # of the command line
    seconds_each = 0.0  # of an epoch that nothing disturbs
    _faults_seen = _kills_seen = _in_sync_before = _in_sync_last = 0
    _killed, _calm_since = False, 0.0

    def test_every_update_counts_once_whatever_is_killed(self):
        self.model = write_model(self.directory / "model.json")
        self.data = write_data(self.directory / "data")
        epochs = self.epochs()
        faults, memory = Faults(self.options.seed, self.options.ps_replication), Memory()
        job = self.start_job(epochs)
        if self.options.log:
            self.addCleanup(lambda: pathlib.Path(self.options.log).write_text(job.stderr))
        ports = self.disturb(job, faults, memory)
        faults.end()
        self.watch_to_the_end(job, seconds=2 * self.options.seconds + 120)
        self.assert_exit(DONE, job)
        self.assert_nothing_left(ports)
        summary = read_summary(self.directory / "summary.json")
        growth = memory.growth()
        most = growth[0] if growth else (0, "none", 0)
        print(f"{self.options.mode}: {len(faults.kills)} kills ({sum(name.startswith('ps') for name in faults.kills)} of "
              f"servers), {len(faults.pauses)} pauses; {summary['global_step']} updates, {summary['gradients_accepted']} "
              f"gradients accepted, {summary['gradients_duplicate']} duplicate, {summary['gradients_stale']} stale, "
              f"{summary['examples_missed']} examples missed, {summary['examples_repeated']} repeated; most growth {most[0] >> 10} MiB, of {most[1]}; "
              f"{summary['seconds']:.0f} s", file=sys.stderr)
        self.check_values(summary, epochs, faults, self.gone_at_the_end(job.stderr))
        self.check_counters(summary, epochs)
        if self.options.ps_replication:
            self.assertNotRegex(job.stderr, "resuming from step|starts again at step 0|have been rolled back")
            if self.options.mode == "async":
                self.assertEqual(summary["global_step"], epochs * BATCHES * WORKERS)
        self.assertLess(most[0], MOST_GROWTH, f"KiB that processes grew: {growth[:5]}")

    def flags(self, epochs):
        mode = {"sync": ["--mode=sync"], "async": ["--mode=async"], "ssp": ["--mode=ssp", "--max_staleness=4"]}
        return ["--model", self.model, "--data_dir", self.data, "--ps", SERVERS, "--workers", WORKERS,
                f"--batch_size={BATCH}", f"--epochs={epochs}", "--threads=1", *mode[self.options.mode],
                f"--data_sharding={self.options.data_sharding}"]

    def epochs(self):
        """The number of epochs for which the job outlasts the faults."""
        trial = self.run_to_end("cairn", "train", *self.flags(24), "--summary=trial.json")
        self.assert_exit(DONE, trial)
        self.seconds_each = read_summary(self.directory / "trial.json")["seconds"] / 24
        share = CALM * (REPLICATED if self.options.ps_replication else 1)
        return max(1, int(share * self.options.seconds / self.seconds_each))

    def start_job(self, epochs):
        (self.directory / "tmp").mkdir()
        saves = ["--ps_replication=1", "--save_secs=0"] if self.options.ps_replication else ["--save_secs=1"]
        return self.start("cairn", "train", *self.flags(epochs), "--train_dir=train", *saves, f"--lease={LEASE}", "--summary=summary.json", "--verbose",
                          env={"TMPDIR": str(self.directory / "tmp")})

    def tasks(self):
        """Names of the job's tasks by pid."""
        named = {}
        for pid in self.marked():
            with contextlib.suppress(OSError):
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", "\n")
                job = re.search(r"^--job_name=(\w+)$", command, re.M)
                index = re.search(r"^--task_index=(\d+)$", command, re.M)
                named[pid] = f"{job[1]}/{index[1]}" if job and index else "launcher"
        return named

    def disturb(self, job, faults, memory):
        """Injects faults until the time or the job is over. Returns the ports of the servers."""
        end = time.monotonic() + self.options.seconds
        ports = set()
        while time.monotonic() < end and job.running:
            named = self.tasks()
            for pid in named:
                with contextlib.suppress(OSError):
                    ports |= set(re.findall(r"--listen=127\.0\.0\.1:(\d+)", pathlib.Path(f"/proc/{pid}/cmdline").read_text()))
            memory.look(named)
            faults.step(named, calm=not self.options.ps_replication or self.backups_are_in_sync(job, faults))
            job.wait_for(r"^\0", 0.1)  # for the end, or so long
        return ports

    def backups_are_in_sync(self, job, faults):
        """Whether both backups are in sync again: after a kill, when the log has a line about each since then. A pause
        need not leave a line, so after one this waits for AFTER_PAUSE seconds."""
        told = job.stderr.splitlines()
        in_sync = [line for line in told if "'s shard is in sync with its backup on" in line]
        if len(faults.kills) + len(faults.pauses) != self._faults_seen:
            self._faults_seen = len(faults.kills) + len(faults.pauses)
            self._killed = len(faults.kills) > self._kills_seen
            self._kills_seen = len(faults.kills)
            self._in_sync_before, self._calm_since = self._in_sync_last, time.monotonic()
        self._in_sync_last = len(in_sync)  # before the fault that may follow
        if self._killed:
            return len(in_sync) >= self._in_sync_before + SERVERS
        return len(in_sync) >= SERVERS and time.monotonic() - self._calm_since > AFTER_PAUSE

    def watch_to_the_end(self, job, seconds):
        deadline = time.monotonic() + seconds
        while not job.wait(0.5):
            if time.monotonic() > deadline:
                self.fail(f"the job still runs {seconds} s after the last fault\n{job.story()}")

    def assert_nothing_left(self, ports):
        self.assert_nothing_runs()
        self.assertEqual(len(ports), SERVERS)
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, state = line.split()[:4]
            used = {str(int(address.split(":")[1], 16)) for address in (local, remote)}
            self.assertFalse(state in (LISTENS, CONNECTED) and used & ports, f"a socket is left: {line}")
        left = [path.name for path in (self.directory / "tmp").iterdir()]
        left += [str(path) for path in (self.directory / "train").rglob("*.tmp-*")]
        self.assertEqual(left, [], "temporary files are left")

    def gone_at_the_end(self, log):
        """Workers whose lease ran out, by a pause, and who were not back when the others were done."""
        gone = set()
        for worker, what in re.findall(r"\] (worker/\d+) (joined|sent no heartbeat)", log):
            (gone.add if what != "joined" else gone.discard)(worker)
        return gone

    def check_values(self, summary, epochs, faults, gone):
        self.assert_exit(DONE, self.run_to_end("cairn", "checkpoint", "verify", "train"))
        self.assert_exit(DONE, self.run_to_end("cairn", "checkpoint", "consolidate", "train", "-o", "all.safetensors"))
        tensors = read_safetensors(self.directory / "all.safetensors")
        self.assertEqual(sorted(tensors), ["left/bias", "left/kernel", "right/bias", "right/kernel"])
        updates = {name: sorted(set(values)) for name, values in tensors.items()}
        if self.options.mode != "async" or self.options.ps_replication:  # one log for all, or nothing is rolled back
            self.assertEqual(updates, {name: [summary["global_step"]] for name in updates})
            return
        # Each server counts for itself. What only one had when a snapshot was marked is not repeated on the other.
        left, right = updates["left/kernel"], updates["right/kernel"]
        self.assertEqual(updates, {name: left if name.startswith("left") else right for name in updates})
        self.assertEqual(left, [summary["global_step"]])
        self.assertEqual(len(right), 1)
        most = epochs * BATCHES * WORKERS
        if self.options.data_sharding == "dynamic":  # the summary reports missing and repeated examples
            used = (left[0] + right[0]) * BATCH
            self.assertEqual(used, SERVERS * BATCH * most - summary["examples_missed"] + summary["examples_repeated"])
            return
        torn = MOST_TORN * BATCHES * WORKERS / self.seconds_each
        for count in (left[0], right[0]):
            self.assertLessEqual(count, most)
            if not gone:  # the rest of their parts is missing, and is reported
                self.assertGreaterEqual(count, most - torn * (1 + len(faults.kills)))

    def check_counters(self, summary, epochs):
        steps, accepted = summary["global_step"], summary["gradients_accepted"]
        in_all = epochs * BATCHES * (1 if self.options.mode == "sync" else WORKERS)
        dynamic = self.options.data_sharding == "dynamic"
        if self.options.mode == "sync" and dynamic:  # rounds without a lost worker are smaller, some parts empty
            self.assertGreaterEqual(steps, in_all)
        else:
            self.assertEqual(summary["examples"], BATCH * accepted)
        if self.options.mode == "sync":
            if not dynamic:
                self.assertEqual(steps, in_all)
            self.assertGreaterEqual(accepted, steps)
            self.assertLessEqual(accepted, WORKERS * steps)
        else:
            self.assertEqual(steps, accepted)
            self.assertLessEqual(steps, in_all)
        if not dynamic:
            self.assertEqual(summary["examples_missed"], BATCH * BATCHES * WORKERS * epochs - summary["examples"])
        elif self.options.mode != "async":  # whichever task was killed, each example is used once per epoch
            self.assertEqual(summary["examples"], BATCH * BATCHES * WORKERS * epochs)
            self.assertEqual((summary["examples_missed"], summary["examples_repeated"]), (0, 0))
        self.assertEqual(sum(summary["staleness_histogram"]), accepted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["sync", "async", "ssp"], default="sync")
    parser.add_argument("--seconds", type=float, default=600, help="how long there are faults")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--data_sharding", choices=["static", "dynamic"], default="static")
    parser.add_argument("--ps_replication", action="store_true", help="with a backup of each server's shard on the other")
    parser.add_argument("--log", help="a file for the output of all tasks")
    Soak.options = parser.parse_args()
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(Soak))
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
