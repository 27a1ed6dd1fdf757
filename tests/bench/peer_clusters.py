#!/usr/bin/env python3
"""Training runs of Cairn and of its alternatives on one machine: examples/s as a ratio, ours / the peer's.

    tests/bench/peer_clusters.py --data_dir MNIST [--tensorflow_python PATH] [--torch_python PATH]
                                 [--bin build/release/bin] [--networks cnn,wide]
                                 [--modes async,async_torch,sync,allreduce] [--rounds 3] [--batch_size 64] [--ps 1]

Compares `--mode async` with 2 workers to TensorFlow's ParameterServerStrategy (peer_tensorflow.py: a coordinator, as
many servers and workers, gRPC), and `--mode sync` and `--mode allreduce` to PyTorch's DistributedDataParallel over gloo
(peer_torch.py). async_torch is a program of PyTorch on Cairn's servers (peer_torch.py --cairn), asynchronous too, and
is compared to TensorFlow; it needs cairn's package for --torch_python, for example by PYTHONPATH. The paths are those
of Pythons with tensorflow-cpu and tf_keras, or torch. A peer whose Python is not given is left out, with a message. All
train the same network on the same images with the same batch size for each of 2 workers, the same Adam and number of
updates, and one compute thread for each worker. The peers' files and NETWORKS describe how the peers were tuned. All
runs of a round follow each other, and each ratio is of one round.

examples/s and processor time are measured in the steady state, in the same way for all: between the first and the last
of the updates that NETWORKS names, so neither start-up nor evaluation counts. Processor time is that of all processes
of the run. "seconds" is the time of the whole run, from launch to exit, with imports and the evaluation of the test
set. Exits with 1 if the median accuracies on the test set differ by more than NETWORKS allows, because then the runs
are not comparable.
"""

import argparse
import json
import os
import queue
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WORKERS = 2
POLL_SECONDS = 0.02  # between looks at an asynchronous job's version, of both sides
LIMIT = 240  # seconds a run may take
# Keeps freed memory, as tests/bench/step_ratio.py does for libtorch: the CNN's step takes a tenth less processor time.
KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}


@dataclass(frozen=True)
class Network:
    model: str
    first: int  # of synchronous updates; of asynchronous ones, a batch each, there are as many for each worker
    steps: int
    steps_per_call: int  # of TensorFlow's workers
    channels_last: bool  # what is faster in PyTorch
    accuracy_within: float  # of the two sides' medians; runs differ much after few or unordered updates


NETWORKS = {
    "cnn": Network("deploy/examples/mnist_cnn.json", 65, 260, 20, True, 0.02),
    "wide": Network("tests/bench/wide_mlp.json", 6, 24, 1, False, 0.1),
}


@dataclass(frozen=True)
class Outcome:
    examples_per_second: float
    processor: float  # milliseconds for each 1000 examples
    seconds: float
    accuracy: float
    loss: float


def free_ports(count):
    """Ports that follow each other and are free now."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("", 0))
            first = probe.getsockname()[1]
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("", port))
            return list(range(first, first + count))
        except (OSError, OverflowError):
            continue
    raise SystemExit("no free ports")


class Run:
    """Processes in separate sessions, all of which are killed on close. The first one reports the results."""

    def __init__(self):
        self.began = time.monotonic()
        self.deadline = self.began + LIMIT
        self.processes, self.marks, self.lines, self.errors = [], [], queue.Queue(), tempfile.TemporaryFile("w+")

    def __enter__(self):
        return self

    def start(self, command, **environment):
        process = subprocess.Popen(command, text=True, start_new_session=True, stderr=self.errors,
                                   stdout=subprocess.DEVNULL if self.processes else subprocess.PIPE,
                                   env=dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", **environment))
        self.processes.append(process)
        if len(self.processes) == 1:
            threading.Thread(target=self.read_, daemon=True).start()

    def read_(self):
        for line in self.processes[0].stdout:
            self.lines.put((time.monotonic(), line))
        self.lines.put((time.monotonic(), None))

    def told(self):
        """(when, fields) of each line until the first process ends, which must be well."""
        while True:
            try:
                when, line = self.lines.get(timeout=max(0, self.deadline - time.monotonic()))
            except queue.Empty:
                self.fail(f"not done in {LIMIT} s")
            if line is None:
                break
            if line.startswith("{"):
                yield when, json.loads(line)
        if code := self.processes[0].wait(timeout=60):
            self.fail(f"ended with {code}")
        self.seconds = time.monotonic() - self.began

    def fail(self, why):
        self.errors.seek(0)
        raise SystemExit(f"{self.processes[0].args}: {why}\n{self.errors.read()[-4000:]}")

    def mark(self, when, step):
        self.marks.append((when, step, self.processor_seconds_()))

    def processor_seconds_(self):
        """The processor time of all processes in our sessions."""
        sessions = {process.pid for process in self.processes}
        ticks = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[3]) in sessions:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def outcome(self, examples_of_step, accuracy, loss):
        if len(self.marks) != 2:
            self.fail(f"it was seen at {len(self.marks)} of the 2 updates between which time is taken")
        (began, first, processor_began), (ended, last, processor_ended) = self.marks
        examples = (last - first) * examples_of_step
        return Outcome(examples / (ended - began), (processor_ended - processor_began) * 1e6 / examples, self.seconds, accuracy, loss)

    def __exit__(self, *_):
        for wanted in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                if process.poll() is None:
                    process.send_signal(wanted)
            for process in self.processes:
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    pass
        self.errors.close()


def follow_version(run, port, wanted):
    """Marks the first looks at a server's version that find so many updates, as peer_tensorflow.py looks at the
    optimizer's count."""
    for version in wanted:
        done = -1
        while done < version:
            if time.monotonic() > run.deadline or run.processes[0].poll() is not None:
                return  # told() or outcome() reports it
            time.sleep(POLL_SECONDS)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
                    lines = page.read().decode().splitlines()
            except OSError:  # it does not listen yet, or no more
                continue
            done = next(int(line.split()[1]) for line in lines if line.startswith("cairn_ps_version "))
        run.mark(time.monotonic(), done)


