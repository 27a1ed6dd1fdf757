#!/usr/bin/env python3
"""Sums over bags of several tables in one operation, against torch's operation for each table."""

import unittest

import numpy as np
import torch

from cairn import _native
from cairn.torch import pooling
from cairn.torch.pooling import Bags, Found, Pooled

EXAMPLES = 5


def table(mode, width, lengths, features=1, weighted=False, seed=0):
    """A table of seven rows; `lengths`: of its bags, or one number for all."""
    generator = torch.Generator().manual_seed(seed)
    count = EXAMPLES * features
    ids = count * lengths if isinstance(lengths, int) else sum(lengths)
    bags = Bags(torch.zeros(ids, dtype=torch.int64), count, None if isinstance(lengths, int) else torch.tensor(lengths),
                torch.rand(ids, generator=generator) if weighted else None)
    positions = torch.randint(7, (ids,), generator=generator, dtype=torch.int32)
    return Pooled("t", features, mode, bags, Found(torch.randn(7, width, generator=generator).requires_grad_(), positions, None))


class PoolingTest(unittest.TestCase):

    def check(self, *tables):
        self.assertTrue(all(pooling._has_sums(one) for one in tables))
        sums = pooling.pool(tables)
        of_sums = torch.randn(sums.shape, generator=torch.Generator().manual_seed(9))
        rows = [one.found.weight for one in tables]
        gradients = torch.autograd.grad(sums, rows, of_sums)
        parts = [part for one in tables
                 for part in pooling._pool_one(one).view(one.features, EXAMPLES, one.found.weight.shape[1])]
        expected = torch.cat(parts, dim=1)
        torch.testing.assert_close(sums, expected, rtol=1e-6, atol=1e-6)
        for gradient, of_torch in zip(gradients, torch.autograd.grad(expected, rows, of_sums)):
            torch.testing.assert_close(gradient, of_torch, rtol=1e-6, atol=1e-6)
        return sums, expected, gradients

    def test_bags_of_one_id_have_torchs_bits(self):
        sums, expected, _ = self.check(table("mean", 16, 1), table("sum", 3, 1, features=2, seed=1), table("sqrtn", 8, 1, seed=2))
        self.assertTrue(torch.equal(sums, expected))

    def test_each_mode(self):
        for mode in ("sum", "mean", "sqrtn"):
            for lengths in (3, [2, 0, 1, 4, 1]):
                with self.subTest(f"{mode} {lengths}"):
                    self.check(table(mode, 4, lengths), table(mode, 16, 2, features=3, seed=1))

    def test_weights(self):
        for mode in ("sum", "sqrtn"):
            with self.subTest(mode):
                self.check(table(mode, 4, [2, 0, 1, 4, 1], weighted=True), table(mode, 4, 1, weighted=True, seed=1))

    def test_sums_are_float32_whatever_torchs_default_is(self):
        made = [table(mode, 4, [2, 0, 1, 4, 1], weighted=mode != "mean") for mode in ("sum", "mean", "sqrtn")]
        expected, _, gradients = self.check(*made)
        torch.set_default_dtype(torch.float64)
        try:
            sums = pooling.pool(made)
            of_sums = torch.ones_like(sums)
            again = torch.autograd.grad(sums, [one.found.weight for one in made], of_sums)
        finally:
            torch.set_default_dtype(torch.float32)
        self.assertTrue(torch.equal(sums, expected))
        for gradient, before in zip(again, gradients):
            self.assertEqual(gradient.dtype, torch.float32)
            self.assertGreater(gradient.abs().sum(), 0)
            self.assertEqual(gradient.shape, before.shape)

    def test_no_ids(self):
        sums, _, (gradient,) = self.check(table("sum", 4, 0))
        self.assertTrue(torch.equal(sums, torch.zeros(EXAMPLES, 4)))
        self.assertTrue(torch.equal(gradient, torch.zeros(7, 4)))

    def test_bags_that_are_left_to_torch(self):
        weights = table("sum", 4, 2, weighted=True)
        weights.bags.weights.requires_grad_()
        padded = table("sum", 4, 2)
        for one in (weights, table("max", 4, 2), padded._replace(found=padded.found._replace(padding=3))):
            self.assertFalse(pooling._has_sums(one))
            self.assertEqual(pooling.pool([one]).shape, (EXAMPLES, 4))

    def test_bags_that_do_not_fit_are_refused(self):
        bags = _native.BagSums(2)
        positions = np.zeros(3, np.int32)
        for ends in ([1], [1, 2], [2, 1], [-1, 3], [4, 3], None):
            with self.subTest(ends), self.assertRaisesRegex(ValueError, "3 ids do not make 2 bags"):
                bags.add(1, positions, None if ends is None else np.array(ends), None)
        bags.add(1, positions, np.array([1, 3]), None)
        for shape in ((2, 5), (3, 4)):
            with self.assertRaisesRegex(ValueError, "sums of another shape"):
                bags.sum([np.zeros((1, 4), np.float32)], np.zeros(shape, np.float32))


if __name__ == "__main__":
    unittest.main()
