"""`cairn checkpoint` on files that this test writes as docs/design/checkpoint-format.md specifies them."""

import json
import struct
import zlib

from harness import DONE, FAILURE, INCOMPATIBLE, USAGE, IntegrationTest, main

SHARD = "shard-{:05}-model-00001-of-00001.safetensors"
# Rows [begin, end) lie on two servers, each with values and one slot.
KERNEL = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
BIAS = [7.0, 8.0]
SERVERS = [
    {"dense/kernel": ([3, 2], 0, 2, KERNEL[0] + KERNEL[1])},
    {"dense/kernel": ([3, 2], 2, 3, KERNEL[2]), "dense/bias": ([2], 0, 2, BIAS)},
]


def shard(tensors):
    """The bytes of one file, and its entry in state.json without its name."""
    header, sharding, data, entries = {}, {}, b"", []
    for name, (shape, begin, end, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [end - begin, *shape[1:]],
                        "data_offsets": [len(data), len(data) + len(packed)]}
        sharding[name] = {"saved_offsets": [begin] + [0] * (len(shape) - 1)}
        entries.append({"name": name, "shape": shape, "row_begin": begin, "row_end": end,
                        "crc32": zlib.crc32(packed)})
        data += packed
    header["__metadata__"] = {"DCP_SHARDING_INFO": json.dumps(sharding)}
    text = json.dumps(header).encode()
    head = struct.pack("<Q", len(text)) + text
    return head + data, {"bytes": len(head + data), "head_bytes": len(head), "head_crc32": zlib.crc32(head),
                         "tensors": entries}


def write_checkpoint(train_dir, step):
    directory = train_dir / "checkpoints" / f"step-{step:08}"
    directory.mkdir(parents=True)
    model = b'{"class_name": "Sequential"}'
    (directory / "model.json").write_bytes(model)
    files = []
    for number, variables in enumerate(SERVERS, 1):
        slots = {f"slot/momentum/{name}": (*place, [-value for value in values])
                 for name, (*place, values) in variables.items()}
        name = SHARD.format(number)
        content, entry = shard({**variables, **slots})
        (directory / name).write_bytes(content)
        files.append({"name": name, **entry})
    state = {"format": 1, "global_step": step, "mode": "sync", "run_id": "r", "model_sha256": "s", "optimizer": "SGD",
             "hyperparameters": {"momentum": 0.5}, "slots": ["momentum"], "learning_rate": None, "seed": 1,
             "batch_size": 64, "num_workers": 2, "final_version": 5000, "epochs": 3, "positions": [], "examples": 9,
             "accepted": 8, "stale": 7, "duplicate": 6, "rejected": 5, "staleness_max": 1,
             "staleness_histogram": [7, 1], "saved_at": 1234567890.5, "model_bytes": len(model),
             "model_crc32": zlib.crc32(model), "files": files}
    body = json.dumps(state)[:-1].encode()
    (directory / "state.json").write_bytes(body + b',\n "crc32": "%08x"\n}\n' % zlib.crc32(body))
    return directory


def damage(path, tensor):
    """Changes the last byte of a tensor's values."""
    content = bytearray(path.read_bytes())
    length, = struct.unpack("<Q", content[:8])
    content[8 + length + json.loads(content[8:8 + length])[tensor]["data_offsets"][1] - 1] ^= 1
    path.write_bytes(content)


def read_safetensors(path):
    file = path.read_bytes()
    length, = struct.unpack("<Q", file[:8])
    header, data = json.loads(file[8:8 + length]), file[8 + length:]
    metadata = header.pop("__metadata__")
    return metadata, {name: (tensor["shape"], [value for value, in struct.iter_unpack(
        "<f", data[slice(*tensor["data_offsets"])])]) for name, tensor in header.items()}


