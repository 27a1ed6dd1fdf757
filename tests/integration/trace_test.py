"""Trace files of real processes, single and merged, in the form that viewers of Chrome's format need."""

import collections
import json
import signal
import time

from harness import CNN, DONE, MLP, TERMINATED, TIME_LIMIT, USAGE, Cluster, IntegrationTest, main

Slice = collections.namedtuple("Slice", "task lane name begin end step")  # times in nanoseconds
Arrow = collections.namedtuple("Arrow", "task lane at")


class Timeline:
    """A trace file, after a check of the properties that every viewer relies on."""

    def __init__(self, test, path):
        document = json.loads(path.read_text())
        self.other = document["otherData"]
        tasks, lanes = {}, {}
        self.slices = []
        self.begins, self.ends = collections.defaultdict(list), collections.defaultdict(list)  # [id] Arrow
        for event in document["traceEvents"]:
            where = event["pid"], event["tid"]
            if event["ph"] == "M" and event["name"] == "process_name":
                tasks[event["pid"]] = event["args"]["name"]
            elif event["ph"] == "M" and event["name"] == "thread_name":
                lanes[where] = event["args"]["name"]
            elif event["ph"] == "X":
                begin = round(event["ts"] * 1000)
                self.slices.append(Slice(tasks[event["pid"]], lanes[where], event["name"], begin,
                                         begin + round(event["dur"] * 1000), event.get("args", {}).get("step", 0)))
            elif event["ph"] in "sf":
                arrow = Arrow(tasks[event["pid"]], lanes[where], round(event["ts"] * 1000))
                (self.begins if event["ph"] == "s" else self.ends)[event["id"]].append(arrow)
        self.tasks = set(tasks.values())
        test.assertEqual(len(self.tasks), len(tasks))
        self._assert_nested(test)
        self._assert_arrows_hold(test)

    def of(self, task, lane, name=None):
        return [one for one in self.slices if (one.task, one.lane) == (task, lane) and one.name == (name or one.name)]

    def lanes(self, task):
        return {one.lane for one in self.slices if one.task == task}

    def _assert_nested(self, test):
        lanes = collections.defaultdict(list)
        for one in self.slices:
            lanes[one.task, one.lane].append(one)
        for slices in lanes.values():
            outer = []
            for one in sorted(slices, key=lambda one: (one.begin, -one.end)):
                test.assertLess(one.begin, one.end)
                while outer and outer[-1].end <= one.begin:
                    outer.pop()
                if outer:
                    test.assertLessEqual(one.end, outer[-1].end, f"{one} overlaps {outer[-1]}")
                outer.append(one)

    def _assert_arrows_hold(self, test):
        for arrows in (*self.begins.values(), *self.ends.values()):
            for arrow in arrows:
                test.assertTrue([one for one in self.of(arrow.task, arrow.lane) if one.begin <= arrow.at < one.end], arrow)


