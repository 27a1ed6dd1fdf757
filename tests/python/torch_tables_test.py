#!/usr/bin/env python3
"""Tables of PyTorch models with one worker, against torch.nn.Embedding and EmbeddingBag in this process."""

import copy
import datetime
import gc
import io
import json
import pathlib
import tempfile
import unittest
import weakref
from unittest import mock

import numpy as np
import support  # noqa: F401
import torch
from support import TableModel, local, make_bags

import cairn.torch
from cairn import tables
from cairn.torch import Embedding, EmbeddingBag, EmbeddingBagCollection, EmbeddingBagConfig

nn, optim = torch.nn, torch.optim
ROWS, WIDTH, STEPS = 12, 4, 6


class Model(nn.Module):
    """One embedding module, and what is made of its result."""

    def __init__(self, embedding):
        super().__init__()
        torch.manual_seed(3)
        self.embedding = embedding
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, *inputs):
        pooled = self.embedding(*inputs)
        return self.out(pooled.mean(1) if pooled.dim() == 3 else pooled)


def loss_of(model, inputs):
    return (model(*inputs) - 1).square().mean()


def train(model, optimizer, inputs, after=lambda i: None):
    for i, of_step in enumerate(inputs):
        optimizer.zero_grad()
        loss_of(model, of_step).backward()
        optimizer.step()
        after(i)


def ids_of(shape, seed, rows=ROWS):
    return torch.randint(0, rows, shape, generator=torch.Generator().manual_seed(seed))


