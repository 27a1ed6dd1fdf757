"""The CNN of the examples reaches the published accuracy of such networks on the real MNIST."""

import re
import unittest

from harness import CNN, DONE, MNIST_DIR, IntegrationTest, main

TIME_LIMIT = 580  # seconds, below ctest's


@unittest.skipUnless(MNIST_DIR, "the bars are for the real MNIST: set CAIRN_MNIST_DIR")
class BarsTest(IntegrationTest):

    def val_accuracies(self, *flags):
        """The accuracy after each of 5 epochs, with two workers and batches of 32."""
        run = self.run_to_end("cairn", "train", CNN, "--data_dir", MNIST_DIR, "--optimizer=adam", "--ps=1",
                              "--workers=2", "--batch_size=32", "--epochs=5", *flags, seconds=TIME_LIMIT)
        self.assert_exit(DONE, run)
        shown = re.findall("^[0-9]+/[0-9]+ - .*val_accuracy: ([0-9.]+)", run.stdout, re.MULTILINE)
        accuracies = [float(text) for text in shown]
        print(" ".join(flags), "val_accuracy by epoch:", *accuracies, "|", run.stdout.splitlines()[-1], flush=True)
        self.assertEqual(len(accuracies), 5, run.stdout)
        return accuracies

    def test_sync(self):
        accuracies = self.val_accuracies("--sync_replicas")  # the default seed
        self.assertGreaterEqual(accuracies[1], 0.986)
        self.assertGreaterEqual(accuracies[4], 0.989)

    def test_async_seed_1(self):
        self.assertGreaterEqual(self.val_accuracies("--seed=1")[4], 0.986)

    def test_async_seed_2(self):
        self.assertGreaterEqual(self.val_accuracies("--seed=2")[4], 0.986)

    def test_async_seed_3(self):
        self.assertGreaterEqual(self.val_accuracies("--seed=3")[4], 0.986)


if __name__ == "__main__":
    main()
