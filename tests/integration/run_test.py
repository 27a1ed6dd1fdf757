"""`cairn run`: servers and copies of any program, which finds its place in the environment."""

import json
import os
import signal
import time

from harness import (BIN_DIR, DONE, FAILURE, INTERRUPTED, MLP, RETRYABLE, TERMINATED, USAGE, IntegrationTest, main, read_summary,
                     small_data)

PLACE = """\
import json, os
names = "CAIRN_SERVERS RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TF_CONFIG OMP_NUM_THREADS"
print(json.dumps({name: os.environ.get(name) for name in names.split()}))
"""
# Waits until the test makes the file "go".
WAITS = """\
import os, pathlib, time
print("ready", os.environ["RANK"])
while not pathlib.Path("go").exists():
    time.sleep(0.02)
print("done", os.environ["RANK"])
"""
FOUND = "kernel 1.00 2.00 -3.00, bias 0.50"


class RunTest(IntegrationTest):

    def program(self, text, name="train.py"):
        (self.directory / name).write_text(text)
        return name

    def start_run(self, *arguments, **options):
        return self.start("cairn", "run", *arguments, **options)

    def start_waiting(self, *flags):
        """A job of two workers that wait for the file "go"."""
        run = self.start_run("--workers=2", *flags, self.program(WAITS))
        for rank in (0, 1):
            self.assert_says(run, f"ready {rank}$")
        return run

    def pids_of(self, word):
        """Ids of the processes that have `word` in their command lines, but for the launcher."""
        found = []
        for pid in self.marked():
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                line = file.read()
            if word in line and "cairn\0run\0" not in line:
                found.append(pid)
        return found

    def lines(self, run):
        """The lines of standard output by worker."""
        found = {}
        for line in run.stdout.splitlines():
            task, text = line.split("] ", 1)
            found.setdefault(task.removeprefix("[worker/"), []).append(text)
        return found

    def test_every_worker_finds_its_place_in_the_environment(self):
        run = self.start_run("--ps=2", "--workers=3", "--threads=2", self.program(PLACE), env={"RANK": "7", "TF_CONFIG": "{}"})
        self.assert_exit(DONE, run)
        places = {worker: json.loads(texts[0]) for worker, texts in self.lines(run).items()}
        self.assertEqual(set(places), {"0", "1", "2"})
        for worker, place in places.items():
            self.assertEqual((place["RANK"], place["LOCAL_RANK"]), (worker, worker))
            self.assertEqual((place["WORLD_SIZE"], place["LOCAL_WORLD_SIZE"], place["OMP_NUM_THREADS"]), ("3", "3", "2"))
            self.assertEqual(place["MASTER_ADDR"], "127.0.0.1")
            self.assertEqual(place["MASTER_PORT"], places["0"]["MASTER_PORT"])
            config = json.loads(place["TF_CONFIG"])
            self.assertEqual(config["cluster"]["ps"], place["CAIRN_SERVERS"].split(","))
            self.assertEqual(len(set(config["cluster"]["ps"] + config["cluster"]["worker"])), 5)
            self.assertEqual(config["task"], {"type": "worker", "index": int(worker)})

    def test_workers_alone_can_listen_on_their_addresses(self):
        run = self.start_run("--ps=0", "--workers=2", self.program(
            "import os, socket\n"
            "assert os.environ['CAIRN_SERVERS'] == '' and os.environ['CAIRN_REUSE_PORT'] == '1'\n"
            "host, port = os.environ['CAIRN_WORKERS'].split(',')[int(os.environ['RANK'])].split(':')\n"
            "socket.create_server((host, int(port)), reuse_port=True).close()\n"
            "print('listened', port)\n"))
        self.assert_exit(DONE, run)
        self.assertEqual(len({text for texts in self.lines(run).values() for text in texts}), 2)

    def test_a_program_can_listen_on_the_master_port(self):
        run = self.start_run(self.program("import os, socket\n"
                                          "address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
                                          "socket.create_server(address).close()\n"))
        self.assert_exit(DONE, run)

    def test_the_arguments_of_the_program_are_its_own(self):
        run = self.start_run("--workers", "1", self.program("import sys\nprint(sys.argv[1:])\n"), "--workers", "2", "", "[1,2]",
                             "--", "--help")
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, "[worker/0] ['--workers', '2', '', '[1,2]', '--', '--help']\n")

    def test_standard_output_and_standard_error_stay_apart(self):
        run = self.start_run(self.program("import sys\nprint('a result')\nprint('a warning', file=sys.stderr)\n"))
        self.assert_exit(DONE, run)
        self.assertEqual(run.stdout, "[worker/0] a result\n")
        self.assertIn("[worker/0] a warning\n", run.stderr)

    def test_servers_that_no_worker_has_used_are_stopped(self):
        run = self.start_run("--ps=2", "--workers=2", self.program("print('no training')\n"))
        self.assert_exit(DONE, run)
        self.assertEqual(run.stderr, "cairn run: ps/0, ps/1 still ran 5 s after the last worker's end: stopping them\n")
        self.assert_nothing_runs()

    def test_training_with_the_library_ends_the_servers(self):
        started = time.monotonic()
        run = self.start_run("--ps=2", "--workers=3", BIN_DIR / "linear_model")
        self.assert_exit(DONE, run)
        self.assertLess(time.monotonic() - started, 30)
        self.assertEqual(self.lines(run), {worker: [FOUND] for worker in "012"})
        self.assertEqual(run.stderr, "")
        self.assert_nothing_runs()

    def test_cairn_worker_finds_its_place_in_tf_config(self):
        run = self.start_run("--ps=2", "--workers=2", "--", BIN_DIR / "cairn-worker", "--model", MLP, "--data_dir", small_data(),
                             "--sync_replicas", "--threads=1", "--train_steps=5", "--novalidation", "--summary=summary.json")
        self.assert_exit(DONE, run)
        summary = read_summary(self.directory / "summary.json")
        self.assertEqual((summary["ps"], summary["workers"], summary["global_step"]), (2, 2, 5))

    def test_the_exit_code_is_that_of_the_first_failure(self):
        run = self.start_run("--workers=2", self.program("import os, sys, time\n"
                                                         "if os.environ['RANK'] == '0': time.sleep(1000)\n"
                                                         "sys.exit(7)\n"))
        self.assert_exit(7, run)
        self.assertIn("cairn run: worker/1 ended with exit code 7; stopping the rest\n", run.stderr)
        self.assert_nothing_runs()

    def test_an_exception_is_shown_and_is_not_retried(self):
        run = self.start_run("--workers=2", self.program("raise ValueError('no such column')\n"))
        self.assert_exit(FAILURE, run)
        self.assertRegex(run.stderr, r"\[worker/[01]\] ValueError: no such column\n")
        self.assertNotIn("restarting", run.stderr)

    def test_a_killed_worker_is_restarted_with_its_rank(self):
        run = self.start_run("--workers=2", self.program(
            "import os, pathlib, signal\n"
            "rank, life = os.environ['RANK'], pathlib.Path('life')\n"
            "print('rank', rank, 'at', os.environ['CAIRN_SERVERS'])\n"
            "if rank == '1' and not life.exists():\n"
            "    life.touch()\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"))
        self.assert_exit(DONE, run)
        self.assertIn("cairn run: worker/1 was killed by SIGKILL: restarting it (1 of 100)\n", run.stderr)
        lines = self.lines(run)
        self.assertEqual(lines["1"], [lines["0"][0].replace("rank 0", "rank 1")] * 2)

    def test_a_killed_worker_without_restarts_ends_the_run(self):
        run = self.start_waiting("--max_restarts=0")
        os.kill(self.pids_of("train.py")[0], signal.SIGKILL)
        self.assert_exit(RETRYABLE, run)
        self.assertRegex(run.stderr, r"cairn run: worker/[01] was killed by SIGKILL; stopping the rest\n")
        self.assert_nothing_runs()

    def test_a_killed_server_is_restarted(self):
        run = self.start_waiting()
        os.kill(self.pids_of("cairn-ps")[0], signal.SIGKILL)
        self.assert_says(run, r"ps/0 was killed by SIGKILL: restarting it \(1 of 100\)")
        (self.directory / "go").touch()
        self.assert_exit(DONE, run)
        self.assertEqual(self.lines(run), {rank: [f"ready {rank}", f"done {rank}"] for rank in "01"})

    def test_a_program_with_checkpoints_outlives_the_loss_of_a_server(self):
        program = f'exec {BIN_DIR}/session_program "$CAIRN_SERVERS" "$RANK" "$WORLD_SIZE" sync checkpoints 10'
        run = self.start_run("--ps=2", "--workers=2", "--", "sh", "-c", program)
        self.assert_says(run, "saved .*step-0{5}(0[4-9]|1)")
        os.kill(self.pids_of("cairn-ps")[0], signal.SIGKILL)
        self.assert_exit(DONE, run)
        self.assertIn("resuming from update", run.stderr)
        self.assertEqual(run.stdout.count("w = 3.000 3.000\n"), 2)

    def test_an_interrupt_ends_all_tasks_at_once(self):
        run = self.start_waiting("--ps=2")
        started = time.monotonic()
        run.signal(signal.SIGINT)
        self.assert_exit(INTERRUPTED, run)
        self.assertLess(time.monotonic() - started, 8)  # a second on an idle machine; 10 s if a task had to be killed
        self.assertIn("KeyboardInterrupt", run.stderr)
        self.assertTrue(run.stderr.endswith("cairn run: stopped by SIGINT\n"), run.stderr)
        self.assert_nothing_runs()

    def test_sigterm_ends_all_tasks(self):
        run = self.start_waiting()
        run.signal(signal.SIGTERM)
        self.assert_exit(TERMINATED, run)
        self.assert_nothing_runs()

    def test_sigkill_leaves_no_task_behind(self):
        run = self.start_waiting()
        run.signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, run)
        self.assert_nothing_runs(seconds=10)

    def test_the_servers_answer_other_commands_of_the_user(self):
        run = self.start_run(self.program("import os\nprint('servers', os.environ['CAIRN_SERVERS'])\n" + WAITS))
        self.assert_says(run, "servers 127.0.0.1:")
        servers = self.lines(run)["0"][0].split()[1]
        self.assert_exit(DONE, self.start("cairn", "var", "list", f"--ps_hosts={servers}"))
        (self.directory / "go").touch()
        self.assert_exit(DONE, run)


