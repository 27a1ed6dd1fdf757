"""Models of texts: generated sets, vocabularies from a training set, and training on them."""

import json

from harness import DONE, REPOSITORY, USAGE, IntegrationTest, main, read_summary

EXAMPLES = REPOSITORY / "deploy/examples"


class TextsTest(IntegrationTest):

    def cairn(self, *arguments):
        run = self.run_to_end("cairn", *arguments)
        self.assert_exit(DONE, run)
        return run

    def metrics_of(self, model, data, *flags):
        self.cairn("train", model, f"--data_dir={data}", "--workers=1", "--threads=1", "--sync_replicas",
                   "--summary=out.json", *flags)
        return read_summary(self.directory / "out.json")["metrics"]

    def test_reviews_are_classified_after_the_vocabulary_was_found(self):
        self.assertIn("best possible on the test set: accuracy 0.", self.cairn(
            "synthetic", "reviews", "reviews", "--rows=4000", "--test_rows=500", "--words=200").stdout)
        refused = self.run_to_end("cairn", "train", EXAMPLES / "sentiment.json", "--data_dir=reviews")
        self.assert_exit(USAGE, refused)
        self.assertIn("layer 'words' (TextVectorization)", refused.stderr)
        self.assertIn("`cairn model adapt`", refused.stderr)
        adapted = self.cairn("model", "adapt", EXAMPLES / "sentiment.json", "--data_dir=reviews", "--out=model.json")
        self.assertIn("layer 'words' (TextVectorization): ", adapted.stdout)
        metrics = self.metrics_of("model.json", "reviews", "--epochs=4", "--export_dir=out")
        self.assertGreater(metrics["val_accuracy"], 0.65)
        # The same reviews as a folder of files for each class.
        for line in (self.directory / "reviews/test.jsonl").read_text().splitlines()[:40]:
            review = json.loads(line)
            folder = self.directory / f"folders/train/{review['label']}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{len(list(folder.iterdir()))}.txt").write_text(review["text"])
        self.cairn("model", "adapt", EXAMPLES / "sentiment.json", "--data_dir=folders", "--out=folders.json")
        self.metrics_of("model.json", "folders")
        run = self.cairn("predict", "out/model.safetensors", "folders/train/1", "--model=out/model.json")
        self.assertEqual(len(run.stdout.splitlines()), len(list((self.directory / "folders/train/1").iterdir())))

    def test_a_model_that_has_its_vocabulary_is_not_adapted(self):
        self.cairn("synthetic", "reviews", "reviews", "--rows=20", "--test_rows=5")
        self.cairn("model", "adapt", EXAMPLES / "sentiment.json", "--data_dir=reviews", "--out=model.json")
        again = self.run_to_end("cairn", "model", "adapt", "model.json", "--data_dir=reviews", "--out=again.json")
        self.assert_exit(USAGE, again)
        self.assertIn("model.json: every layer has what adapt() would find", again.stderr)
        self.assertFalse((self.directory / "again.json").exists())
        self.assert_exit(USAGE, self.run_to_end("cairn", "model"))

    def test_names_are_found_by_their_context(self):
        run = self.cairn("synthetic", "entities", "entities", "--rows=2000", "--test_rows=200", "--words=200")
        by_word = float(run.stdout.split("by each word alone")[1])
        self.assertGreater(self.metrics_of(EXAMPLES / "entities.json", "entities", "--epochs=3")["val_accuracy"],
                           by_word + 0.05)

    def test_a_translation_is_learned(self):
        self.cairn("synthetic", "translation", "translation", "--rows=1000", "--test_rows=100")
        model, data = EXAMPLES / "translation.json", "translation"
        first = self.metrics_of(model, data)["val_loss"]
        self.assertLess(self.metrics_of(model, data, "--epochs=3")["val_loss"], first - 0.3)

    def test_flags_of_another_set_are_refused(self):
        for fault, flags in [("--scale: only ctr has categories", ["reviews", "d", "--scale=2"]),
                             ("--words: the words of translation are fixed", ["translation", "d", "--words=20"]),
                             ("cannot make 20 words; 100 to 20000", ["entities", "d", "--words=20"])]:
            run = self.run_to_end("cairn", "synthetic", *flags)
            self.assertNotEqual(run.code, DONE)
            self.assertIn(fault, run.stderr)


if __name__ == "__main__":
    main()
