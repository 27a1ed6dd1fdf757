"""Placement on devices: what is logged and what is refused. No GPU is visible to these tests, on any machine."""

import json
import re

from harness import DONE, MLP, IntegrationTest, main, read_summary, small_data

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
WORKER = ("cairn-worker", "--job_name=worker", "--task_index=0", "--ps_hosts=127.0.0.1:1",
          "--worker_hosts=127.0.0.1:2", "--model", MLP, "--data_dir")


class DevicesTest(IntegrationTest):

    def test_cairn_devices_lists_the_cpu_and_reports_why_there_is_no_gpu(self):
        run = self.run_to_end("cairn", "devices", env=NO_GPU)
        self.assert_exit(DONE, run)
        self.assertEqual(run.stderr, "")
        self.assertRegex(run.stdout, r"^/cpu:0: .* GiB of memory\nno usable GPU: .*\n$")

    def test_a_gpu_that_does_not_exist_is_refused_with_the_devices_that_do(self):
        run = self.run_to_end(*WORKER, small_data(), "--device=/gpu:0", env=NO_GPU)
        self.assert_refused(run, r"^cairn-worker: --device: there is no /gpu:0 \(no usable GPU: .*\); "
                                 r"available: /cpu:0\n$")

    def test_a_device_of_another_task_is_refused(self):
        run = self.run_to_end(*WORKER, small_data(), "--device=/job:worker/task:1/device:GPU:0", env=NO_GPU)
        self.assert_refused(run, "--device: '/job:worker/task:1/device:GPU:0' belongs to another task, this is worker/0")

    def test_float16_is_refused_without_a_gpu(self):
        run = self.run_to_end(*WORKER, small_data(), "--precision=fp16", env=NO_GPU)
        self.assert_refused(run, "--precision: fp16 needs a GPU, and this is /cpu:0: no usable GPU: ")

    def test_bfloat16_trains_on_a_processor_that_has_it(self):
        run = self.train(MLP, "--precision=bf16", "--train_steps=20", "--summary=out.json", env=NO_GPU)
        if re.search(r"bf16 needs a GPU, or a processor with AVX-512 BF16 or AMX", run.stderr):
            self.skipTest("this processor has no bfloat16")
        self.assert_exit(DONE, run)
        rounded = read_summary(self.directory / "out.json")
        self.assert_exit(DONE, self.train(MLP, "--train_steps=20", "--summary=exact.json", env=NO_GPU))
        exact = read_summary(self.directory / "exact.json")
        self.assertNotEqual(rounded["loss"], exact["loss"])
        self.assertAlmostEqual(rounded["loss"], exact["loss"], delta=0.02 * exact["loss"])

    def test_soft_placement_trains_on_the_cpu_and_warns(self):
        run = self.train(MLP, "--device=/gpu:0", "--allow_soft_placement", "--train_steps=2",
                         "--summary=out.json", env=NO_GPU)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stderr, r"worker/0\] there is no /gpu:0 .*; available: /cpu:0")
        self.assertEqual(read_summary(self.directory / "out.json")["device"], "/cpu:0")

    def test_placement_is_logged_layer_by_layer(self):
        run = self.train(MLP, "--log_device_placement", "--workers=2", "--train_steps=2", env=NO_GPU)
        self.assert_exit(DONE, run)
        for worker in (0, 1):
            placed = re.findall(rf"worker/{worker}\] (\w+): \((\w+)\): /job:worker/task:{worker}/device:CPU:0",
                                run.stderr)
            self.assertEqual([layer for _, layer in placed], ["Flatten", "Dense", "Dense"])


    def test_cpu_devices_divide_the_processor(self):
        run = self.run_to_end("cairn", "devices", "--cpu_devices=2", env=NO_GPU)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stdout, r"^/cpu:0: .*\n/cpu:1: .*\nno usable GPU: .*\n$")

    def test_json_lists_physical_and_logical_devices(self):
        run = self.run_to_end("cairn", "devices", "--json", "--cpu_devices=2", env=NO_GPU)
        self.assert_exit(DONE, run)
        document = json.loads(run.stdout)
        self.assertEqual(document["logical_devices"], [{"name": "/device:CPU:0", "device_type": "CPU"},
                                                       {"name": "/device:CPU:1", "device_type": "CPU"}])
        [cpu] = document["physical_devices"]
        self.assertEqual((cpu["name"], cpu["device_type"]), ("/physical_device:CPU:0", "CPU"))
        self.assertGreater(cpu["memory_total_bytes"], 0)
        self.assertIn("no usable GPU", document["no_gpu"])

    def trained(self, *flags, model=MLP):
        """The result of a synchronous job of twenty steps."""
        run = self.train(model, "--sync_replicas", "--train_steps=20", "--novalidation", "--summary=out.json", *flags,
                         env=NO_GPU)
        self.assert_exit(DONE, run)
        return read_summary(self.directory / "out.json")

    def test_mirrored_devices_train_like_one(self):
        alone = self.trained()
        for flags in (["--mirrored"], ["--devices=/cpu:1,/cpu:0"]):
            both = self.trained("--cpu_devices=2", *flags)
            self.assertEqual(sorted(both["device"].split(",")), ["/cpu:0", "/cpu:1"])
            self.assertEqual(both["examples"], alone["examples"])
            self.assertAlmostEqual(both["loss"], alone["loss"], delta=1e-5)

    def test_layers_on_two_devices_train_like_those_on_one(self):
        alone = self.trained()
        one_piece = self.trained("--cpu_devices=2", "--place=dense*=/cpu:1", "--micro_batches=1")
        self.assertEqual(one_piece["parameters_sha256"], alone["parameters_sha256"])
        self.assertEqual(one_piece["device"], "/cpu:0,/cpu:1")
        pieces = self.trained("--cpu_devices=2", "--place=dense*=/cpu:1")
        self.assertAlmostEqual(pieces["loss"], alone["loss"], delta=1e-5)

    def test_placement_of_layers_and_variables_is_logged(self):
        run = self.train(MLP, "--log_device_placement", "--ps=2", "--train_steps=2", "--cpu_devices=2",
                         "--place", "*=/cpu:1", "--place", "dense_1=/cpu:0", env=NO_GPU)
        self.assert_exit(DONE, run)
        for line in (r"dense: \(Dense\): /job:worker/task:0/device:CPU:1", r"dense_1: \(Dense\): .*/device:CPU:0",
                     r"layer 'dense_1': --place 'dense_1=/cpu:0' overrides the earlier '\*=/cpu:1'",
                     r"dense/kernel: \[784,128\].* bytes on /job:ps/task:[01]", r"/job:ps/task:1: \d+ bytes in",
                     r"the fullest server holds \d\.\d+ times the mean"):
            self.assertRegex(run.stderr, line)

    def test_a_layer_on_a_device_that_does_not_exist_is_refused_in_tensorflows_words(self):
        run = self.run_to_end(*WORKER, small_data(), "--place=dense=/gpu:1", env=NO_GPU)
        self.assert_refused(run, r"Cannot assign a device for layer 'dense' \(Dense\): it was explicitly assigned to "
                                 r"/device:GPU:1 but available devices are \[ /job:worker/replica:0/task:0/device:CPU:0 \]")

    def test_soft_placement_of_a_layer_warns_and_trains(self):
        run = self.train(MLP, "--place=dense=/gpu:1", "--allow_soft_placement", "--train_steps=2", env=NO_GPU)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stderr, r"layer 'dense': there is no /gpu:1 .*; it is on /cpu:0")

    def test_matrix_powers_run_on_two_devices(self):
        run = self.run_to_end("cairn", "matpow", "--size=64", "--power=5", "--cpu_devices=2", "--devices=/cpu:0,/cpu:1",
                              "--sum_device=/cpu:1", "--log_device_placement", env=NO_GPU)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stderr, r"a\^n: /cpu:0: .*\nb\^n: /cpu:1: .*\nsum: /cpu:1: ")
        error = re.search(r"^A\^5 \+ B\^5, 64 x 64: .* rows differ by (\S+) from their sums in double\n$", run.stdout)
        self.assertLess(float(error.group(1)), 1e-5)

    def test_matrix_powers_refuse_a_device_that_does_not_exist(self):
        run = self.run_to_end("cairn", "matpow", "--size=8", "--devices=/gpu:0", env=NO_GPU)
        self.assert_refused(run, r"^cairn matpow: --devices: there is no /gpu:0 .*; available: /cpu:0\n$")
        run = self.run_to_end("cairn", "matpow", "--size=8", "--devices=/gpu:0", "--allow_soft_placement", env=NO_GPU)
        self.assert_exit(DONE, run)
        self.assertIn("it is on /cpu:0", run.stderr)


if __name__ == "__main__":
    main()