class AgainstTorchTest(unittest.TestCase):

    def check(self, module, reference, inputs, make=lambda parameters: optim.SGD(parameters, 0.05), of_rows=None,
              wrap=None, after=lambda optimizer: lambda i: None, rtol=0):
        """Training with `module` gives the rows and parameters that torch gives with `reference`."""
        name = module.configs[0].name
        with local(ps=2) as job:
            model = Model(module)
            optimizer = cairn.torch.distribute(make(model.parameters()), model, job)
            first = torch.from_numpy(job.table(name).read(range(ROWS)))
            expected = Model(reference)
            with torch.no_grad():
                reference.weight.copy_(first)
                if reference.padding_idx is not None:
                    reference.weight[reference.padding_idx] = 0
            optimizers = [make(expected.out.parameters() if of_rows else expected.parameters())]
            optimizers += [of_rows(reference.parameters())] if of_rows else []

            class Both:
                def zero_grad(self):
                    for one in optimizers:
                        one.zero_grad()

                def step(self):
                    for one in optimizers:
                        one.step()
            train(expected, Both(), inputs, after(optimizers[0]))
            train(model, optimizer, wrap(job, inputs) if wrap else inputs, after(optimizer))
            rows = torch.from_numpy(job.table(name).read(range(ROWS)))
            if reference.padding_idx is not None:
                rows[reference.padding_idx] = 0
            torch.testing.assert_close(rows, reference.weight.detach(), rtol=rtol, atol=1e-6)
            torch.testing.assert_close(model.out.weight, expected.out.weight, rtol=rtol, atol=1e-6)
            return job.table(name).contents()

    def test_rows_follow_a_scheduler_that_was_made_before_distribute(self):
        model = nn.Sequential(Embedding(None, 1, name="e", first_values=cairn.tables.Constant(0)), nn.Linear(1, 1))
        inner = optim.SGD(model.parameters(), 0.5)
        scheduler = optim.lr_scheduler.LinearLR(inner, start_factor=0.2, total_iters=2)
        with local() as job:
            optimizer = cairn.torch.distribute(inner, model, job)
            for factor in (0.2, 0.6, 1.0, 1.0):
                before, weight = job.table("e").read([7]).item(), model[1].weight.item()
                optimizer.zero_grad()
                model(torch.tensor([7])).sum().backward()
                optimizer.step()
                scheduler.step()
                self.assertAlmostEqual(job.table("e").read([7]).item(), before - 0.5 * factor * weight, places=6)

    def test_tables_need_servers(self):
        model = nn.Sequential(Embedding(ROWS, WIDTH, name="e"))
        with self.assertRaisesRegex(cairn.InvalidArgument, "the embedding table 'e' .0. needs servers"), \
                cairn.init(peers="127.0.0.1:1", worker=0, workers=1) as job:
            cairn.torch.distribute(optim.SGD([nn.Parameter(torch.zeros(1))], 0.1), model, job, mode="allreduce")

    def test_sgd_and_adagrad_of_an_embedding(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]  # with repeated ids
        for make in (lambda p: optim.SGD(p, 0.5), lambda p: optim.Adagrad(p, 0.1),
                     lambda p: optim.Adagrad(p, 0.1, initial_accumulator_value=0.1)):
            self.check(Embedding(ROWS, WIDTH, name="e"), nn.Embedding(ROWS, WIDTH), inputs, make)

    def test_rules_that_continue_when_all_rows_have_gradients(self):
        inputs = [(torch.cat([torch.arange(ROWS), ids_of((12,), i)]).view(8, 3),) for i in range(STEPS)]
        for make in (lambda p: optim.SGD(p, 0.1, momentum=0.9), lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
                     lambda p: optim.RMSprop(p, 0.01), lambda p: optim.Adam(p, 0.05)):
            self.check(Embedding(ROWS, WIDTH, name="e"), nn.Embedding(ROWS, WIDTH), inputs, make, rtol=1e-5)

    def test_adam_is_sparse_adam(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]
        every = [(torch.cat([inputs[0][0].reshape(-1)[:12], torch.arange(ROWS)]).view(8, 3),), *inputs]
        self.check(Embedding(ROWS, WIDTH, name="e"), nn.Embedding(ROWS, WIDTH, sparse=True), every,
                   lambda p: optim.Adam(p, 0.05), of_rows=lambda p: optim.SparseAdam(list(p), 0.05))

    def test_a_table_has_an_optimizer_and_a_rate_of_its_own(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]
        keras = {"class_name": "Adagrad", "config": {"initial_accumulator_value": 0.1, "epsilon": 1e-20}}
        self.check(Embedding(ROWS, WIDTH, name="e", optimizer=keras, lr=0.1), nn.Embedding(ROWS, WIDTH), inputs,
                   lambda p: optim.AdamW(p, 0.01),
                   of_rows=lambda p: optim.Adagrad(p, 0.1, initial_accumulator_value=0.1))

    def test_a_named_optimizer_has_torchs_defaults(self):
        inputs = [(torch.cat([torch.arange(ROWS), ids_of((12,), i)]).view(8, 3),) for i in range(STEPS)]
        for name, of_rows in (("Adagrad", optim.Adagrad), ("RMSprop", optim.RMSprop), ("Adam", optim.Adam)):
            self.check(Embedding(ROWS, WIDTH, name="e", optimizer=name, lr=0.01), nn.Embedding(ROWS, WIDTH), inputs,
                       lambda p: optim.AdamW(p, 0.05), of_rows=lambda p, of_rows=of_rows: of_rows(p, 0.01), rtol=1e-5)

    def test_bags_of_each_mode(self):
        inputs = [(ids_of((8, 3 if i % 2 else 1), i),) for i in range(STEPS)]
        for mode in ("sum", "mean", "max"):
            with self.subTest(mode):
                self.check(EmbeddingBag(ROWS, WIDTH, name="e", mode=mode), nn.EmbeddingBag(ROWS, WIDTH, mode=mode), inputs)

    def test_empty_bags_and_offsets(self):
        def inputs(last):
            for i in range(STEPS):
                lengths = torch.tensor([2, 0, 3, 1, 0]) if i != 2 else torch.zeros(5, dtype=torch.int64)
                ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
                yield ids_of((int(ends[-1]),), i), ends if last else ends[:-1]
        for last in (False, True):
            for mode in ("sum", "mean", "max"):
                with self.subTest(mode, last=last):
                    self.check(EmbeddingBag(ROWS, WIDTH, name="e", mode=mode, include_last_offset=last),
                               nn.EmbeddingBag(ROWS, WIDTH, mode=mode, include_last_offset=last), list(inputs(last)))

    def test_weights_of_ids_have_gradients_too(self):
        torch.manual_seed(5)
        weights = [torch.randn(8, 3).requires_grad_() for _ in range(STEPS)]
        inputs = [(ids_of((8, 3), i), None, of_step) for i, of_step in enumerate(weights)]
        sums = []  # of both models' gradients

        def after(_):
            return lambda i: (sums.append(weights[i].grad.clone()), weights[i].grad.zero_())
        self.check(EmbeddingBag(ROWS, WIDTH, name="e", mode="sum"), nn.EmbeddingBag(ROWS, WIDTH, mode="sum"), inputs, after=after)
        for found, expected in zip(sums[STEPS:], sums):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
            self.assertGreater(found.abs().max(), 0)

    def test_padding_is_zeros_and_is_not_trained(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]
        for make, reference in ((Embedding, nn.Embedding), (EmbeddingBag, nn.EmbeddingBag)):
            contents = self.check(make(ROWS, WIDTH, name="e", padding_idx=-1), reference(ROWS, WIDTH, padding_idx=ROWS - 1),
                                  inputs)
            self.assertNotIn(ROWS - 1, contents.ids)

    def test_rows_of_the_next_batch_come_with_the_step(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]
        reads = []

        def wrap(job, batches):
            read = job.exchange._read
            job.exchange._read = lambda missing: (reads.append(sum(len(rows.ids) for _, rows in missing)), read(missing))
            return job.prefetch(batches, lambda batch: {"e": batch[0]})
        self.check(Embedding(ROWS, WIDTH, name="e"), nn.Embedding(ROWS, WIDTH), inputs, lambda p: optim.Adagrad(p, 0.1), wrap=wrap)
        self.assertGreater(reads[0], 0)  # the first batch
        self.assertEqual(sum(reads[1:-1]), 0)  # the last is that of the test

    def test_ids_may_change_after_they_were_prefetched(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]

        def wrap(job, batches):
            for i, batch in enumerate(job.prefetch([(ids.clone(),) for ids, in batches], lambda batch: {"e": batch[0]})):
                batch[0].copy_(inputs[i][0].flip(0) if i % 2 else inputs[i][0])
                yield batch
        changed = [(ids.flip(0),) if i % 2 else (ids,) for i, (ids,) in enumerate(inputs)]
        with local() as job:
            model = Model(Embedding(ROWS, WIDTH, name="e", seed=1))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            train(model, optimizer, changed)
            expected = job.table("e").read(range(ROWS))
        with local() as job:
            model = Model(Embedding(ROWS, WIDTH, name="e", seed=1))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            train(model, optimizer, wrap(job, inputs))
            np.testing.assert_array_equal(job.table("e").read(range(ROWS)), expected)

    def test_rows_of_a_step_are_freed_without_the_garbage_collector(self):
        with local() as job:
            model = Model(Embedding(ROWS, WIDTH, name="e"))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            kept = []
            for i in range(STEPS):
                train(model, optimizer, [(ids_of((8, 3), i),)], lambda _: kept.append(weakref.ref(job.exchange.rows(0).rows)))
            self.assertLessEqual(sum(rows() is not None for rows in kept), 1)

    def test_assigned_batches_are_prefetched_too(self):
        examples, size = 50, 4
        for num_workers in (0, 2):
            with self.subTest(num_workers=num_workers), local(ps=2) as job:
                batches = job.batches(torch.arange(examples), size, epochs=2, num_workers=num_workers)
                model = Model(Embedding(None, WIDTH, name="e", first_values=tables.Constant(0), lr=1.0))
                optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.0), model, job)
                reads, read = [], job.exchange._read
                job.exchange._read = lambda missing: (reads.append(sum(len(rows.ids) for _, rows in missing)), read(missing))
                for batch in job.prefetch(batches, lambda batch: {"e": batch}):
                    (-model.embedding(batch).sum() / size).backward()
                    optimizer.step()
                self.assertEqual((reads[0], sum(reads[1:])), (size, 0))
                del job.exchange._read
                np.testing.assert_array_equal(job.table("e").read(range(examples)), np.full((examples, WIDTH), 2 / size))

    def test_a_schedule_changes_the_rate_of_rows(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]

        def after(optimizer):
            schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            return lambda i: schedule.step()
        self.check(Embedding(ROWS, WIDTH, name="e"), nn.Embedding(ROWS, WIDTH), inputs, after=after)

    def test_gradients_add_up_over_lookups_and_backwards(self):
        with local() as job:
            model, expected = Model(Embedding(ROWS, WIDTH, name="e")), Model(nn.Embedding(ROWS, WIDTH))
            optimizer = cairn.torch.distribute(optim.Adagrad(model.parameters(), 0.1), model, job)
            with torch.no_grad():
                expected.embedding.weight.copy_(torch.from_numpy(job.table("e").read(range(ROWS))))
            of_torch = optim.Adagrad(expected.parameters(), 0.1)
            for step in range(STEPS):
                for one, chosen in ((model, optimizer), (expected, of_torch)):
                    chosen.zero_grad()
                    for part in range(3):  # the lookups before a backward() have the ids of two parts
                        inputs = [(ids_of((4, 2), 10 * step + part + k),) for k in (0, 5)]
                        (loss_of(one, inputs[0]) * loss_of(one, inputs[1])).backward()
                        loss_of(one, inputs[0])  # without a backward()
                    chosen.step()
            torch.testing.assert_close(torch.from_numpy(job.table("e").read(range(ROWS))), expected.embedding.weight.detach(),
                                       rtol=0, atol=1e-6)

    def test_zero_grad_forgets_what_was_added(self):
        with local() as job:
            model = Model(Embedding(ROWS, WIDTH, name="e"))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.5), model, job)
            loss_of(model, (torch.tensor([[1]]),)).backward()
            optimizer.zero_grad()
            loss_of(model, (torch.tensor([[2]]),)).backward()
            optimizer.step()
            self.assertEqual(job.table("e").contents().ids.tolist(), [2])

    def test_rows_of_an_interrupted_step_are_pushed_once(self):
        with local() as job:
            model = Model(Embedding(None, WIDTH, name="e", first_values=tables.Constant(0), lr=1.0))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.0), model, job)
            model.embedding(torch.tensor([7])).sum().backward()

            def interrupted(*_):
                job.steps._unsettled = True  # as finish() does
                job.session.finish_step(datetime.timedelta(milliseconds=1))
                raise KeyboardInterrupt
            with mock.patch.object(job.steps, "finish", interrupted), self.assertRaises(KeyboardInterrupt):
                optimizer.step()
            model.embedding(torch.tensor([8])).sum().backward()
            optimizer.step()
            self.assertTrue((job.table("e").read([7, 8]) == -1).all())

    def test_scaled_gradients(self):
        inputs = [(ids_of((8, 3), i),) for i in range(STEPS)]
        with local() as job:
            model, expected = Model(Embedding(ROWS, WIDTH, name="e")), Model(nn.Embedding(ROWS, WIDTH))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.5), model, job)
            with torch.no_grad():
                expected.embedding.weight.copy_(torch.from_numpy(job.table("e").read(range(ROWS))))
            train(expected, optim.SGD(expected.parameters(), 0.5), inputs)
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            for of_step in inputs:
                optimizer.zero_grad()
                scaler.scale(loss_of(model, of_step)).backward()
                scaler.step(optimizer)
                scaler.update()
            torch.testing.assert_close(torch.from_numpy(job.table("e").read(range(ROWS))), expected.embedding.weight.detach(),
                                       rtol=0, atol=1e-6)