class TraceTest(IntegrationTest):

    def await_steps(self, file, but=None):
        """Waits until a running task has written steps into its file, in an inode other than `but`."""
        deadline = time.monotonic() + TIME_LIMIT
        step = '"name":"step","cat"'  # the name alone is also that of a lane, which exists before any step

        def written():
            try:
                return file.stat().st_ino != but and step in file.read_text()
            except FileNotFoundError:  # not yet begun, or a new life has just moved the last one's file away
                return False

        while not written():
            self.assertLess(time.monotonic(), deadline, f"no steps in {file}")
            time.sleep(0.1)

    def test_a_trace_has_every_phase_of_every_step_of_a_synchronous_job(self):
        file = self.directory / "t.json"
        run = self.train(MLP, "--ps=2", "--workers=2", "--sync_replicas", "--train_steps=20", "--batch_size=50",
                         f"--trace_file={file}", "--trace_steps=6:20", "--train_dir=run")
        self.assert_exit(DONE, run)
        self.assertEqual([path.name for path in self.directory.glob("t.json*")], ["t.json"])
        timeline = Timeline(self, file)
        servers, workers = [[f"/job:{job}/task:{i}" for i in range(2)] for job in ("ps", "worker")]
        self.assertEqual(timeline.tasks, {*servers, *workers})
        self.assertEqual({task["lost_events"] for task in timeline.other["tasks"].values()}, {0})
        steps = list(range(6, 21))
        ahead = steps[:-1]  # steps that also run the next step's forward pass, while its values arrive
        for worker in workers:
            self.assertEqual([one.step for one in timeline.of(worker, "step", "step")], steps)
            for step in timeline.of(worker, "step", "step"):
                phases = [one.name for one in timeline.of(worker, "step") if one.name not in ("step", "report") and
                          one.step == step.step]
                expected = ["input", "compute", "look ahead", "answer"]
                self.assertEqual(phases, [name for name in expected if step.step in ahead or name != "look ahead"])
            self.assertEqual([one.step for one in timeline.of(worker, "forward", "forward")], ahead)
            for lane in ("backward", "push ps/0", "push ps/1", "wait ps/0", "wait ps/1", "pull ps/0"):
                self.assertEqual([one.step for one in timeline.of(worker, lane) if one.name in lane], steps, lane)
            self.assertIn("layer 'dense'", {one.name for one in timeline.of(worker, "forward")})
        for server in servers:
            for lane in ("apply", "collect", "reply"):
                # Replies to readers have spans too.
                self.assertEqual(sorted({one.step for one in timeline.of(server, lane)} & set(steps)), steps, lane)
            self.assertEqual(len(timeline.of(server, "apply")), len(steps))
            for worker in range(2):
                self.assertEqual([one.step for one in timeline.of(server, f"receive worker/{worker}")], steps)
        self.assertLessEqual({"load", "evaluate", "snapshot"}, timeline.lanes(workers[0]))  # at the end of the job

        # Each push has one flow arrow, which ends in the update that its step waits for.
        self.assertEqual(len(timeline.begins), 2 * 2 * len(steps))
        self.assertEqual(timeline.begins.keys(), timeline.ends.keys())
        for flow, begins in timeline.begins.items():
            self.assertEqual((len(begins), len(timeline.ends[flow])), (1, 1), flow)
            begin, end = begins[0], timeline.ends[flow][0]
            self.assertEqual(begin.lane[-1], end.task[-1])  # "push ps/1" ends at ps/1
            push, = [one for one in timeline.of(begin.task, begin.lane) if one.begin <= begin.at < one.end]
            apply, = [one for one in timeline.of(end.task, "apply") if one.begin <= end.at < one.end]
            step, = [one for one in timeline.of(begin.task, "step", "step") if one.step == push.step]
            self.assertEqual(apply.step, push.step)
            self.assertLess(begin.at, end.at)
            self.assertLess(step.begin, push.begin)
            self.assertLess(apply.end, step.end)

    def test_stopped_tasks_write_their_traces(self):
        cluster = Cluster(self, ps=1, workers=2)
        files = {name: self.directory / f"{name}.json" for name in ("ps0", "worker0", "worker1")}
        server = cluster.start("ps", 0, f"--trace_file={files['ps0']}")
        workers = [cluster.start("worker", i, "--model", MLP, "--mode=async", "--train_steps=1000000", "--novalidation",
                                 "--display_every=1", f"--trace_file={files[f'worker{i}']}") for i in range(2)]
        self.assert_says(workers[0], r"^ *30/")
        for task in [*workers, server]:
            task.signal(signal.SIGTERM)
            self.assert_exit(TERMINATED, task)
        merged = self.directory / "merged.json"
        alone = Timeline(self, files["worker1"])
        self.assertEqual(alone.tasks, {"/job:worker/task:1"})
        self.assertGreater(alone.other["clocks"]["ps/0"]["round_trip_nanos"], 0)
        merge = self.run_to_end("cairn", "trace", "merge", merged, *files.values())
        self.assert_exit(DONE, merge)
        timeline = Timeline(self, merged)
        self.assertEqual(len(timeline.tasks), 3)
        self.assertTrue(timeline.begins)
        self.assertEqual(timeline.begins.keys(), timeline.ends.keys())
        for flow, begins in timeline.begins.items():
            self.assertEqual((len(begins), len(timeline.ends[flow])), (1, 1), flow)
            self.assertLess(begins[0].at, timeline.ends[flow][0].at)

        broken = self.directory / "broken.json"
        text = files["ps0"].read_text()
        broken.write_text(text[:len(text) // 2])
        merged.unlink()
        refused = self.run_to_end("cairn", "trace", "merge", merged, files["worker0"], broken)
        self.assert_exit(USAGE, refused)
        self.assertRegex(refused.stderr, rf"^cairn trace: {broken}:\d+: not valid JSON: ")
        self.assertFalse(merged.exists())

    def test_a_killed_task_leaves_a_trace(self):
        cluster = Cluster(self, ps=1, workers=2)
        files = {name: self.directory / f"{name}.json" for name in ("ps0", "worker0", "worker1")}
        server = cluster.start("ps", 0, f"--trace_file={files['ps0']}")

        def start(i):
            return cluster.start("worker", i, "--model", CNN, "--mode=async", "--train_steps=1000000", "--batch_size=250", "--novalidation",
                                 "--display_every=1", f"--trace_file={files[f'worker{i}']}")

        workers = [start(i) for i in range(2)]
        self.await_steps(files["worker1"])
        workers[1].signal(signal.SIGKILL)
        self.assert_exit(-signal.SIGKILL, workers[1])
        last_life = files["worker1"].stat().st_ino
        workers[1] = start(1)
        self.await_steps(files["worker1"], but=last_life)
        for task in [*workers, server]:
            task.signal(signal.SIGTERM)
            self.assert_exit(TERMINATED, task)
        merged = self.directory / "merged.json"
        self.assert_exit(DONE, self.run_to_end("cairn", "trace", "merge", merged, *files.values()))
        timeline = Timeline(self, merged)
        lives = ["/job:worker/task:1 life 1", "/job:worker/task:1"]
        self.assertEqual(timeline.tasks, {"/job:ps/task:0", "/job:worker/task:0", *lives})
        first, second = [[one for one in timeline.of(life, "step", "step")] for life in lives]
        self.assertTrue(first and second)
        self.assertLess(max(one.end for one in first), min(one.begin for one in second))

    def test_conflicting_flags_are_refused(self):
        for flags, fault in ((["--trace_file=t.json", "--trace_steps=5:2"], "--trace_steps: '5:2': step 2 comes before step 5"),
                             (["--trace_steps=1:2"], "--trace_steps needs --trace_file"),
                             (["--trace_file=none/t.json"], "--trace_file: cannot create none/t.json")):
            self.assert_refused(self.train(MLP, *flags), fault)
            where = ["--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2", "--task_index=0"]
            self.assert_refused(self.run_to_end("cairn-ps", *where, "--job_name=ps", *flags), fault)
            self.assert_refused(self.run_to_end("cairn-worker", *where, "--job_name=worker", f"--model={MLP}",
                                                "--data_dir=none", *flags), fault)


if __name__ == "__main__":
    main()