class RunUsageTest(IntegrationTest):

    def refused(self, pattern, *arguments, **options):
        run = self.run_to_end("cairn", "run", *arguments, **options)
        self.assert_exit(USAGE, run)
        self.assert_refused(run, "^cairn run: " + pattern)

    def test_a_missing_program_is_refused(self):
        self.refused("which program[?] `cairn run --ps 1 --workers 2 train.py`", "--workers=2")

    def test_a_program_that_does_not_exist_is_refused(self):
        self.refused("nowhere.py: no such file or directory", "nowhere.py")
        self.refused("no_such_program: no such program on PATH", "no_such_program")

    def test_a_program_in_the_directory_is_named_with_its_path(self):
        (self.directory / "mine").touch()
        self.refused("mine: no such program on PATH; the one in this directory is ./mine", "mine")
        self.refused("./mine: not an executable file", "./mine")

    def test_wrong_flags_before_the_program_are_refused(self):
        self.refused("unknown flag --worker, did you mean --workers[?]", "--worker", "2", "train.py")
        self.refused("--ps: '-1' is not a whole number of at least 0", "--ps=-1", "train.py")
        self.refused("--ps_memory_limit: ", "--ps_memory_limit=many", "train.py")
        self.refused("--metrics_port: each server needs a port, but the 2 ports from 65535 on exceed port 65535",
                     "--metrics_port=65535", "--ps=2", "train.py")


if __name__ == "__main__":
    main()