def cairn(options, network, mode):
    updates_of_worker = WORKERS if mode == "async" else 1  # that the others make meanwhile, its own included
    first, steps = network.first * updates_of_worker, network.steps * updates_of_worker
    command = [os.path.join(options.bin, "cairn"), "train", os.path.join(ROOT, network.model), "--data_dir", options.data_dir,
               "--mode", mode, f"--workers={WORKERS}", f"--batch_size={options.batch_size}", f"--train_steps={steps}", "--threads=1",
               "--log_format=json", "--max_restarts=0"]
    if mode != "allreduce":
        command.append(f"--ps={options.ps}")
    port = free_ports(options.ps + WORKERS)[0]
    command += [f"--metrics_port={port}", "--metrics_host=127.0.0.1"] if mode == "async" else [f"--display_every={network.first}"]
    with Run() as run:
        run.start(command)
        if mode == "async":  # its lines count the chief's own steps
            threading.Thread(target=follow_version, args=(run, port, (first, steps)), daemon=True).start()
        for when, fields in run.told():
            if mode != "async" and fields["event"] == "step" and fields["step"] in (first, steps):
                run.mark(when, fields["step"])
        return run.outcome(options.batch_size * WORKERS // updates_of_worker, fields["val_accuracy"], fields["val_loss"])


def async_torch(options, network):
    """A program of PyTorch, with the package cairn, on Cairn's servers."""
    ports = free_ports(options.ps)
    servers = ",".join(f"127.0.0.1:{port}" for port in ports)
    command = peer_command(options, options.torch_python, "peer_torch.py", network, WORKERS)
    command += ["--cairn"] + (["--channels_last"] if network.channels_last else [])
    with Run() as run:
        for rank in range(WORKERS):
            run.start(command, RANK=str(rank), WORLD_SIZE=str(WORKERS), CAIRN_SERVERS=servers, **KEPT_MEMORY)
        for index in range(options.ps):
            run.start([os.path.join(options.bin, "cairn-ps"), "--ps_hosts", servers, "--job_name", "ps", f"--task_index={index}"])
        return told_by_peer(run, options.batch_size)


def peer_command(options, python, script, network, updates_of_worker):
    return [python, os.path.join(HERE, script), "--model", os.path.join(ROOT, network.model), "--data_dir", options.data_dir,
            f"--batch_size={options.batch_size}", f"--first={network.first * updates_of_worker}",
            f"--steps={network.steps * updates_of_worker}"]


def told_by_peer(run, examples_of_step):
    for when, fields in run.told():
        if "step" in fields:
            run.mark(when, fields["step"])
    return run.outcome(examples_of_step, fields["accuracy"], fields["loss"])


def tensorflow(options, network):
    ports = free_ports(1 + options.ps + WORKERS)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cluster = {"chief": addresses[:1], "ps": addresses[1:1 + options.ps], "worker": addresses[1 + options.ps:]}
    command = peer_command(options, options.tensorflow_python, "peer_tensorflow.py", network, WORKERS)
    command.append(f"--steps_per_call={network.steps_per_call}")
    with Run() as run:
        for job, tasks in cluster.items():  # the chief first, whose lines count
            for index in range(len(tasks)):
                run.start(command, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}))
        return told_by_peer(run, options.batch_size)


