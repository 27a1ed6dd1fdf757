#!/usr/bin/env python3
"""How much faster a training step (forward and backward) is here than in PyTorch, on the same GPU.

    tests/bench/gpu_ratio.py [--bin build/release/bin] [--rounds 2] [--budget 140] [--only 'cnn batch 64'] [--json FILE]

Both sides find inputs and parameters on the device and leave the gradients there: `step_bench --resident`, and the ways
of torch_step.py. They run in turn, network by network, and the figure to quote is the median of the rounds' ratios.
Exits with 1 if a bar is missed or a measurement fails, 77 without a GPU.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch_step

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# [configuration] The least ratio to eager, and to the faster of graphs and compile; None: no bar.
BARS = {"cnn batch 64 tf32": (3.0, 1.2), "cnn batch 1024 tf32": (None, 1.2), "mlp4096 batch 4096 bf16": (None, 0.95),
        "mlp4096 batch 512 bf16": (None, 0.95)}
RUN_SECONDS = 0.1  # of one timed run of steps
RUNS = 5
MLP4096 = """{"config": {"layers": [
    {"class_name": "Dense", "config": {"units": 4096, "activation": "relu", "input_shape": [4096]}},
    {"class_name": "Dense", "config": {"units": 4096, "activation": "relu"}},
    {"class_name": "Dense", "config": {"units": 4096, "activation": "relu"}},
    {"class_name": "Dense", "config": {"units": 10}}]}}"""
# PyTorch's users leave weight decay to the optimizer, so it is no part of their step.
PENALTY = re.compile(r', "kernel_regularizer": \{"class_name": "L2", "config": \{"l2": [0-9.]+\}\}')


def write_models(directory):
    """[network] The file that step_bench reads."""
    with open(os.path.join(ROOT, "deploy/examples/cifar_resnet20.json"), encoding="utf-8") as file:
        resnet20 = PENALTY.sub("", file.read())
    models = {"cnn": os.path.join(ROOT, "deploy/examples/mnist_cnn.json")}
    for network, text in (("mlp4096", MLP4096), ("resnet20", resnet20)):
        models[network] = os.path.join(directory, network + ".json")
        with open(models[network], "w", encoding="utf-8") as file:
            file.write(text)
    return models


def ours(step_bench, model, configuration, how, environment=None):
    """Images per second."""
    result = subprocess.run(
        [step_bench, "--device", "/gpu:0", "--model", model, "--batch_size", str(configuration.batch), "--precision",
         configuration.precision, *map(str, how)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environment)
    found = re.search(r"([0-9.]+) images/s in the median", result.stdout)
    if result.returncode != 0 or not found:
        raise RuntimeError((result.stderr or result.stdout).strip() or f"exit status {result.returncode}")
    return float(found.group(1))


class Row:
    """One configuration: images per second, round by round."""

    def __init__(self, configuration):
        self.configuration = configuration
        self.ours, self.with_copies, self.theirs = [], None, {}

    def fastest_captured(self, index):
        return max(rates[index] for way, rates in self.theirs.items() if way != "eager")

    def ratios(self):
        """To eager, and to the faster of graphs and compile; None where that did not run."""
        rounds = range(len(self.ours))
        eager = statistics.median(self.ours[i] / self.theirs["eager"][i] for i in rounds) if "eager" in self.theirs else None
        captured = (statistics.median(self.ours[i] / self.fastest_captured(i) for i in rounds)
                    if set(self.theirs) - {"eager"} else None)
        return eager, captured

    def measure(self, step_bench, model, rounds, environment):
        ways = torch_step.prepare(self.configuration)
        if not ways:
            raise RuntimeError("no way of PyTorch's worked")
        # About as long a run as PyTorch's.
        steps = max(way.steps for way in ways) * 2
        for _ in range(rounds):
            self.ours.append(ours(step_bench, model, self.configuration,
                                  ["--resident", "--steps", min(steps, 5000), "--runs", RUNS], environment))
            for way in ways:
                self.theirs.setdefault(way.name, []).append(self.configuration.batch / way.seconds())
        self.with_copies = ours(step_bench, model, self.configuration,
                                ["--compute_only", "--steps", max(20, min(steps // 2, 1000))], environment)

    def line(self):
        number = lambda value, form: format(value, form) if value is not None else "-"
        eager, captured = self.ratios()
        rates = [statistics.median(self.theirs[way]) if way in self.theirs else None for way in torch_step.WAYS]
        return (f"{self.configuration.name:26}{statistics.median(self.ours):12.0f}{self.with_copies:12.0f}"
                + "".join(f"{number(rate, '.0f'):>12}" for rate in rates)
                + f"{number(eager, '.2f'):>10}{number(captured, '.2f'):>10}")


def judge(name, row):
    """Prints one line for each bar of the configuration; the number of bars that are not met."""
    missed = 0
    ratios = row.ratios() if row else (None, None)
    for bar, ratio, peer in zip(BARS[name], ratios, ("eager", "the faster of graphs and compile")):
        if bar is None:
            continue
        met = ratio is not None and ratio >= bar
        missed += not met
        print(f"{'met' if met else 'MISSED' if ratio is not None else 'NOT MEASURED'}: {name}: "
              f"{'' if ratio is None else f'{ratio:.2f} x '}{peer}, the bar is {bar}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--budget", type=float, default=140, help="seconds after which nothing more is begun")
    parser.add_argument("--only", default="", help="parts of the names of the configurations wanted, with commas")
    parser.add_argument("--json", help="write the results there too")
    parser.add_argument("--library_path", help="LD_LIBRARY_PATH of step_bench, where it is not this process'")
    options = parser.parse_args()
    environment = dict(os.environ, LD_LIBRARY_PATH=options.library_path) if options.library_path else None
    step_bench = os.path.join(options.bin, "step_bench")
    if not os.path.exists(step_bench):
        parser.error(f"{step_bench} is not built")
    try:
        import torch
    except ImportError:
        parser.exit(77, "gpu_ratio.py: python3 here has no PyTorch\n")
    if not torch.cuda.is_available():
        parser.exit(77, "gpu_ratio.py: PyTorch finds no GPU here\n")

    begun, rows, failed = time.monotonic(), {}, 0
    configurations = torch_step.selected(options.only)
    print(torch_step.description(), flush=True)
    header = f"{'images/s':26}{'ours':>12}{'with copies':>12}{'eager':>12}{'graphs':>12}{'compile':>12}{'/ eager':>10}{'/ faster':>10}"
    print(header)
    with tempfile.TemporaryDirectory() as directory:
        models = write_models(directory)
        for configuration in configurations:
            if time.monotonic() - begun > options.budget:
                print(f"{configuration.name}: left out, the time is up", flush=True)
                continue
            row = Row(configuration)
            try:
                row.measure(step_bench, models[configuration.network], options.rounds, environment)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{configuration.name}: failed: {error}", flush=True)
                failed += 1
                continue
            finally:
                torch.cuda.empty_cache()
            rows[configuration.name] = row
            print(row.line(), flush=True)
    missed = sum(judge(c.name, rows.get(c.name)) for c in configurations if c.name in BARS)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"peer": torch_step.description(), "images_per_second": {
                name: {"ours": row.ours, "ours with copies": row.with_copies, **row.theirs}
                for name, row in rows.items()}}, file, indent=1)
    return 1 if missed or failed else 0


if __name__ == "__main__":
    sys.exit(main())
