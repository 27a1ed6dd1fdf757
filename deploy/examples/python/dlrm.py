#!/usr/bin/env python3
"""DLRM (arXiv:1906.00091) on a click log in Criteo's format, with the rows of its embeddings on the servers.

    cairn synthetic ctr ctr --rows 200000 --test_rows 20000 --scale 0.001
    cairn run --ps 1 --workers 2 deploy/examples/python/dlrm.py --data ctr

The chief prints the AUC and the log loss on the test set.
"""

import argparse
import pathlib

import cairn
import cairn.torch
import numpy as np
import torch
from torch import nn

DENSE, FIELDS = 13, 26
ABSENT = 1 << 32  # the id of a missing category; others have 32 bits
NAMES = [f"C{field + 1}" for field in range(FIELDS)]


class Dlrm(nn.Module):
    """Dense features and pooled categories as vectors of one width; their dot products; a network over these."""

    def __init__(self, width):
        super().__init__()
        # One table for all fields: an id begins with the number of its field.
        table = cairn.torch.EmbeddingBagConfig("categories", width, None, NAMES, optimizer="Adagrad", lr=0.05,
                                               first_values=cairn.tables.Normal(0, 0.05))
        self.embeddings = cairn.torch.EmbeddingBagCollection([table])
        self.bottom = nn.Sequential(nn.Linear(DENSE, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (FIELDS + 1) * FIELDS // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.tril_indices(FIELDS + 1, FIELDS + 1, -1), persistent=False)

    def forward(self, dense, categories):
        bottom = self.bottom(dense)
        pooled = self.embeddings(features_of(categories)).values().view(len(dense), FIELDS, -1)
        vectors = torch.cat([bottom[:, None], pooled], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], dim=1)).squeeze(1)


def features_of(categories):
    """{feature: ids [example, 1]}."""
    return {name: categories[:, field:field + 1] for field, name in enumerate(NAMES)}


def read(path):
    """Labels, dense features and ids of a file of Criteo's form."""
    labels, dense, categories = [], [], []
    with open(path, encoding="ascii") as file:
        for line in file:
            label, *fields = line.rstrip("\n").split("\t")
            labels.append(int(label))
            dense.append([float(value or 0) for value in fields[:DENSE]])
            categories.append([(field << 40) + (int(value, 16) if value else ABSENT)
                               for field, value in enumerate(fields[DENSE:])])
    logs = np.log1p(np.maximum(np.array(dense, np.float32), 0))
    return torch.tensor(labels, dtype=torch.float32), torch.from_numpy(logs), torch.tensor(categories)


def batches(data, job, steps, batch_size):
    """This worker's part of each batch from the current step on, so that a restarted worker or job continues."""
    examples = len(data[0])
    per_epoch = max(examples // (batch_size * job.workers), 1)
    for step in range(job.position, steps):
        order = np.random.default_rng(step // per_epoch).permutation(examples)
        first = (step % per_epoch * job.workers + job.worker) * batch_size
        yield [part[order[first:first + batch_size]] for part in data]


def auc(labels, scores):
    """The probability that a click has a higher score than another example; equal scores count half."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    clicks = int(labels.sum())
    return (ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks))


def main():
    parser = argparse.ArgumentParser(description="Trains DLRM on a click log in Criteo's format.")
    parser.add_argument("--data", type=pathlib.Path, default="ctr", help="folder with train.txt and test.txt")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=512, help="of each worker")
    parser.add_argument("--width", type=int, default=16, help="elements of a row")
    parser.add_argument("--train_dir", help="where the chief saves, and resumes from")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = Dlrm(options.width)
    job = cairn.init(train_dir=options.train_dir, save_secs=60 if options.train_dir else 0)
    optimizer = cairn.torch.distribute(torch.optim.Adam(model.parameters(), lr=1e-3), model, job)
    data = read(options.data / "train.txt")
    steps = options.epochs * max(len(data[0]) // (options.batch_size * job.workers), 1)
    with job:
        loader = batches(data, job, steps, options.batch_size)
        for labels, dense, categories in job.prefetch(loader, lambda batch: model.embeddings.ids(features_of(batch[2]))):
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(dense, categories), labels)
            loss.backward()
            optimizer.step(examples=len(labels))
            if job.is_chief and job.version % 50 == 0:
                print(f"step {job.version} of {steps}: loss {loss.item():.4f}", flush=True)
        if job.is_chief:
            model.eval()
            labels, dense, categories = read(options.data / "test.txt")
            with torch.no_grad():
                scores = torch.cat([model(dense[i:i + 4096], categories[i:i + 4096]) for i in range(0, len(labels), 4096)])
            loss = nn.functional.binary_cross_entropy_with_logits(scores, labels)
            print(f"test set: AUC {auc(labels.numpy(), scores.numpy()):.4f}, log loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
