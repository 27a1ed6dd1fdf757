#!/usr/bin/env python3
"""Training of click models on a synthetic click log, against PyTorch and TensorFlow: ratios, ours / the peer's.

    cairn synthetic ctr DIR --rows 1000000 --test_rows 20000 --scale 0.1
    tests/bench/ctr_ratio.py --data_dir DIR [--torch_python PATH] [--tensorflow_python PATH]
                             [--bin build/release/bin] [--networks fm,dlrm] [--rounds 3] [--batch_size 2048]

fm is deploy/examples/fm.json: 16 factors and a weight for each of 26 categories. dlrm has a table for each category,
a bottom MLP of 512-256-64-16 and a top MLP of 512-256-1. Cairn runs one server and one worker, synchronous, with
tables of any id (--dynamic_tables all), and parses the log while it trains. PyTorch (peer_ctr_torch.py) is one process
with EmbeddingBag and Embedding of sparse gradients; TensorFlow (peer_ctr_tensorflow.py) is ParameterServerStrategy with
one server and one worker. Both have all examples in memory, with ids that index the tables. All use Adagrad.

fm is compared by examples/s, with --threads of Cairn's worker and of PyTorch for each network as THREADS has them, and
dlrm by the processor time of a step, of all processes. Its sparse share is the difference to the same network on
constant rows: tables, wire, input and the merging of ids. Time is taken as in peer_clusters.py. All runs of a round
follow each other, each ratio is of one round, and the figure is the median (range). The losses are of other examples,
so they agree only roughly.
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import ctr_data
from peer_clusters import HERE, KEPT_MEMORY, ROOT, Run, free_ports, middle

THREADS = {"fm": {"cairn": 1, "torch": 2}, "dlrm": {"cairn": 1, "torch": 1}}


@dataclass(frozen=True)
class Steps:
    first: int  # the step from which on time is taken
    last: int


STEPS = {("cairn", "fm"): Steps(100, 400), ("torch", "fm"): Steps(20, 120), ("tensorflow", "fm"): Steps(10, 40),
         ("cairn", "dlrm"): Steps(20, 100), ("torch", "dlrm"): Steps(20, 80), ("tensorflow", "dlrm"): Steps(5, 20)}


def model_of(options, network, directory):
    path = os.path.join(directory, f"{network}.json")
    if network == "dlrm":
        return ctr_data.write_model(ctr_data.dlrm(), path)
    with open(os.path.join(ROOT, "deploy/examples/fm.json"), encoding="utf-8") as file:
        model = json.loads(re.sub(r"//.*", "", file.read()))
    del model["compile_config"]["metrics"]  # the peers compute none
    return ctr_data.write_model(model, path)


def cairn(options, network, directory):
    steps = STEPS["cairn", network]
    command = [os.path.join(options.bin, "cairn"), "train", model_of(options, network, directory), "--data_dir", options.data_dir,
               "--sync_replicas", "--ps=1", "--workers=1", f"--batch_size={options.batch_size}", f"--train_steps={steps.last}",
               f"--threads={THREADS[network]['cairn']}", "--dynamic_tables=all", f"--learning_rate={ctr_data.RATE}",
               f"--display_every={steps.first}", "--log_format=json", "--max_restarts=0"]
    with Run() as run:
        run.start(command)
        for when, fields in run.told():
            if fields["event"] == "step" and fields["step"] in (steps.first, steps.last):
                run.mark(when, fields["step"])
        return run.outcome(options.batch_size, 0, fields["loss"])


def peer_command(options, name, python, network):
    steps = STEPS[name, network]
    return [python, os.path.join(HERE, f"peer_ctr_{name}.py"), f"--network={network}", "--data_dir", options.data_dir,
            f"--rows={options.rows}", f"--batch_size={options.batch_size}", f"--first={steps.first}", f"--steps={steps.last}"]


def told_by_peer(options, run):
    for when, fields in run.told():
        if "step" in fields:
            run.mark(when, fields["step"])
    return run.outcome(options.batch_size, 0, fields["loss"])


def torch(options, network, _, *flags):
    command = peer_command(options, "torch", options.torch_python, network)
    with Run() as run:
        run.start(command + [f"--threads={THREADS[network]['torch']}", *flags], **KEPT_MEMORY)
        return told_by_peer(options, run)


def torch_dense(options, network, directory):
    return torch(options, network, directory, "--dense_only")


def cairn_dense(options, _, directory):
    """Milliseconds of processor time for 1000 examples of a worker's replica and Adam, on constant rows."""
    model = ctr_data.write_model(ctr_data.dlrm(from_ids=False), os.path.join(directory, "dense.json"))
    seconds = []
    for steps in (20, 80):  # the difference has no start-up
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([os.path.join(options.bin, "step_bench"), "--model", model, "--threads=1", "--click_model",
                        f"--batch_size={options.batch_size}", f"--steps={steps}"],
                       stdout=subprocess.DEVNULL, check=True, timeout=300)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return (seconds[1] - seconds[0]) / 60 * 1e6 / options.batch_size


