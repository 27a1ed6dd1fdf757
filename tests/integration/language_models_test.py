"""Models of language: training on files of tokens, their perplexity, and generated text."""

import json
import math
import struct

from harness import DONE, REPOSITORY, USAGE, IntegrationTest, main, read_summary

KERAS_HUB = REPOSITORY / "tests/support/data/keras_hub"
LETTERS = "\n .abcdefghijklmnopqrstuvwxyz"


class LanguageModelsTest(IntegrationTest):

    def train(self, *flags):
        self.assert_exit(DONE, self.run_to_end("cairn", "synthetic", "text", "text", "--rows=8000", "--test_rows=2000",
                                               "--words=16"))
        run = self.run_to_end("cairn", "train", REPOSITORY / "deploy/examples/char_gpt.json", "--data_dir=text", "--ps=1", "--workers=1",
                              "--threads=1", "--sync_replicas", "--batch_size=16", "--epochs=2", "--summary=out.json",
                              *flags)
        self.assert_exit(DONE, run)
        return read_summary(self.directory / "out.json")

    def generate(self, *flags):
        return self.run_to_end("cairn", "predict", "run", "--generate=70", *flags)

    def translate(self, *flags):
        return self.run_to_end("cairn", "predict", KERAS_HUB / "translation.keras", "source.npy", "--generate=6", *flags)

    def write_ids(self, name, shape, *ids):
        header = f"{{'descr': '<u2', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        (self.directory / name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                                            struct.pack(f"<{len(ids)}H", *ids))

    def test_a_model_learns_from_tokens_and_continues_a_prompt(self):
        summary = self.train("--train_dir=run")
        metrics = summary["metrics"]
        self.assertEqual(summary["examples"], 2 * (7999 // 64))
        self.assertAlmostEqual(metrics["val_perplexity"], math.exp(metrics["val_loss"]), places=3)
        self.assertLess(metrics["val_perplexity"], 27)
        vocabulary = json.loads((self.directory / "run/tokens.json").read_text())["vocabulary"]
        self.assertEqual(vocabulary, list(LETTERS))

        run = self.generate("--prompt=ba")
        self.assert_exit(DONE, run)
        self.assertEqual(len(run.stdout), 2 + 70 + 1, "more than one window, and a line break")
        self.assertTrue(run.stdout.startswith("ba"))
        (self.directory / "prompt.txt").write_text("ba")
        self.assertEqual(self.generate("prompt.txt").stdout, run.stdout)
        self.write_ids("prompt.npy", "(2,)", 4, 3)
        self.assertEqual(self.generate("prompt.npy").stdout, run.stdout)
        self.write_ids("prompts.npy", "(2, 2)", 4, 3, 4, 3)
        self.assertEqual(self.generate("prompts.npy").stdout, run.stdout * 2)
        dropped = self.generate("--prompt=ba", "--drop_tokens=32")
        self.assertEqual((len(dropped.stdout), dropped.stdout[:65]), (73, run.stdout[:65]), "one window is the same")
        self.assertEqual(len(self.generate("--prompt=ba", "--beams=2").stdout), 73)
        first = run.stdout[5]
        ended = self.generate("--prompt=ba", f"--end_id={LETTERS.index(first)}")
        self.assertEqual(ended.stdout, run.stdout[:2] + run.stdout[2:].split(first)[0] + "\n")

        drawn = self.generate("--prompt=ba", "--temperature=2", "--seed=3")
        self.assertEqual(self.generate("--prompt=ba", "--temperature=2", "--seed=3").stdout, drawn.stdout)
        self.assertNotEqual(drawn.stdout, run.stdout)

        for fault, flags in [("--prompt: no token of the vocabulary begins at byte 2, 'X'", ["--prompt=baX"]),
                             ("INPUTS is required", []),
                             ("--generate takes one prompt", ["--prompt=a", "prompt.txt"]),
                             ("--drop_tokens", ["--prompt=a", "--drop_tokens=0"]),
                             ("cannot drop 65 tokens of a window of 64", ["--prompt=a", "--drop_tokens=65"]),
                             ("the model has no encoder", ["prompt.npy", "--start_id=1"]),
                             ("--top_k requires --temperature", ["--prompt=a", "--top_k=2"])]:
            refused = self.generate(*flags)
            self.assert_exit(USAGE, refused)
            self.assertIn(fault, refused.stderr)

    def test_a_decoder_continues_what_an_encoder_reads(self):
        self.write_ids("source.npy", "(3, 5)", 3, 8, 4, 5, 7, 6, 1, 0, 0, 0, 2, 2, 5, 0, 0)
        for beams in (1, 3):
            recorded = next(entry for entry in json.loads((KERAS_HUB / "generated.json").read_text())
                            if entry["name"] == "translation" and entry["beams"] == beams)
            run = self.translate("--start_id=1", f"--beams={beams}")
            self.assert_exit(DONE, run)
            self.assertEqual([list(map(int, line.split())) for line in run.stdout.splitlines()], recorded["rows"])
        self.assertEqual(self.translate("--start_id=1", "--end_id=0").stdout.split(), ["4", "4", "4", "4"])
        refused = self.translate()
        self.assert_exit(USAGE, refused)
        self.assertIn("the model has an encoder: give what it reads, with --source_vocabulary or --start_id", refused.stderr)

    def test_sentences_are_translated(self):
        ids = [(3, 8, 4, 5, 7), (6, 1), (2, 2, 5)]
        self.write_ids("source.npy", "(3, 5)", *ids[0], *ids[1], 0, 0, 0, *ids[2], 0, 0)
        source = ["", "[UNK]", *(f"s{i}" for i in range(2, 9))]
        target = ["[PAD]", "[START]", "[END]", *(f"t{i}" for i in range(3, 9))]
        (self.directory / "source.txt").write_text("\n".join(source))
        (self.directory / "target.json").write_text(json.dumps({"vocabulary": target, "separator": " "}))
        (self.directory / "sentences.txt").write_text("".join(" ".join(source[i] for i in row) + "\n" for row in ids))
        expected = self.translate("--start_id=1", "--end_id=2", "--vocabulary=target.json")
        self.assert_exit(DONE, expected)
        plain = self.translate("--start_id=1", "--end_id=2").stdout.splitlines()
        self.assertEqual(expected.stdout.splitlines(), [" ".join(target[int(i)] for i in line.split()) for line in plain])

        def translate(*flags):
            return self.run_to_end("cairn", "predict", KERAS_HUB / "translation.keras", "--generate=6", *flags)

        texts = ["--source_vocabulary=source.txt", "--vocabulary=target.json"]
        self.assertEqual(translate("sentences.txt", *texts).stdout, expected.stdout)
        self.assertEqual(translate("--prompt=s6 unknown", *texts).stdout, expected.stdout.splitlines(keepends=True)[1])
        (self.directory / "marked.txt").write_bytes(b"\xef\xbb\xbf" + (self.directory / "sentences.txt").read_bytes())
        self.assertEqual(translate("marked.txt", *texts).stdout, expected.stdout)
        (self.directory / "short.txt").write_text("[PAD]\n[START]\n[END]\n")
        short = translate("sentences.txt", texts[0], "--vocabulary=short.txt")
        self.assert_exit(DONE, short)
        self.assertIn("warning: short.txt has 3 tokens, and the model's output 11: no others are drawn", short.stderr)
        (self.directory / "large.txt").write_text("\n".join([*source, "more"]))
        (self.directory / "strict.json").write_text('{"vocabulary": ["a", "s2"], "separator": " "}')
        for fault, flags in [("give --start_id: there is no vocabulary with the token [START]", ["sentences.txt", texts[0]]),
                             ("sentences.txt: line 1: the word 's3' is not in the vocabulary",
                              ["sentences.txt", "--source_vocabulary=strict.json", texts[1]]),
                             ("sentences.txt: a text for the encoder needs --source_vocabulary",
                              ["sentences.txt", "--start_id=1"]),
                             ("the vocabulary of the sources has 10 tokens, but the table of the model has 9 rows",
                              ["sentences.txt", "--source_vocabulary=large.txt", texts[1]]),
                             ("empty.txt: line 2: the source is empty", ["empty.txt", *texts])]:
            (self.directory / "empty.txt").write_text("s3\n\ns4\n")
            refused = translate(*flags)
            self.assert_exit(USAGE, refused)
            self.assertIn(fault, refused.stderr)


if __name__ == "__main__":
    main()
