"""Which device a worker computes on, told and refused. Here no GPU is visible, whatever the machine has."""

import re

from harness import DONE, MLP, IntegrationTest, main, read_summary, small_data

NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
WORKER = ("cairn-worker", "--job_name=worker", "--task_index=0", "--ps_hosts=127.0.0.1:1",
          "--worker_hosts=127.0.0.1:2", "--model", MLP, "--data_dir")


class DevicesTest(IntegrationTest):

    def test_cairn_devices_lists_the_cpu_and_says_why_there_is_no_gpu(self):
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
        self.assert_refused(run, "--device: '/job:worker/task:1/device:GPU:0' is of another task, this is worker/0")

    def test_sixteen_bits_are_refused_where_no_gpu_is_found(self):
        run = self.run_to_end(*WORKER, small_data(), "--precision=bf16", env=NO_GPU)
        self.assert_refused(run, "--precision: bf16 needs a GPU, and this is /cpu:0: no usable GPU: ")

    def test_soft_placement_trains_on_the_cpu_and_warns(self):
        run = self.train(MLP, "--device=/gpu:0", "--allow_soft_placement", "--train_steps=2",
                         "--summary=out.json", env=NO_GPU)
        self.assert_exit(DONE, run)
        self.assertRegex(run.stderr, r"worker/0\] there is no /gpu:0 .*; available: /cpu:0")
        self.assertEqual(read_summary(self.directory / "out.json")["device"], "/cpu:0")

    def test_placement_is_told_layer_by_layer(self):
        run = self.train(MLP, "--log_device_placement", "--workers=2", "--train_steps=2", env=NO_GPU)
        self.assert_exit(DONE, run)
        for worker in (0, 1):
            placed = re.findall(rf"worker/{worker}\] (\w+): \((\w+)\): /job:worker/task:{worker}/device:CPU:0",
                                run.stderr)
            self.assertEqual([layer for _, layer in placed], ["Flatten", "Dense", "Dense"])


if __name__ == "__main__":
    main()
