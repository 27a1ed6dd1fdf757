"""Compressed gradients: results do not depend on the number of servers, transport or backups; bytes are counted."""

import math

from harness import DONE, MLP, Cluster, IntegrationTest, main, read_summary

STEPS = 12
WORKERS = 2
ENCODINGS = ("int8", "topk", "onebit")


class CompressionTest(IntegrationTest):

    def summary_after(self, *flags, ps=1):
        tasks = Cluster(self, ps=ps, workers=WORKERS).start_all(
            "--model", MLP, f"--train_steps={STEPS}", "--batch_size=16", "--novalidation", "--summary=summary.json", *flags)
        self.assert_exit(DONE, *tasks.values())
        return read_summary(self.directory / "summary.json")

    def test_any_number_of_servers_gives_the_same_bits_and_the_bytes_are_counted(self):
        # The largest fraction of float32's bytes, including biases and the overhead of a small kernel's blocks.
        most = {"int8": 0.30, "topk": 0.06, "onebit": 0.07}
        for encoding in ENCODINGS:
            with self.subTest(encoding):
                flags = ["--sync_replicas", f"--wire_dtype={encoding}", "--global_clipnorm=1"]
                one = self.summary_after(*flags)
                three = self.summary_after(*flags, "--transport=tcp", ps=3)  # the first kernel is split
                self.assertEqual(one["parameters_sha256"], three["parameters_sha256"])
                self.assertTrue(math.isfinite(one["loss"]))
                self.assertEqual(one["push_bytes_float32"], 4 * one["parameters"] * STEPS)
                self.assertLess(one["push_bytes"], most[encoding] * one["push_bytes_float32"])
                self.assertEqual(one["pull_bytes"], one["pull_bytes_float32"] / 2)
                self.assertGreater(one["gradient_error"], 0)
                self.assertLess(one["gradient_error"], 1)

    def test_backups_and_other_modes_work_with_compressed_gradients(self):
        sync = ["--sync_replicas", "--wire_dtype=topk", "--topk_fraction=0.05"]
        alone = self.summary_after(*sync, ps=2)
        copied = self.summary_after(*sync, "--ps_replication=1", "--transport=unix", ps=2)
        self.assertEqual(alone["parameters_sha256"], copied["parameters_sha256"])
        for mode in (["--mode=async"], ["--mode=ssp", "--max_staleness=1"]):
            with self.subTest(mode):
                summary = self.summary_after(*mode, "--wire_dtype=float32,dense/*=onebit", "--wire_values=float32")
                self.assertLess(summary["push_bytes"], 0.2 * summary["push_bytes_float32"])
                self.assertEqual(summary["pull_bytes"], summary["pull_bytes_float32"])

    def test_conflicting_flags_are_refused(self):
        for flags, fault in ((["--wire_dtype=int4"], "--wire_dtype: 'int4' is not one of float32"),
                             (["--topk_fraction=0.5"], "--topk_fraction needs --wire_dtype topk"),
                             (["--wire_dtype=topk", "--topk_fraction=2"], "--topk_fraction: "),
                             (["--wire_dtype=conv*=int8"], r"--wire_dtype: no variable uses the rule 'conv\*=int8'"),
                             (["--wire_dtype=int8", "--wire_values=int8"], "--wire_values: ")):
            with self.subTest(flags):
                self.assert_refused(Cluster(self).start("worker", 0, "--model", MLP, *flags), fault)


if __name__ == "__main__":
    main()
