#!/usr/bin/env python3
"""The examples for Python learn from small data."""

import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

import support  # noqa: F401
from harness import BIN_DIR, REPOSITORY

EXAMPLES = REPOSITORY / "deploy/examples/python"
SECONDS = 300


class ExamplesTest(unittest.TestCase):

    def run_example(self, name, *flags, setup=lambda folder: None):
        """The output of the example, run by `cairn run` with two workers in a folder of its own."""
        environment = {**os.environ, "PATH": f"{BIN_DIR}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        with tempfile.TemporaryDirectory() as folder:
            setup(pathlib.Path(folder))
            done = subprocess.run([BIN_DIR / "cairn", "run", "--ps", "1", "--workers", "2", EXAMPLES / name, *map(str, flags)],
                                  cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def test_dlrm_learns_the_hidden_model_of_clicks(self):
        def setup(folder):
            subprocess.run([BIN_DIR / "cairn", "synthetic", "ctr", "ctr", "--rows", "30000", "--test_rows", "4000", "--scale",
                            "0.0001"], cwd=folder, check=True, capture_output=True, timeout=SECONDS)
        output = self.run_example("dlrm.py", "--data", "ctr", "--batch_size", 128, "--epochs", 1, setup=setup)
        auc = float(re.search(r"AUC (\S+),", output).group(1))
        self.assertGreater(auc, 0.65, output)  # 0.5 without training

    def test_two_tower_finds_the_films_of_a_users_kind(self):
        def setup(folder):
            data = folder / "ml-100k"
            data.mkdir()
            rows = random.Random(1)
            films = {film: "Comedy" if film % 2 else "Drama War" for film in range(1, 201)}
            (data / "ml-100k.user").write_text("user_id:token\tage:token\tgender:token\toccupation:token\n" + "".join(
                f"{user}\t{20 + user % 40}\t{'FM'[user % 2]}\tartist\n" for user in range(1, 101)))
            (data / "ml-100k.item").write_text("item_id:token\tmovie_title:token_seq\tclass:token_seq\n" + "".join(
                f"{film}\tFilm {film}\t{genre}\n" for film, genre in films.items()))
            for part, count in (("train", 4000), ("test", 500)):
                lines = ["user_id:token\titem_id:token\trating:float"]
                for _ in range(count):  # a user likes the films of one genre
                    user = rows.randint(1, 100)
                    lines.append(f"{user}\t{2 * rows.randint(1, 100) - user % 2}\t5")
                (data / f"{part}.inter").write_text("\n".join(lines) + "\n")
        output = self.run_example("two_tower.py", "--batch_size", 64, "--epochs", 4, setup=setup)
        rate = float(re.search(r"HitRate@10 (\S+)", output).group(1))
        self.assertGreater(rate, 0.08, output)  # 0.05 without training


if __name__ == "__main__":
    unittest.main()
