#!/usr/bin/env python3
"""How much faster a training step (forward, backward, Adam) is here than in libtorch, on the same cores.

    tests/bench/step_ratio.py [--bin build/release/bin] [--pairs 3] [--batch_size 64] [--networks cnn,mlp,resnet20]

Needs libtorch_step, which is built where libtorch-dev is installed, and libopenblas0-openmp. The two run in turn, and
the figure to quote is the median of the ratios. For comparison, prints the images/s that the cores' measured peak would
reach if a step were only its matrix products. A network whose gradients are mostly 0 behind a pooling does not need all
of these products. libtorch is tuned: malloc keeps its memory, and its matrix products are those of OpenBLAS with
OpenMP, configured for a processor type that OpenBLAS knows.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-openmp"
TUNED = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000", "LD_LIBRARY_PATH": OPENBLAS}
# For one image: the products of each layer in the forward pass and in the gradients of the kernel and, except for
# the first layer, of the input.
FLOPS = {"cnn": 16_376_064, "mlp": 113_754_112, "resnet20": 243_994_368}
STEPS = {"cnn": 150, "mlp": 30, "resnet20": 30}
MLP = """{"config": {"layers": [
    {"class_name": "Dense", "config": {"units": 4096, "activation": "relu", "input_shape": [784]}},
    {"class_name": "Dense", "config": {"units": 4096, "activation": "relu"}},
    {"class_name": "Dense", "config": {"units": 10}}]}}"""


def core_type():
    """The name of this processor among those that OpenBLAS knows."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read()
    return "Cooperlake" if "avx512_bf16" in flags else "SkylakeX" if "avx512f" in flags else "Haswell"


def rate(command, environment=None):
    result = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, timeout=600,
                            env=dict(os.environ, **(environment or {})))
    return float(re.search(r"([0-9.]+) images/s in the median step", result.stdout).group(1))


def measured_peak(matmul_bench, threads):
    """FLOP/s of so many cores."""
    result = subprocess.run([matmul_bench, str(threads)], check=True, stdout=subprocess.PIPE, text=True, timeout=300)
    gflops, ratio = re.search(r"([0-9.]+) GFLOP/s at best, ([0-9.]+) of the measured peak", result.stdout).groups()
    return float(gflops) * 1e9 / float(ratio)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--networks", default="cnn,mlp,resnet20")
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.bin, "libtorch_step")):
        parser.error("libtorch_step is not built: install libtorch-dev, and configure again")

    if not os.path.isdir(OPENBLAS):
        parser.error(f"{OPENBLAS} is missing: without libopenblas0-openmp libtorch has a reference BLAS")

    with tempfile.TemporaryDirectory() as directory:
        mlp = os.path.join(directory, "mlp.json")
        with open(mlp, "w", encoding="utf-8") as file:
            file.write(MLP)
        models = {"cnn": os.path.join(ROOT, "deploy/examples/mnist_cnn.json"), "mlp": mlp,
                  "resnet20": os.path.join(ROOT, "deploy/examples/cifar_resnet20.json")}
        peaks = {threads: measured_peak(os.path.join(options.bin, "matmul_bench"), threads) for threads in (1, 2)}
        for network in options.networks.split(","):
            for threads in (1, 2):
                ours, theirs = [], []
                for _ in range(options.pairs):
                    theirs.append(rate([os.path.join(options.bin, "libtorch_step"), network, threads,
                                        options.batch_size, STEPS[network]],
                                       dict(TUNED, OPENBLAS_CORETYPE=core_type())))
                    ours.append(rate([os.path.join(options.bin, "step_bench"), "--model", models[network], "--threads",
                                      threads, "--batch_size", options.batch_size, "--steps", STEPS[network]]))
                ratios = [a / b for a, b in zip(ours, theirs)]
                print(f"{network}, {threads} threads, batch {options.batch_size}: {statistics.median(ours):.0f} images/s, "
                      f"libtorch {statistics.median(theirs):.0f}, ratio {statistics.median(ratios):.2f} "
                      f"({min(ratios):.2f} to {max(ratios):.2f}); all products at the cores' peak: "
                      f"{peaks[threads] / FLOPS[network]:.0f}", flush=True)


if __name__ == "__main__":
    main()
