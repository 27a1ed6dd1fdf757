"""Several tasks are lost together, and the remaining tasks recover."""

import re
import signal
import time

from harness import DONE, MLP, Cluster, IntegrationTest, main


class Recovery(IntegrationTest):

    def test_losing_a_server_and_a_worker_together_rolls_the_job_back(self):
        """The backup is promoted and drops the shard, since an update needs the lost worker's gradient. By then the
        server is back, and backs up a shard that no server serves."""
        cluster = Cluster(self, ps=2, workers=3)
        flags = ["--model", MLP, "--sync_replicas", "--seed=7", "--epochs=40", "--novalidation", "--lease=3",
                 "--ps_replication=1", "--lost_workers=wait", f"--train_dir={self.directory}/run"]
        tasks = {f"ps/{i}": cluster.start("ps", i) for i in (0, 1)}
        tasks.update({f"worker/{i}": cluster.start("worker", i, *flags) for i in (0, 1, 2)})
        self.assert_says(tasks["worker/0"], "joined the job")
        self.assert_says(tasks["worker/2"], "joined the job")
        # The round waits for worker/2, so the servers have the gradients of the others and have not used them.
        tasks["worker/2"].signal(signal.SIGSTOP)
        time.sleep(1)
        tasks["worker/1"].signal(signal.SIGSTOP)
        tasks["ps/1"].signal(signal.SIGKILL)
        self.assert_says(tasks["ps/0"], "is promoted in place of ps/1")
        # The round is now decided and waits for worker/1's gradient, so the backup on the restarted server cannot get
        # in sync.
        tasks["worker/2"].signal(signal.SIGCONT)
        time.sleep(1)
        again = cluster.start("ps", 1)
        self.assert_says(tasks["ps/0"], "drops ps/1's shard: an update needs gradients of worker/1")
        tasks["worker/1"].signal(signal.SIGCONT)
        self.assert_exit(DONE, *(tasks[f"worker/{i}"] for i in (0, 1, 2)), tasks["ps/0"], again)
        self.assertNotIn("waiting for ps/0", again.stderr, "the job had ended well")

    def test_workers_reach_a_promoted_backup_over_the_data_channel(self):
        cluster = Cluster(self, ps=2, workers=1)
        servers = [cluster.start("ps", 0), cluster.start("ps", 1, "--fault=applied:100:KILL")]
        worker = cluster.start("worker", 0, "--model", MLP, "--sync_replicas", "--epochs=40", "--novalidation",
                               "--ps_replication=1")
        self.assert_exit(DONE, worker, servers[0])
        heir = re.escape(cluster.addresses["ps"][0])
        self.assertRegex(worker.stderr, rf"(?s)ps/1 is served by {heir} now.*to and from {heir}: by shared memory")


if __name__ == "__main__":
    main()
