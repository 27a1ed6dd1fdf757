#!/usr/bin/env python3
"""The click models of ctr_ratio.py in one process of PyTorch: sparse gradients of the tables, and torch's Adagrad.

Prints {"step": N} after --first and after --steps steps, and {"loss": L} of the last fifth of the steps. All examples
are in memory, with ids that index the tables. --dense_only trains DLRM on constant rows, without tables.
"""

import argparse

import torch
from torch import nn

import ctr_data


class FactorizationMachine(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        rows = int(sizes.sum())
        self.register_buffer("begins", torch.tensor(sizes).cumsum(0) - torch.tensor(sizes))
        self.factors = nn.Embedding(rows, ctr_data.DIM, sparse=True)
        nn.init.uniform_(self.factors.weight, -0.01, 0.01)
        self.weights = nn.EmbeddingBag(rows, 1, mode="sum", sparse=True)
        nn.init.zeros_(self.weights.weight)
        self.linear = nn.Linear(ctr_data.NUMBERS, 1)

    def forward(self, numbers, ids):
        ids = ids + self.begins
        factors = self.factors(ids)
        total = factors.sum(1)
        pairs = 0.5 * ((total * total).sum(1) - (factors * factors).sum((1, 2)))
        return self.linear(numbers).squeeze(1) + self.weights(ids).squeeze(1) + pairs


def layers(inputs, units, output=None):
    made = []
    for count in units:
        made += [nn.Linear(inputs, count), nn.ReLU(inplace=True)]
        inputs = count
    return nn.Sequential(*made, *([nn.Linear(inputs, output)] if output else []))


class Dlrm(nn.Module):
    def __init__(self, sizes, dense_only):
        super().__init__()
        count = ctr_data.CATEGORIES + 1
        self.constant = torch.randn(2048, count - 1, ctr_data.DIM) if dense_only else None
        self.tables = nn.ModuleList([] if dense_only else [nn.EmbeddingBag(int(n), ctr_data.DIM, mode="sum", sparse=True)
                                                           for n in sizes])
        for table in self.tables:
            nn.init.uniform_(table.weight, -0.05, 0.05)
        self.bottom = layers(ctr_data.NUMBERS, ctr_data.BOTTOM)
        self.top = layers(ctr_data.DIM + count * (count - 1) // 2, ctr_data.TOP, 1)
        self.register_buffer("pairs", torch.tril_indices(count, count, -1))

    def forward(self, numbers, ids):
        bottom = self.bottom(numbers)
        if self.constant is None:
            one_each = torch.arange(len(ids))
            rows = [table(ids[:, field].contiguous(), one_each) for field, table in enumerate(self.tables)]
            together = torch.stack([bottom, *rows], 1)
        else:
            together = torch.cat([bottom.unsqueeze(1), self.constant[:len(ids)].requires_grad_()], 1)
        products = torch.bmm(together, together.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, products], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ctr_data.add_arguments(parser)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dense_only", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    labels, numbers, ids, sizes = ctr_data.examples(options.data_dir, options.rows)
    labels, numbers, ids = torch.tensor(labels), torch.tensor(numbers), torch.tensor(ids)
    model = FactorizationMachine(sizes) if options.network == "fm" else Dlrm(sizes, options.dense_only)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=ctr_data.RATE, initial_accumulator_value=0.1, eps=1e-7)
    losses, order = [], torch.empty(0, dtype=torch.long)
    for step in range(1, options.steps + 1):
        if len(order) < options.batch_size:
            order = torch.randperm(options.rows)
        batch, order = order[:options.batch_size], order[options.batch_size:]
        optimizer.zero_grad(set_to_none=True)
        score = model(numbers.index_select(0, batch), ids.index_select(0, batch))
        loss = nn.functional.binary_cross_entropy_with_logits(score, labels.index_select(0, batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step in (options.first, options.steps):
            ctr_data.tell(step=step)
    last = losses[-max(1, options.steps // 5):]
    ctr_data.tell(loss=float(sum(last) / len(last)))


if __name__ == "__main__":
    main()
