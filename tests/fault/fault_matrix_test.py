"""Every kind of task x every signal x every moment of a step: the job ends as documented, with the same bits.

The moments are points in the programs themselves (common/system/fault_points.h): a task raises the signal in itself
when it passes there. `cairn train` restarts a killed task; a stopped task continues after STOPPED seconds.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "integration"))
from harness import CNN, DONE, TERMINATED, IntegrationTest, main, small_data  # noqa: E402

STEPS = 40
STOPPED = 5  # seconds: longer than the lease
LEASE = 2
JOB = [CNN, "--ps=2", "--workers=2", "--sync_replicas", "--batch_size=32", "--seed=1", f"--train_steps={STEPS}",
       "--novalidation", "--threads=1"]
# job() replaces NAME by the name of the run.
LASTING = ["--train_dir=NAME", "--save_secs=0", "--save_steps=10", f"--lease={LEASE}", "--lost_workers=wait"]
RESTARTED = ("was killed by SIGKILL: restarting it (1 of 100)", "nothing was killed")

# Points of a server: started without a job; the first pull; the middle of a push; between an update and its answer;
# while it keeps a snapshot; the last step.
SERVER = ["started:1", "read:1", "push:15", "applied:15", "snapshot:2", f"applied:{STEPS}"]
# Points of a server whose shard has a backup: the first pull; the middle of a push; between an update and its answer.
REPLICATED = ["read:2", "push:15", "applied:15"]
# The same for an update that exchanges norms twice with the other server, including the moments before it reports its
# sums.
MEASURED = ["push:15", "measured:29", "measured:30", "applied:15"]
NORMS = ["--optimizer=lamb", "--global_clipnorm=0.1"]
# Points of a worker: started; before its first step; with some of its gradients sent; with all of them sent; after an
# answer; the last step.
WORKER = ["started:1", "joined:1", "announced:100", "computed:15", "answered:15", f"computed:{STEPS}"]
TASKS = {"ps/0": SERVER, "ps/1": SERVER, "worker/0": WORKER + ["snapshot:2"], "worker/1": WORKER}


class FaultMatrixTest(IntegrationTest):

    def job(self, name, *flags):
        return self.start("cairn", "train", *JOB, "--data_dir", small_data(), f"--summary={name}.json",
                          *(flag.replace("NAME", name) for flag in flags), name=name)

    def sha_of(self, name):
        return json.loads((self.directory / f"{name}.json").read_text())["parameters_sha256"]

    def undisturbed(self, *flags):
        self.assert_exit(DONE, self.job("undisturbed", *flags))
        return self.sha_of("undisturbed")

    def assert_all_end_alike(self, tasks, number, at_once, flags, said=(), optimizer=()):
        """`tasks`: the points of each. `said`: texts that stderr has, and what the absence of each means."""
        sha = self.undisturbed(*optimizer)
        failures = []

        def run(case):
            name = "-".join(case).replace("/", "").replace(":", "-")
            run = self.job(name, f"--fault={':'.join(case)}:{number}", *flags, *optimizer)
            if not run.wait(60):
                failures.append(f"{case}: still runs\n{run.story()}")
            elif run.code != DONE:
                failures.append(f"{case}: ended with {run.code}\n{run.story()}")
            elif self.sha_of(name) != sha:
                failures.append(f"{case}: other parameters\n{run.story()}")
            else:
                failures.extend(f"{case}: {absence}\n{run.story()}" for text, absence in said if text not in run.stderr)

        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            list(pool.map(run, [(task, point) for task, points in tasks.items() for point in points]))
        self.assertEqual(failures, [], "\n".join(failures))
        self.assert_nothing_runs()

    def test_kill(self):
        self.assert_all_end_alike(TASKS, "KILL", at_once=2, flags=LASTING, said=[RESTARTED])

    def test_stop_and_go_on(self):
        stopped = set()
        ended = threading.Event()

        def go_on():
            since = {}
            while not ended.wait(0.1):
                for pid in self.marked():
                    with contextlib.suppress(OSError):
                        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
                        if state != "T":
                            since.pop(pid, None)
                        elif time.monotonic() - since.setdefault(pid, time.monotonic()) > STOPPED:
                            stopped.add(pid)
                            os.kill(pid, signal.SIGCONT)

        watch = threading.Thread(target=go_on)
        watch.start()
        try:
            self.assert_all_end_alike(TASKS, "STOP", at_once=6, flags=LASTING)
        finally:
            ended.set()
            watch.join()
        self.assertEqual(len(stopped), sum(map(len, TASKS.values())))

    def assert_backups_lose_nothing(self, points, *optimizer):
        """Runs without --train_dir, so a rollback is impossible."""
        self.assert_all_end_alike({"ps/0": points, "ps/1": points}, "KILL", at_once=2,
                                  flags=["--ps_replication=1", "--lost_workers=wait"],
                                  said=[RESTARTED, ("is promoted in place of", "no backup was promoted")],
                                  optimizer=optimizer)

    def test_servers_with_backups_lose_nothing_and_nothing_is_rolled_back(self):
        self.assert_backups_lose_nothing(REPLICATED)

    def test_servers_with_backups_lose_nothing_while_they_exchange_norms(self):
        self.assert_backups_lose_nothing(MEASURED, *NORMS)

    def test_a_terminated_task_ends_the_cluster_with_its_code_and_a_new_run_resumes(self):
        sha = self.undisturbed()
        # The second snapshot, of step 20 or later, begins when the first has been written. A server that gets SIGTERM
        # as it begins may still be read. The chief writes a snapshot when it gets SIGTERM itself.
        for task, point in (("ps/1", "snapshot:2"), ("worker/0", "computed:15")):  # rounds go on without another worker
            with self.subTest(task):
                name = task.replace("/", "")
                first = self.job(name, *LASTING, f"--fault={task}:{point}:TERM")
                self.assert_exit(TERMINATED, first)
                self.assert_nothing_runs()
                again = self.job(name, *LASTING)
                self.assert_exit(DONE, again)
                self.assertRegex(again.stderr, r"resuming from step [1-9]\d\b")
                self.assertEqual(self.sha_of(name), sha)


if __name__ == "__main__":
    main()
