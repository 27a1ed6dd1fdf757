#!/usr/bin/env python3
"""How much faster a training step of a sequence model (forward, backward, Adam) is here than in PyTorch.

    tests/bench/sequence_ratio.py lstm|gpt --torch_python VENV/bin/python [--bin build/release/bin] [--pairs 3]
                                           [--threads 1,2] [--tokens 65]

lstm: a classifier of two layers of 256 units over 100 steps of 128 channels, batches of 32. gpt: 6 blocks of 6 heads
and 384 channels, 65 tokens, 10.7 million parameters, 8 windows of 256 tokens; with --tokens, a larger vocabulary.
PyTorch runs eagerly and compiled, and the faster one counts. The programs run in turn, and the figure to quote is the
median of the ratios, by processor time: other work on the machine does not count.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, CHANNELS, UNITS, CLASSES = 100, 128, 256, 10  # of the LSTM
WINDOW, WIDTH, HEADS, BLOCKS = 256, 384, 6, 6  # of the GPT
BATCH = {"lstm": 32, "gpt": 8}


def lstm(_options):
    def layer(**options):
        return {"class_name": "LSTM", "config": {"units": UNITS, **options}}

    return {"config": {"layers": [
        layer(return_sequences=True, input_shape=[STEPS, CHANNELS]), layer(),
        {"class_name": "Dense", "config": {"units": CLASSES}}]}}


def gpt(options):
    layers = []

    def add(class_name, inputs, arguments=None, **config):
        name = f"{class_name.lower()}_{len(layers)}"
        tensors = [[value, 0, 0, {}] for value in inputs]
        if arguments is not None:
            tensors[0][3] = {name: [value, 0, 0] if isinstance(value, str) else value
                             for name, value in arguments.items()}
        layers.append({"class_name": class_name, "name": name, "config": {"name": name, **config},
                       "inbound_nodes": [tensors] if tensors else []})
        return name

    tokens = add("InputLayer", [], batch_shape=[None, WINDOW], dtype="int32")
    x = add("Embedding", [tokens], input_dim=options.tokens, output_dim=WIDTH)
    x = add("EinsumDense", [x], equation="abc,cd->abd", output_shape=[WINDOW, WIDTH], bias_axes="bd")
    for _ in range(BLOCKS):
        normal = add("LayerNormalization", [x])
        attended = add("MultiHeadAttention", [normal], {"value": normal, "use_causal_mask": True}, num_heads=HEADS,
                       key_dim=WIDTH // HEADS)
        x = add("Add", [x, attended])
        hidden = add("Dense", [add("LayerNormalization", [x])], units=4 * WIDTH, activation="gelu")
        x = add("Add", [x, add("Dense", [hidden], units=WIDTH)])
    scores = add("Dense", [add("LayerNormalization", [x])], units=options.tokens)
    return {"class_name": "Functional", "config": {
        "name": "gpt", "layers": layers, "input_layers": [[tokens, 0, 0]], "output_layers": [[scores, 0, 0]]}}


MODELS = {"lstm": lstm, "gpt": gpt}


def torch_lstm(torch, _tokens):
    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(CHANNELS, UNITS, num_layers=2, batch_first=True)
            self.dense = torch.nn.Linear(UNITS, CLASSES)

        def forward(self, x):
            return self.dense(self.lstm(x)[0][:, -1])

    x = torch.randn(BATCH["lstm"], STEPS, CHANNELS)
    return Classifier(), x, torch.randint(0, CLASSES, (BATCH["lstm"],))


def torch_gpt(torch, tokens):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.project, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x):
            batch, steps, _ = x.shape
            query, key, value = self.project(self.norm1(x)).view(batch, steps, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.output(attended.transpose(1, 2).reshape(batch, steps, WIDTH))
            return x + self.perceptron(self.norm2(x))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(tokens, WIDTH), nn.Parameter(torch.zeros(WINDOW, WIDTH))
            self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
            self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, tokens)

        def forward(self, x):
            return self.scores(self.norm(self.blocks(self.tokens(x) + self.positions))).flatten(0, 1)

    x = torch.randint(0, tokens, (BATCH["gpt"], WINDOW))
    return Gpt(), x, torch.randint(0, tokens, (BATCH["gpt"] * WINDOW,))


def torch_rate(options):
    """Prints examples per second of processor time and of elapsed time."""
    import time

    import torch

    network, threads = options.network, int(options.threads)
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model, x, labels = {"lstm": torch_lstm, "gpt": torch_gpt}[network](torch, options.tokens)
    run = torch.compile(model) if options.torch == "compiled" else model
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    loss_of = torch.nn.CrossEntropyLoss()
    times = []
    for step in range(options.steps + 3):
        begin, began = time.process_time(), time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(run(x), labels).backward()
        optimizer.step()
        if step >= 3:
            times.append((time.process_time() - begin, time.perf_counter() - began))
    processor, elapsed = (statistics.median(column) for column in zip(*times))
    print(json.dumps({"processor": BATCH[network] * threads / processor, "elapsed": BATCH[network] / elapsed}))


def own_run(options, threads, path, steps):
    """Processor seconds of a whole run, and the examples per second of its median step."""
    command = [os.path.join(options.bin, "step_bench"), "--model", path, "--threads", str(threads), "--batch_size",
               str(BATCH[options.network]), "--ids", str(options.tokens), "--warm_up", "3", "--steps", str(steps)]
    before = os.times()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, float(re.search(r"([0-9.]+) images/s in the median step", output).group(1))


def own_rate(options, threads, path):
    """The difference of a long and a short run has no start in it."""
    short, _ = own_run(options, threads, path, options.steps)
    long, elapsed = own_run(options, threads, path, 3 * options.steps)
    return {"processor": BATCH[options.network] * 2 * options.steps * threads / (long - short), "elapsed": elapsed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=MODELS)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--torch_python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tokens", type=int, default=65)
    parser.add_argument("--torch", choices=["eager", "compiled"], help="only measures PyTorch in this process")
    options = parser.parse_args()
    if options.torch is not None:
        torch_rate(options)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(MODELS[options.network](options), file)
        file.flush()
        for threads in map(int, options.threads.split(",")):
            ratios = []
            for _ in range(options.pairs):
                peers = {}
                for way in ("eager", "compiled"):
                    command = [options.torch_python, __file__, options.network, "--torch", way, "--threads",
                               str(threads), "--steps", str(options.steps), "--tokens", str(options.tokens)]
                    peers[way] = json.loads(
                        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout)
                own = own_rate(options, threads, file.name)
                best = {kind: max(peer[kind] for peer in peers.values()) for kind in own}
                ratios.append({kind: own[kind] / best[kind] for kind in own})
                print(f"{threads} threads: {own} here, {peers} in PyTorch", flush=True)
            for kind in ("processor", "elapsed"):
                print(f"{threads} threads, {kind} time: {statistics.median(r[kind] for r in ratios):.2f} times PyTorch")


if __name__ == "__main__":
    main()