def tensorflow(options, network, _):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    cluster = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
    with Run() as run:
        for job in cluster:  # the chief first, whose lines count
            run.start(peer_command(options, "tensorflow", options.tensorflow_python, network),
                      TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}}))
        return told_by_peer(options, run)


def compare(options, network, directory):
    contenders = {"cairn": cairn}
    if options.torch_python:
        contenders["torch"] = torch
        if network == "dlrm":
            contenders["torch_dense"] = torch_dense
    if options.tensorflow_python:
        contenders["tensorflow"] = tensorflow
    outcomes, dense = {name: [] for name in contenders}, []
    for index in range(options.rounds):
        for name, run in contenders.items():
            outcomes[name].append(got := run(options, network, directory))
            print(f"{network} round {index + 1} {name:11}: {got.examples_per_second:7.0f} examples/s, "
                  f"{got.processor * options.batch_size / 1000:6.2f} ms of processor time a step, loss {got.loss:.4f}, "
                  f"load {os.getloadavg()[0]:.1f}", flush=True)
        if network == "dlrm":
            dense.append(cairn_dense(options, network, directory))
    ours = outcomes["cairn"]
    print(f"{network}, cairn: {middle([got.examples_per_second for got in ours], 0)} examples/s")
    for name in ("torch", "tensorflow"):
        if name in contenders:
            print(f"{network}, cairn / {name}: "
                  f"examples/s {middle([a.examples_per_second / b.examples_per_second for a, b in zip(ours, outcomes[name])])}, "
                  f"processor time {middle([a.processor / b.processor for a, b in zip(ours, outcomes[name])])}")
    if "torch_dense" in contenders:
        scale = options.batch_size / 1000
        sparse = [(a.processor - b) * scale for a, b in zip(ours, dense)]
        of_torch = [(a.processor - b.processor) * scale for a, b in zip(outcomes["torch"], outcomes["torch_dense"])]
        print(f"dlrm, sparse share of a step: cairn {middle(sparse)} ms, torch {middle(of_torch)} ms, "
              f"ratio {middle([a / b for a, b in zip(sparse, of_torch)])}; dense: cairn {middle([b * scale for b in dense])} ms, "
              f"torch {middle([b.processor * scale for b in outcomes['torch_dense']])} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", required=True, help="a directory that `cairn synthetic ctr` wrote")
    parser.add_argument("--bin", default=os.environ.get("CAIRN_BIN_DIR", os.path.join(ROOT, "build/release/bin")))
    parser.add_argument("--torch_python", metavar="PATH", help="a Python that has torch and numpy")
    parser.add_argument("--tensorflow_python", metavar="PATH", help="a Python that has tensorflow-cpu and tf_keras")
    parser.add_argument("--networks", default="fm,dlrm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000, help="lines of train.txt that the peers read")
    parser.add_argument("--batch_size", type=int, default=2048)
    options = parser.parse_args()
    names = options.networks.split(",")
    if unknown := set(names) - set(THREADS):
        parser.error(f"no such network: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and the processes go
    with tempfile.TemporaryDirectory() as directory:
        for name in names:
            compare(options, name, directory)


if __name__ == "__main__":
    main()