class JaggedTensor:
    """The calls of TorchRec's KeyedJaggedTensor that are used."""

    def __init__(self, bags, weights=None):
        self._bags, self._weights = bags, weights

    def keys(self):
        return list(self._bags)

    def values(self):
        return torch.tensor([i for bags in self._bags.values() for bag in bags for i in bag])

    def lengths(self):
        return torch.tensor([len(bag) for bags in self._bags.values() for bag in bags], dtype=torch.int32)

    def weights_or_none(self):
        return self._weights


class CollectionTest(unittest.TestCase):
    TABLES = (EmbeddingBagConfig("users", 4, 20, ["user"], optimizer="SGD", lr=0.5),
              EmbeddingBagConfig("items", 3, None, ["item", "seen"], pooling="mean", optimizer="Adagrad", lr=0.1),
              EmbeddingBagConfig("wide", 1, None, ["seen"], optimizer="SGD", lr=0.5))
    BAGS = {"seen": [[7, 7, 1 << 50], [], [-3]], "unused": [[1], [], [2]], "user": [[1], [2], [1]],
            "item": [[7], [8, -3], []]}

    def test_features_are_pooled_in_the_order_of_the_tables(self):
        with local(ps=2) as job:
            model = nn.Sequential(EmbeddingBagCollection(self.TABLES))
            model.out = nn.Linear(1, 1)
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            pooled = model[0](JaggedTensor(self.BAGS))
            self.assertEqual(pooled.keys(), ["user", "item", "seen@items", "seen@wide"])
            self.assertEqual(pooled.length_per_key(), [4, 3, 3, 1])
            self.assertEqual(pooled.offset_per_key(), [0, 4, 7, 10, 11])
            self.assertEqual(pooled.values().shape, (3, 11))

            def rows(table, bags, reduce):
                width = job.table(table).width
                return torch.stack([reduce(torch.from_numpy(job.table(table).read(bag))) if bag else torch.zeros(width)
                                    for bag in bags])
            expected = {"user": rows("users", self.BAGS["user"], lambda r: r.sum(0)),
                        "item": rows("items", self.BAGS["item"], lambda r: r.mean(0)),
                        "seen@items": rows("items", self.BAGS["seen"], lambda r: r.mean(0)),
                        "seen@wide": rows("wide", self.BAGS["seen"], lambda r: r.sum(0))}
            for key, values in pooled.to_dict().items():
                torch.testing.assert_close(values, expected[key], msg=lambda text, key=key: f"{key}: {text}")
                torch.testing.assert_close(pooled[key], expected[key])
            pairs = {name: (torch.tensor([i for bag in bags for i in bag], dtype=torch.int64),
                            torch.tensor([0, *np.cumsum([len(bag) for bag in bags])[:-1].tolist()]))
                     for name, bags in self.BAGS.items()}
            torch.testing.assert_close(model[0](pairs).values(), pooled.values())

    def test_all_tables_are_read_with_one_request_and_updated_in_one_step(self):
        with local(ps=2) as job:
            model = nn.Sequential(EmbeddingBagCollection(self.TABLES), nn.Linear(11, 1))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            before = {name: table.read([1, 2, 7, -3] if name != "users" else [1, 2]) for name, table in job.tables.items()}
            with mock.patch.object(job.exchange, "_read", wraps=job.exchange._read) as read:
                pooled = model[0](JaggedTensor(self.BAGS))
            self.assertEqual(read.call_count, 1)
            pooled.values().sum().backward()
            optimizer.step()
            users = job.table("users").read([1, 2])
            np.testing.assert_allclose(users, before["users"] - [[1.0], [0.5]], atol=1e-6)  # two examples, and one
            wide = job.table("wide").read([7, -3, 8])
            np.testing.assert_allclose(wide[:2], before["wide"][[2, 3]] - [[1.0], [0.5]], atol=1e-6)
            self.assertEqual(sorted(job.table("items").contents().ids.tolist()), [-3, 7, 8, 1 << 50])

    def test_weighted_features(self):
        bags = {"user": [[1, 2], [], [3]]}
        weights = torch.tensor([0.5, 2.0, -1.0])
        with local() as job:
            model = nn.Sequential(EmbeddingBagCollection(self.TABLES[:1], is_weighted=True), nn.Linear(1, 1))
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            rows = torch.from_numpy(job.table("users").read([1, 2, 3]))
            pooled = model[0](JaggedTensor(bags, weights)).values()
            torch.testing.assert_close(pooled, torch.stack([rows[0] / 2 + rows[1] * 2, torch.zeros(4), -rows[2]]))
            with self.assertRaisesRegex(cairn.InvalidArgument, "feature 'user' has no weights"):
                model[0](JaggedTensor(bags))

    def test_a_missing_feature_is_named(self):
        with local() as job:
            model = nn.Sequential(EmbeddingBagCollection(self.TABLES[:1]), nn.Linear(1, 1))
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            with self.assertRaisesRegex(cairn.InvalidArgument, "table 'users': the batch has no feature 'user'"):
                model[0]({"item": torch.tensor([[1]])})