class CheckpointTest(IntegrationTest):

    def setUp(self):
        super().setUp()
        self.train_dir = self.directory / "job"
        self.old = write_checkpoint(self.train_dir, 1000)
        self.new = write_checkpoint(self.train_dir, 2000)

    def checkpoint(self, *arguments):
        return self.run_to_end("cairn", "checkpoint", *arguments)

    def test_list_prints_a_line_for_each_checkpoint(self):
        size = sum(path.stat().st_size for path in self.old.glob("*.safetensors"))
        (self.new / "state.json").unlink()
        (self.train_dir / "checkpoints" / "step-00003000.tmp-1").mkdir()
        run = self.checkpoint("list", self.train_dir)
        self.assert_exit(DONE, run)
        lines = run.stdout.splitlines()
        self.assertEqual(lines[0], f"1000\t2009-02-13 23:31:30\t{size}\tok")
        self.assertRegex(lines[1], r"^2000\t-\t-\tDATA_LOSS: cannot open .*state\.json: No such file")
        self.assertEqual(len(lines), 2)

    def test_list_reads_every_byte_and_reports_damage(self):
        damage(self.new / SHARD.format(2), "slot/momentum/dense/bias")
        run = self.checkpoint("list", self.train_dir)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stdout, r"(?m)^1000\t.*\tok\n2000\t.*\tDATA_LOSS: shard-00002\S+: "
                                     r"tensor 'slot/momentum/dense/bias': it is damaged")
        quick = self.checkpoint("list", "--quick", self.train_dir)
        self.assert_exit(DONE, quick)
        self.assertRegex(quick.stdout, r"^1000\t.*\tnot verified\n2000\t.*\tnot verified\n$")

    def test_show_prints_the_run_and_every_tensor(self):
        for directory in (self.train_dir, self.new):
            run = self.checkpoint("show", directory)
            self.assert_exit(DONE, run)
            for line in [rf"checkpoint +{self.new}", r"global_step +2000", r"saved_at +2009-02-13 23:31:30 UTC",
                         r"  momentum +0\.5", r"gradients +8 accepted, 7 stale, 6 duplicate",
                         r"dense/kernel +\[3,2\] +24 +2", r"slot/momentum/dense/bias +\[2\] +8 +1"]:
                self.assertRegex(run.stdout, rf"(?m)^{line}$")

    def test_verify_reads_every_byte_and_names_what_is_damaged(self):
        run = self.checkpoint("verify", self.train_dir)
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, f"{self.old}: ok\n{self.new}: ok\n")
        damage(self.old / SHARD.format(2), "slot/momentum/dense/bias")
        run = self.checkpoint("verify", self.train_dir)
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stdout, rf"{self.old}: DATA_LOSS: shard-00002\S+: tensor 'slot/momentum/dense/bias': "
                                     rf"it is damaged: .*\n{self.new}: ok\n")
        self.assert_exit(DONE, self.checkpoint("verify", self.new))
        self.assert_exit(FAILURE, self.checkpoint("verify", self.old))

    def test_consolidate_joins_the_rows_and_leaves_slots_out(self):
        path = self.directory / "model.safetensors"
        self.assert_exit(DONE, self.checkpoint("consolidate", self.old, "-o", path))
        metadata, tensors = read_safetensors(path)
        self.assertEqual(metadata, {"format": "pt", "global_step": "1000"})
        self.assertEqual(tensors, {"dense/kernel": ([3, 2], sum(KERNEL, [])), "dense/bias": ([2], BIAS)})

    def test_consolidate_takes_the_newest_complete_checkpoint(self):
        damage(self.new / SHARD.format(1), "slot/momentum/dense/kernel")
        path = self.directory / "model.safetensors"
        run = self.checkpoint("consolidate", self.train_dir, "--output", path)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stderr, rf"^cairn checkpoint: skipped {self.new}: shard-00001.* is damaged.*\n$")
        self.assertEqual(read_safetensors(path)[0]["global_step"], "1000")

    def test_a_damaged_checkpoint_is_not_consolidated(self):
        damage(self.new / SHARD.format(1), "dense/kernel")
        path = self.directory / "model.safetensors"
        run = self.checkpoint("consolidate", self.new, "-o", path)
        self.assert_exit(INCOMPATIBLE, run)
        self.assertRegex(run.stderr, rf"^cairn checkpoint: {self.new}: shard-00001\S+: tensor 'dense/kernel': it is damaged")
        self.assertFalse(path.exists())

    def test_a_directory_without_a_checkpoint_is_refused(self):
        self.assert_refused(self.checkpoint("show", self.directory / "missing"), "DIR: there is no directory '.*missing'")
        self.assert_refused(self.checkpoint("consolidate", self.old, "-o", self.directory), "--output: .*Is a directory")
        self.assertEqual(self.checkpoint("consolidate", self.old).code, USAGE)
        run = self.checkpoint("list", self.directory)
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stderr, rf"^cairn checkpoint: there is no checkpoint in {self.directory}\n$")


if __name__ == "__main__":
    main()
