#!/usr/bin/env python3
"""Training steps of known image networks on the CPU: how many times as fast as PyTorch's, on the same cores.

    pip install torch==2.14.1 torchvision --no-deps
    tests/bench/image_networks.py --models DIR [--torch_python PATH] [--networks ResNet50,MobileNetV2,...]
                                  [--precisions fp32,bf16] [--threads 1] [--batch_size 8] [--rounds 5]

DIR has <Network>.json, as keras.applications.<Network>(weights=None).to_json() writes it, of 224 x 224 images. A step
is the forward and the backward pass, without an optimizer. PyTorch's networks are torchvision's, of the same layers,
with channels last; eager, and with --compile also compiled: the faster counts. In bf16, PyTorch computes under
autocast, and Cairn with --precision bf16. The sides run in turn in both orders; the figures are medians over the
rounds, of images/s and of the ratios ours / PyTorch's.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEERS = {"ResNet50": "resnet50", "MobileNetV2": "mobilenet_v2", "EfficientNetB0": "efficientnet_b0", "DenseNet121": "densenet121"}
WARM_UP, STEPS = 3, 8
LIMIT = 900  # seconds of one side


def cairn(options, network, precision):
    command = [os.path.join(options.bin, "step_bench"), "--model", os.path.join(options.models, f"{network}.json"),
               "--precision", precision, "--threads", str(options.threads), "--batch_size", str(options.batch_size),
               "--steps", str(STEPS), "--warm_up", str(WARM_UP), "--compute_only"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT)
    return options.batch_size * 1e6 / float(re.search(r"([0-9.]+) us/step", done.stdout).group(1))


def peer(options, network, precision):
    command = [options.torch_python, __file__, "--peer", network, "--precisions", precision, "--threads", str(options.threads),
               "--batch_size", str(options.batch_size), *["--compile"] * options.compile]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT)
    return json.loads(done.stdout.splitlines()[-1])


def run_peer(options):
    """Prints the images/s of the faster way."""
    import torch
    import torchvision

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    network = getattr(torchvision.models, PEERS[options.peer])().to(memory_format=torch.channels_last)
    images = torch.rand(options.batch_size, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(options.batch_size) % 1000
    rates = []
    for forward in [network, torch.compile(network)] if options.compile else [network]:
        seconds = []
        for _ in range(WARM_UP + STEPS):
            begun = time.perf_counter()
            network.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=options.precisions == ["bf16"]):
                loss = torch.nn.functional.cross_entropy(forward(images), labels)
            loss.backward()
            seconds.append(time.perf_counter() - begun)
        rates.append(options.batch_size / statistics.median(seconds[WARM_UP:]))
    print(json.dumps(max(rates)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--models")
    parser.add_argument("--torch_python", default=sys.executable)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=list(PEERS))
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        run_peer(options)
        return
    if not options.models:
        parser.error("--models: required")
    for network in options.networks:
        medians = {}
        for precision in options.precisions:
            rates = []
            for number in range(options.rounds):
                sides = [cairn, peer] if number % 2 == 0 else [peer, cairn]
                found = {side: side(options, network, precision) for side in sides}
                rates.append((found[cairn], found[peer]))
            ours, theirs = zip(*rates)
            ratios = [mine / other for mine, other in rates]
            medians[precision] = statistics.median(ours)
            print(f"{network} {precision}: cairn {medians[precision]:.2f} images/s, torch {statistics.median(theirs):.2f}, "
                  f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
        if {"fp32", "bf16"} <= medians.keys():
            print(f"{network}: bf16 is {medians['bf16'] / medians['fp32']:.2f} times as fast as fp32", flush=True)


if __name__ == "__main__":
    main()
