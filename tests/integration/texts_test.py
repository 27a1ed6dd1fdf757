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
        archive = self.run_to_end("cairn", "model", "adapt", "model.json", "--data_dir=reviews", "--out=again.keras")
        self.assert_exit(USAGE, archive)
        self.assertIn("--out: the model is written as JSON, not as a .keras file", archive.stderr)
        self.assertFalse((self.directory / "again.json").exists())
        self.assert_exit(USAGE, self.run_to_end("cairn", "model"))

    def test_names_are_found_by_their_context(self):
        run = self.cairn("synthetic", "entities", "entities", "--rows=2000", "--test_rows=200", "--words=200")
        by_word = float(run.stdout.split("by each word alone")[1])
        self.assertGreater(self.metrics_of(EXAMPLES / "entities.json", "entities", "--epochs=3")["val_accuracy"],
                           by_word + 0.05)

    def test_outputs_with_a_mask_are_predicted(self):
        self.cairn("synthetic", "entities", "entities", "--rows=200", "--test_rows=50", "--words=200")
        self.cairn("train", EXAMPLES / "entities.json", "--data_dir=entities", "--workers=1", "--sync_replicas",
                   "--epochs=1", "--export_dir=out")
        predict = ["predict", "out/model.safetensors", "entities/x_test.npy", "--model=out/model.json"]
        self.cairn(*predict, "--output=alone.npy")
        self.cairn(*predict, "--labels=entities/y_test.npy", "--output=labelled.npy")
        alone, labelled = [(self.directory / name).read_bytes() for name in ("alone.npy", "labelled.npy")]
        self.assertEqual(alone, labelled)

    def open_tagger(self, *replacements):
        """The model of the example, with sequences of any length."""
        text = (EXAMPLES / "entities.json").read_text()
        for old, new in [('"batch_shape": [null, 24]', '"batch_shape": [null, null]'), *replacements]:
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.directory / "tagger.json").write_text(text)
        return "tagger.json"

    def test_batches_of_like_lengths_have_the_losses_of_padded_ones(self):
        self.cairn("synthetic", "entities", "entities", "--rows=200", "--test_rows=100", "--words=200")
        model = self.open_tagger()
        # Batches of one example are in one order with and without buckets. The loss of an evaluation is a mean over
        # batches, which are others.
        plain = self.metrics_of(model, "entities", "--batch_size=1")
        buckets = self.metrics_of(model, "entities", "--batch_size=1", "--bucket_boundaries=6,8,12")
        for name in ("loss", "accuracy", "val_accuracy"):
            self.assertAlmostEqual(buckets[name], plain[name], 5, name)

    def test_a_job_with_buckets_resumes_where_it_was(self):
        self.cairn("synthetic", "entities", "entities", "--rows=300", "--test_rows=50", "--words=200")
        model = self.open_tagger()

        def parameters(epochs, *flags):
            run = self.cairn("train", model, "--data_dir=entities", "--workers=2", "--threads=1", "--sync_replicas",
                             "--batch_size=8", "--bucket_boundaries=8,12,16", f"--epochs={epochs}",
                             "--summary=out.json", *flags)
            self.assertEqual(read_summary(self.directory / "out.json")["examples"], 300 * epochs, run.stderr)
            return read_summary(self.directory / "out.json")["parameters_sha256"]

        whole = parameters(3)
        parameters(1, "--train_dir=run")
        self.cairn("train", model, "--data_dir=entities", "--workers=2", "--threads=1", "--sync_replicas",
                   "--batch_size=8", "--bucket_boundaries=8,12,16", "--epochs=3", "--summary=out.json",
                   "--train_dir=run")
        self.assertEqual(read_summary(self.directory / "out.json")["parameters_sha256"], whole)
        self.cairn("train", model, "--data_dir=entities", "--workers=2", "--threads=1", "--data_sharding=dynamic",
                   "--batch_size=8", "--bucket_boundaries=8,12,16", "--epochs=2", "--summary=out.json")
        self.assertEqual(read_summary(self.directory / "out.json")["examples"], 600)

    def test_texts_have_buckets(self):
        self.cairn("synthetic", "reviews", "reviews", "--rows=1000", "--test_rows=100", "--words=200")
        self.cairn("model", "adapt", EXAMPLES / "sentiment.json", "--data_dir=reviews", "--out=model.json")
        plain = self.metrics_of("model.json", "reviews", "--batch_size=1")
        buckets = self.metrics_of("model.json", "reviews", "--batch_size=1", "--bucket_boundaries=10,20,30")
        for name, value in plain.items():
            self.assertAlmostEqual(buckets[name], value, 4, name)

    def test_buckets_that_do_not_fit_the_model_are_refused(self):
        self.cairn("synthetic", "entities", "entities", "--rows=100", "--test_rows=20", "--words=200")
        for model, boundaries, fault in [
                (EXAMPLES / "entities.json", "8", "for sequences of 8 steps: no input would be shorter"),
                (self.open_tagger(), "12,8", "'8' is not a whole number above 12"),
                (self.open_tagger(), "8,24", "for sequences of 24 steps: no input would be shorter")]:
            self.assert_refused(self.run_to_end("cairn", "train", model, "--data_dir=entities",
                                                f"--bucket_boundaries={boundaries}"), fault)
        model = self.open_tagger(('"mask_zero": true', '"mask_zero": false'))
        self.assert_refused(self.run_to_end("cairn", "train", model, "--data_dir=entities", "--bucket_boundaries=8"),
                            "the loss of output 'tags' would count the steps of padding: mask them")
        model = self.open_tagger()
        for flag, fault in [("--embedding_tables=all", "batches of several lengths are not supported with embedding"),
                            ("--micro_batches=2", "divided over devices or workers takes batches of one length")]:
            run = self.run_to_end("cairn", "train", model, "--data_dir=entities", "--bucket_boundaries=8", flag)
            self.assert_exit(USAGE, run)
            self.assertIn(fault, run.stderr)

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