def torch(options, network):
    command = peer_command(options, options.torch_python, "peer_torch.py", network, 1)
    command += ["--channels_last"] if network.channels_last else []
    port = free_ports(1)[0]
    with Run() as run:
        for rank in range(WORKERS):
            run.start(command, RANK=str(rank), WORLD_SIZE=str(WORKERS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **KEPT_MEMORY)
        return told_by_peer(run, options.batch_size * WORKERS)


def version(python, packages):
    """The versions of a peer's packages; None if its Python is not given."""
    if python is None:
        return None
    code = f"import importlib.metadata as m; print(', '.join(f'{{p}} {{m.version(p)}}' for p in {packages!r}))"
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.strip()


def contenders(options, modes):
    """{name: (run, the name of its peer or None)}, in the order in which they run."""
    made = {}
    for name, python, its_modes, run, packages in (
            ("tensorflow", options.tensorflow_python, ["async", "async_torch"], tensorflow, ["tensorflow-cpu", "tf_keras"]),
            ("torch", options.torch_python, ["sync", "allreduce"], torch, ["torch"])):
        its_modes = [mode for mode in its_modes if mode in modes]
        if its_modes and python is None:
            print(f"{name} is left out, and with it {', '.join(its_modes)}: --{name}_python is not given")
        elif its_modes:
            print(f"peer of {', '.join(its_modes)}: {version(python, packages)}")
            made[name] = (run, None)
            for mode in its_modes:
                if mode != "async_torch":
                    made[mode] = (lambda options, network, mode=mode: cairn(options, network, mode), name)
                elif options.torch_python is None:
                    print("async_torch is left out: --torch_python is not given")
                else:
                    made[mode] = (async_torch, name)
    return made


def middle(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def compare(options, name, runs):
    """Runs all in turn, prints what came of it, and returns how many differ from their peer in what they learnt."""
    network, outcomes = NETWORKS[name], {contender: [] for contender in runs}
    for index in range(options.rounds):
        for contender, (run, _) in runs.items():
            outcomes[contender].append(got := run(options, network))
            print(f"{name} round {index + 1} {contender:10}: {got.examples_per_second:7.0f} examples/s, processor "
                  f"{got.processor:7.1f} ms for 1000, {got.seconds:5.1f} s in all, accuracy {got.accuracy:.4f}, loss {got.loss:.4f}, "
                  f"load {os.getloadavg()[0]:.1f}", flush=True)
    apart = 0
    for contender, (_, peer) in runs.items():
        if peer is None:
            continue
        pairs = list(zip(outcomes[contender], outcomes[peer]))
        print(f"{name}, {contender} / {peer}: examples/s {middle([a.examples_per_second / b.examples_per_second for a, b in pairs])}, "
              f"processor time {middle([a.processor / b.processor for a, b in pairs])}, "
              f"seconds in all {middle([a.seconds / b.seconds for a, b in pairs])}")
        accuracies = [statistics.median(x.accuracy for x in side) for side in zip(*pairs)]
        if abs(accuracies[0] - accuracies[1]) > network.accuracy_within:
            apart += 1
            print(f"{name}, {contender} / {peer}: accuracies {accuracies[0]:.4f} and {accuracies[1]:.4f}, too far apart")
    return apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="MNIST's IDX files")
    parser.add_argument("--bin", default=os.environ.get("CAIRN_BIN_DIR", os.path.join(ROOT, "build/release/bin")))
    parser.add_argument("--tensorflow_python", metavar="PATH", help="a Python that has tensorflow-cpu and tf_keras")
    parser.add_argument("--torch_python", metavar="PATH", help="a Python that has torch and numpy")
    parser.add_argument("--networks", default="cnn,wide")
    parser.add_argument("--modes", default="async,async_torch,sync,allreduce")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=64, help="of each of the 2 workers")
    parser.add_argument("--ps", type=int, default=1, help="servers, of TensorFlow too")
    options = parser.parse_args()
    names, modes = options.networks.split(","), options.modes.split(",")
    if unknown := set(names) - set(NETWORKS) | set(modes) - {"async", "async_torch", "sync", "allreduce"}:
        parser.error(f"no such network or mode: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and the processes go
    runs = contenders(options, modes)
    if not runs:
        parser.exit(77, "peer_clusters.py: no peer to compare with\n")
    return 1 if sum(compare(options, name, runs) for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