class TablesTest(unittest.TestCase):

    def test_any_id_has_a_row(self):
        ids = [(1 << 40) + 1, -1, -(1 << 63), (1 << 63) - 1, 0]
        with local(ps=2) as job:
            model = Model(Embedding(None, WIDTH, name="any", first_values=tables.Constant(2), lr=1.0))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.5), model, job)
            model.embedding(torch.tensor(ids)).sum().backward()
            optimizer.step()
            self.assertEqual(sorted(job.table("any").contents().ids.tolist()), sorted(ids))
            self.assertTrue((job.table("any").read(ids) == 1).all())
            self.assertTrue((job.table("any").read([5]) == 2).all())

    def test_evaluation_makes_no_rows_and_reads_the_current_ones(self):
        with local() as job:
            model = Model(Embedding(None, WIDTH, name="e"))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.5), model, job)
            loss_of(model, (torch.tensor([[1, 2]]),)).backward()
            optimizer.step()
            model.eval()
            for ids in ([[3, 4]], [[1, 5]]):
                with torch.no_grad():
                    loss_of(model, (torch.tensor(ids),))
                loss_of(model, (torch.tensor(ids),))
            self.assertEqual(sorted(job.table("e").contents().ids.tolist()), [1, 2])
            with torch.no_grad():
                torch.testing.assert_close(model.embedding(torch.tensor([1])), torch.from_numpy(job.table("e").read([1])))
            # A program may train in this mode too.
            loss_of(model, (torch.tensor([[6]]),)).backward()
            optimizer.step()
            self.assertEqual(sorted(job.table("e").contents().ids.tolist()), [1, 2, 6])

    def test_steps_without_ids(self):
        with local() as job:
            model = TableModel(optimizer="Adagrad")
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.5), model, job)
            ids, labels = make_bags()
            optimizer.step()
            optimizer.step(examples=0)
            model.loss(ids[:, :0], labels).backward()
            optimizer.step()
            self.assertEqual(len(job.table("bags").contents().ids), 0)
            model.loss(ids, labels).backward()
            optimizer.step(examples=0)
            self.assertEqual(len(job.table("bags").contents().ids), 0)
            self.assertEqual(optimizer.result.outcome, "accepted")

    def test_sqrtn_divides_by_the_root_of_the_sum_of_squares(self):
        ids, offsets, weights = torch.tensor([0, 1, 2, 0, 0]), torch.tensor([0, 2, 2]), torch.tensor([1, 3, 2, 0.5, -1])
        with local() as job:
            model = nn.Sequential(EmbeddingBag(3, 2, name="e", mode="sqrtn"), nn.Linear(1, 1))
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.5), model, job)
            rows = torch.from_numpy(job.table("e").read([0, 1, 2]))
            torch.testing.assert_close(model[0](ids, offsets), torch.stack(
                [(rows[0] + rows[1]) / 2 ** 0.5, torch.zeros(2), (rows[2] + 2 * rows[0]) / 3 ** 0.5]))
            torch.testing.assert_close(model[0](ids, offsets, weights), torch.stack(
                [(rows[0] + 3 * rows[1]) / 10 ** 0.5, torch.zeros(2), (2 * rows[2] - rows[0] / 2) / 5.25 ** 0.5]))

    def test_first_values(self):
        with local() as job:
            model = nn.Sequential(nn.Linear(1, 1), Embedding(None, 50, name="uniform", first_values=tables.Uniform(1, 3)),
                                  Embedding(None, 50, name="normal", first_values=tables.Normal(5, 0.1), seed=7),
                                  Embedding(None, 50, name="truncated", first_values=tables.TruncatedNormal(0, 1)))
            cairn.torch.distribute(optim.SGD(model.parameters(), 0.5), model, job)
            rows = {name: table.read(range(100)) for name, table in job.tables.items()}
        self.assertTrue(((rows["uniform"] >= 1) & (rows["uniform"] < 3)).all())
        self.assertAlmostEqual(float(rows["uniform"].mean()), 2, delta=0.05)
        self.assertAlmostEqual(float(rows["normal"].mean()), 5, delta=0.01)
        self.assertAlmostEqual(float(rows["normal"].std()), 0.1, delta=0.01)
        self.assertLessEqual(float(np.abs(rows["truncated"]).max()), 2)

    def test_a_table_is_saved_with_its_ids(self):
        with tempfile.TemporaryDirectory() as directory, local(ps=2) as job:
            model = TableModel()
            optimizer = cairn.torch.distribute(optim.Adam(model.parameters(), 0.05), model, job)
            model.loss(*make_bags()).backward()
            optimizer.step()
            table = job.table("bags")
            path = pathlib.Path(directory, "bags.npz")
            table.save(path)
            with np.load(path) as saved:
                np.testing.assert_array_equal(saved["rows"], table.read(saved["ids"]))
                self.assertEqual(set(saved["ids"].tolist()), set(make_bags()[0].reshape(-1).tolist()))
            path = pathlib.Path(directory, "bags.safetensors")
            table.save(path)
            raw = path.read_bytes()
            head = int.from_bytes(raw[:8], "little")
            described = json.loads(raw[8:8 + head])
            parts = {name: np.frombuffer(raw[8 + head:][slice(*entry["data_offsets"])],
                                         {"I64": np.int64, "F32": np.float32}[entry["dtype"]]).reshape(entry["shape"])
                     for name, entry in described.items()}
            np.testing.assert_array_equal(parts["table/bags/rows"], table.read(parts["table/bags/ids"]))
            with self.assertRaisesRegex(cairn.InvalidArgument, "must end with .npz or .safetensors"):
                table.save(pathlib.Path(directory, "bags.bin"))

    def test_a_model_is_saved_and_copied_without_its_rows(self):
        with local() as job:
            model = TableModel()
            cairn.torch.distribute(optim.Adam(model.parameters(), 0.05), model, job)
            self.assertEqual(list(model.state_dict()), ["out.weight", "out.bias"])
            model.load_state_dict(model.state_dict())
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
                torch.testing.assert_close(other.out.weight, model.out.weight)
                with self.assertRaisesRegex(cairn.Refused, "the table 'bags' is on no server yet"):
                    other.bags(torch.tensor([[1]]))

    def test_wrong_ids_are_named(self):
        with local() as job:
            model = nn.Sequential(Embedding(10, 2, name="users"), EmbeddingBag(None, 2, name="bags"), nn.Linear(1, 1))
            optimizer = cairn.torch.distribute(optim.SGD(model.parameters(), 0.1), model, job)
            for ids, message in ((torch.tensor([1.0]), r"table 'users': ids of type torch.float32, must be integers"),
                                 (torch.tensor([True]), "table 'users': ids of type torch.bool"),
                                 (torch.tensor([3, 10]), r"table 'users': id 10, must be in \[0, 10\)"),
                                 (torch.tensor([-1]), r"table 'users': id -1, must be in \[0, 10\)")):
                with self.assertRaisesRegex(cairn.InvalidArgument, message):
                    model[0](ids)
            for arguments, message in (((torch.tensor([1]),), "'bags': bags are ids of the shape"),
                                       ((torch.tensor([[1]]), torch.tensor([0])), "have no offsets"),
                                       ((torch.tensor([1]), torch.tensor([1])), "offsets must rise from 0"),
                                       ((torch.tensor([1, 2, 3]), torch.tensor([0, 2, 1])), "offsets must rise"),
                                       ((torch.tensor([[1]]), None, torch.ones(1, 1)), "per_sample_weights need the mode"),
                                       ((torch.tensor([[1]]), None, torch.ones(2)), "per_sample_weights of the shape")):
                with self.assertRaisesRegex(cairn.InvalidArgument, message):
                    model[1](*arguments)
            with self.assertRaisesRegex(cairn.InvalidArgument, "no table 'user'; the job has 'users', 'bags'"):
                job.table("user")
            with self.assertRaisesRegex(cairn.InvalidArgument, "table 'users': id 10"):
                list(job.prefetch([1, 2], lambda batch: {"users": [10]}))
            optimizer.step()  # the job goes on
            self.assertEqual(optimizer.result.outcome, "accepted")

    def test_wrong_tables_are_named(self):
        for make, message in ((lambda: Embedding(0, 2, name="t"), "table 't': rows is 0"),
                              (lambda: Embedding(5, 0, name="t"), "table 't': width is 0"),
                              (lambda: Embedding(5, 2, name="t", padding_idx=5), "table 't': padding_idx is 5"),
                              (lambda: Embedding(5, 2, name="t", first_values=0.5), "table 't': first_values is 0.5"),
                              (lambda: EmbeddingBag(5, 2, name="t", mode="min"), "table 't': 'min' must be one of sum")):
            with self.assertRaisesRegex(cairn.InvalidArgument, message):
                make()

        def distribute(*modules, make=lambda p: optim.SGD(p, 0.1)):
            with local() as job:
                model = nn.Sequential(nn.Linear(1, 1), *modules)
                cairn.torch.distribute(make(model.parameters()), model, job)
        for arguments, options, message in (
                ([Embedding(5, 2, name="t"), Embedding(5, 2, name="t")], {}, "two modules have a table named 't': 1 and 2"),
                ([Embedding(5, 2, name="t")], {"make": optim.Adadelta}, "table 't': Adadelta has no form"),
                ([Embedding(5, 2, name="t")], {"make": optim.AdamW}, "table 't': weight_decay of AdamW has no form"),
                ([Embedding(5, 2, name="t", optimizer="Lion")], {}, "table 't': unknown optimizer 'Lion' of a table"),
                ([Embedding(5, 2, name="t", optimizer=3)], {}, "table 't': optimizer is 3, must be a name")):
            with self.assertRaisesRegex(cairn.InvalidArgument, message):
                distribute(*arguments, **options)
        shared = Embedding(5, 2, name="t")
        distribute(shared, shared)
        with self.assertRaisesRegex(cairn.Refused, "the table 't' is on no server yet"):
            Embedding(5, 2, name="t")(torch.tensor([1]))


if __name__ == "__main__":
    unittest.main()
