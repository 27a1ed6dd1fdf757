"""Checkpoints and exports move the rows of embedding tables in pieces: no program holds a whole table in memory."""

import json
import sys

from embedding_tables_test import layer
from harness import BIN_DIR, DONE, Cluster, IntegrationTest, main
from inputs_test import write_npz

ROWS, DIM = 200_000, 256
TABLE = ROWS * DIM * 4  # bytes: 205 MB
MOST = TABLE // 2  # that a checkpoint or an export may add: three times the two pieces of 16 MiB
# Runs a command, and writes the largest resident memory of its process to a file, in bytes.
WRAPPER = ("import resource, subprocess, sys; code = subprocess.call(sys.argv[2:]); "
           "open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)); "
           "sys.exit(code)")


class TableMemoryTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        layers = [layer("InputLayer", "user", [], batch_shape=[None, 1], dtype="int64"),
                  layer("Embedding", "users", ["user"], input_dim=ROWS, output_dim=DIM),
                  layer("Flatten", "flat", ["users"]),
                  layer("Dense", "score", ["flat"], units=1)]
        (self.directory / "model.json").write_text(json.dumps({
            "class_name": "Functional",
            "config": {"name": "scores", "layers": layers, "input_layers": [["user", 0, 0]],
                       "output_layers": [["score", 0, 0]]},
            "compile_config": {"optimizer": "sgd", "loss": "mean_squared_error"}}))
        write_npz(self.directory / "data.npz", **{"x_train": ("i8", (ROWS, 1), range(ROWS)),
                                                  "y_train": ("f4", (ROWS, 1), [1.0] * ROWS)})

    def measured(self, program, *arguments):
        """Starts a program; measured_bytes() is for its end."""
        return self.start_command([sys.executable, "-c", WRAPPER, "peak.txt", BIN_DIR / program, *arguments], name=program)

    def measured_bytes(self):
        return int((self.directory / "peak.txt").read_text())

    def train(self, epochs, *flags, servers):
        """Trains with every id in each epoch. Returns the largest memory of the chief."""
        cluster = Cluster(self, ps=servers, workers=1)
        addresses = cluster.by_flags("worker", 0)[0]
        tasks = [cluster.start("ps", index) for index in range(servers)]
        tasks.append(self.measured(
            "cairn-worker", *addresses, "--job_name=worker", "--task_index=0", "--model=model.json",
            "--data_dir=data.npz", "--batch_size=4000", f"--epochs={epochs}", "--sync_replicas", "--threads=1",
            "--embedding_tables=users", *flags))
        self.assert_exit(DONE, *tasks, seconds=240)
        return self.measured_bytes()

    def command(self, *arguments):
        """Runs `cairn checkpoint`. Returns its largest memory."""
        self.assert_exit(DONE, self.measured("cairn", "checkpoint", *arguments), seconds=120)
        return self.measured_bytes()

    def check(self, what, more):
        """`more`: the memory that something took beyond what its program takes without it."""
        print(f"{what}: {more / 1e6:.0f} MB for a table of {TABLE / 1e6:.0f} MB", file=sys.stderr)
        with self.subTest(what):
            self.assertLess(more, MOST)

    def test_no_program_holds_a_table(self):
        without = self.train(1, servers=2)
        self.check("a checkpoint is saved", self.train(1, "--train_dir=train", servers=2) - without)
        consolidated = self.command("consolidate", "train", "-o", "one.safetensors")
        self.check("cairn checkpoint consolidate", consolidated - self.command("show", "train"))
        one = self.directory / "one.safetensors"
        self.assertGreater(one.stat().st_size, TABLE)
        one.unlink()
        # On another number of servers.
        self.check("a checkpoint is restored", self.train(2, "--resume=train", servers=1) - without)
        self.check("--save_best", self.train(1, "--save_best=best.safetensors", "--monitor=loss", servers=1) - without)
        self.assertGreater((self.directory / "best.safetensors").stat().st_size, TABLE)


if __name__ == "__main__":
    main()
