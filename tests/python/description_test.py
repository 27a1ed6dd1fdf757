#!/usr/bin/env python3
"""Descriptions of a cluster and of an optimizer: TF_CONFIG, and Keras' objects."""

import json
import unittest

import numpy as np
import support  # noqa: F401

from cairn import cluster
from cairn.keras_optimizer import optimizer_message


class TfConfigTest(unittest.TestCase):
    """The rules of common/net/cluster/cluster_resolver.cc."""

    PS, WORKERS = ["p:1"], ["a:1", "b:1"]

    def described(self, jobs, job, index, key="cluster"):
        text = json.dumps({key: jobs, "task": {"type": job, "index": index}})
        found = cluster.from_tf_config(text)
        self.assertEqual(found.servers, self.PS)
        return found.trainers[found.worker], found.trainers

    def test_the_chief_is_the_first_worker_under_either_name(self):
        for name in ("chief", "master"):
            jobs = {"ps": self.PS, name: ["c:1"], "worker": self.WORKERS}
            everybody = ["chief/0", "worker/0", "worker/1"]
            self.assertEqual(self.described(jobs, name, 0), ("chief/0", everybody))
            self.assertEqual(self.described(jobs, "worker", "1"), ("worker/1", everybody))

    def test_a_sparse_cluster_keeps_its_indices(self):
        jobs = {"ps": self.PS, "worker": {"7": "a:1", "1": "b:1"}}
        for key in ("cluster", "sparseCluster"):
            self.assertEqual(self.described(jobs, "worker", 7, key), ("worker/7", ["worker/1", "worker/7"]))

    def test_a_cluster_without_servers_has_peers(self):
        found = cluster.from_tf_config(json.dumps({"cluster": {"worker": self.WORKERS}, "task": {"type": "worker", "index": 1}}))
        self.assertEqual((found.servers, found.peers, found.worker), ([], self.WORKERS, 1))

    def test_other_jobs_and_empty_lists_are_ignored(self):
        jobs = {"ps": self.PS, "chief": None, "worker": self.WORKERS, "evaluator": ["e:1"], "tensorboard": ["t:1"]}
        self.assertEqual(self.described(jobs, "worker", 0), ("worker/0", ["worker/0", "worker/1"]))

    def test_the_faulty_entry_is_named(self):
        jobs = {"ps": self.PS, "worker": self.WORKERS}
        task = {"type": "worker", "index": 0}
        for config, fault in (({"cluster": jobs}, "does not say which task"),
                              ({"task": task}, '"cluster" must be an object, found null'),
                              ({"cluster": jobs, "sparseCluster": jobs, "task": task}, "has both"),
                              ({"cluster": {"ps": {"1": "p:1"}, "worker": self.WORKERS}, "task": task}, "ps/0 is missing"),
                              ({"cluster": jobs, "task": {"type": "worker", "index": 2}}, "worker/2.*: 0, 1"),
                              ({"cluster": jobs, "task": {"type": "worker", "index": -1}}, "task.index is -1"),
                              ({"cluster": jobs, "task": {"type": "ps", "index": 0}}, "ps/0, which computes no gradients"),
                              ({"cluster": jobs, "task": {"type": "wroker", "index": 0}}, 'task.type is "wroker"'),
                              ({"cluster": {**jobs, "worker": ["a:1", "p:1"]}, "task": task}, "p:1 is already the address"),
                              ({"cluster": {**jobs, "worker": [5]}, "task": task}, "worker/0: the address"),
                              ({"cluster": {**jobs, "worker": "a:1"}, "task": task}, "cluster.worker must be a list"),
                              ([], "must be an object, found a list")):
            with self.assertRaisesRegex(ValueError, fault):
                cluster.from_tf_config(json.dumps(config))
        with self.assertRaisesRegex(ValueError, "TF_CONFIG is not JSON"):
            cluster.from_tf_config("{")


class OptimizerTest(unittest.TestCase):

    def test_every_kind_of_number_is_accepted(self):
        for rate in (0.5, np.float32(0.5), np.array(0.5), np.float64(0.5), "0.5"):
            message = optimizer_message({"class_name": "SGD", "config": {"learning_rate": rate, "momentum": None}})
            self.assertEqual(message, {"name": "SGD", "hyperparameters": {"learning_rate": 0.5}})
        self.assertEqual(optimizer_message({"class_name": "SGD", "config": {"nesterov": np.True_, "name": "SGD"}}),
                         {"name": "SGD", "hyperparameters": {"nesterov": 1.0}})
        self.assertEqual(optimizer_message("Adam"), {"name": "Adam", "hyperparameters": {}})

    def test_a_schedule_goes_to_the_servers(self):
        config = {"boundaries": [2, np.int64(4)], "values": (1, 0.5, 0.25), "name": None}
        schedule = {"class_name": "PiecewiseConstantDecay", "config": config, "module": "keras.optimizers.schedules"}
        self.assertEqual(optimizer_message({"class_name": "SGD", "config": {"learning_rate": schedule, "momentum": 0.5}}),
                         {"name": "SGD", "hyperparameters": {"momentum": 0.5},
                          "learning_rate_schedule": {"name": "PiecewiseConstantDecay", "numbers": {},
                                                     "boundaries": [2, 4], "values": [1, 0.5, 0.25]}})

    def test_an_object_of_keras_describes_itself(self):
        class Momentum:
            def get_config(self):
                return {"name": "momentum", "learning_rate": np.float32(0.25)}

        self.assertEqual(optimizer_message(Momentum()), {"name": "Momentum", "hyperparameters": {"learning_rate": 0.25}})

    def test_a_value_that_is_not_a_number_is_refused_by_name(self):
        for optimizer, fault in (({"class_name": "SGD", "config": {"learning_rate": "fast"}}, "learning_rate is 'fast'"),
                                 ({"class_name": "SGD", "config": {"learning_rate": lambda step: 0.5}}, "is a function"),
                                 ({"class_name": "SGD", "config": {"learning_rate": [0.5]}}, "learning_rate is a list"),
                                 ({"class_name": "SGD", "config": {"momentum": 1j}}, "momentum is 1j"),
                                 ({"class_name": "SGD", "learning_rate": 0.5}, "unknown key 'learning_rate'"),
                                 ({"learning_rate": 0.5}, "expected a name or"),
                                 (None, "expected a name or")):
            with self.assertRaisesRegex(ValueError, fault):
                optimizer_message(optimizer)


if __name__ == "__main__":
    unittest.main()
