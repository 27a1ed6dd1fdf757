#!/usr/bin/env python3
"""One process of PyTorch's DistributedDataParallel over gloo, started by peer_clusters.py. With --cairn, a worker of an
asynchronous job on Cairn's servers instead, with the same model and loop.

RANK and similar variables are in the environment.

Rank 0 prints {"step": N} after --first and after --steps steps, and {"accuracy": A, "loss": L} of the test set at the
end. With --cairn, the updates of all workers are counted. One compute thread; all images are in memory as float32, and
a batch is one index_select. Gradients are views of DDP's buckets, the graph is declared static, and Adam is fused if
PyTorch supports that on CPUs.
"""

import argparse
import os

import torch
import torch.distributed
from torch import nn

import peer_data


def make_network(path):
    """As Keras would make it: the same layers, and values from the same distributions."""
    made, shape = [], None  # shape: channels, rows, columns; or units
    for kind, config in peer_data.layers(path):
        if kind == "InputLayer":
            rows, columns, channels = config["batch_shape"][1:]
            shape = (channels, rows, columns)
        elif kind == "Conv2D":
            made.append(nn.Conv2d(shape[0], config["filters"], config["kernel_size"]))
            shape = (config["filters"], *(extent - kernel + 1 for extent, kernel in zip(shape[1:], config["kernel_size"])))
        elif kind == "MaxPooling2D":
            made.append(nn.MaxPool2d(config["pool_size"]))
            shape = (shape[0], *(extent // pool for extent, pool in zip(shape[1:], config["pool_size"])))
        elif kind == "Flatten":
            made.append(nn.Flatten())
            shape = (shape[0] * shape[1] * shape[2],)
        elif kind == "Dense":
            made.append(nn.Linear(shape[0], config["units"]))
            shape = (config["units"],)
        else:
            raise SystemExit(f"{path}: no {kind} in peer_torch.py")
        if config.get("activation") == "relu":
            made.append(nn.ReLU(inplace=True))
    for layer in made:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*made)


def tensors(directory, which):
    images, labels = peer_data.mnist(directory, which)
    return torch.tensor(images).unsqueeze(1).float().div_(255), torch.tensor(labels).long()


def make_optimizer(parameters, rate):
    try:
        return torch.optim.Adam(parameters, lr=rate, eps=1e-7, fused=True)  # eps as Keras has it
    except (TypeError, RuntimeError):  # before 2.4
        return torch.optim.Adam(parameters, lr=rate, eps=1e-7)


def batches(options, rank, ranks, images, labels):
    order = torch.Generator().manual_seed(options.seed + 1)  # the same for all, who take every `ranks`th
    mine = torch.empty(0, dtype=torch.long)
    while True:
        if len(mine) < options.batch_size:
            mine = torch.randperm(len(labels), generator=order)[rank::ranks]
        batch, mine = mine[:options.batch_size], mine[options.batch_size:]
        yield images.index_select(0, batch), labels.index_select(0, batch)


def train(options, model, optimizer, batches_of_rank, job):
    """Trains to the last step and tells of two of them. `job`: None with DDP, where each step is an update."""
    telling = [options.first, options.steps] if int(os.environ["RANK"]) == 0 else []
    step = 0
    while step < options.steps:
        inputs, targets = next(batches_of_rank)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        step = job.version if job else step + 1
        if telling and step >= telling[0]:
            peer_data.tell(step=step)
            telling.pop(0)


@torch.no_grad()
def evaluate(network, images, labels):
    logits = torch.cat([network(part) for part in images.split(500)])
    peer_data.tell(accuracy=float((logits.argmax(1) == labels).float().mean()),
                   loss=float(nn.functional.cross_entropy(logits, labels)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer_data.add_arguments(parser)
    parser.add_argument("--channels_last", action="store_true")
    parser.add_argument("--cairn", action="store_true")
    options = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    network = make_network(options.model)
    images, labels = tensors(options.data_dir, "train")
    if options.channels_last:
        network, images = (x.to(memory_format=torch.channels_last) for x in (network, images))
    optimizer = make_optimizer(list(network.parameters()), peer_data.learning_rate(options.model))
    of_rank = batches(options, rank, ranks, images, labels)
    if options.cairn:
        import cairn
        import cairn.torch
        with cairn.init() as job:
            optimizer = cairn.torch.distribute(optimizer, network, job, mode="async", updates=options.steps)
            train(options, network, optimizer, of_rank, job)
    else:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True, static_graph=True)
        train(options, model, optimizer, of_rank, None)
        torch.distributed.destroy_process_group()
    if rank == 0:
        evaluate(network, *tensors(options.data_dir, "t10k"))


if __name__ == "__main__":
    main()
