#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "common/core/files.h"
#include "common/net/cluster/cluster_spec.h"
#include "common/net/cluster/ignored_jobs.h"

namespace cairn::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kDense[] =
    R"({"cluster": {"ps": ["a:1", "a:2"], "worker": ["b:1", "b:2"]}, "task": {"type": "worker", "index": 1}})";

ResolvedCluster Resolved(const ClusterFlags& flags, const char* tf_config = nullptr) {
  auto resolved = ResolveCluster(flags, tf_config);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  return resolved.ok() ? *resolved : ResolvedCluster();
}

std::string RefusalOf(const ClusterFlags& flags, const char* tf_config = nullptr) {
  const auto status = ResolveCluster(flags, tf_config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// Each test has its own file.
class ClusterFile {
 public:
  explicit ClusterFile(const std::string& contents)
      : path_(::testing::TempDir() + "/cluster-" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".json") {
    EXPECT_TRUE(WriteFileAtomically(path_, contents).ok());
  }
  ~ClusterFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ResolveCluster, AcceptedTfConfigsWithTheTaskTheyName) {
  const struct {
    const char* tf_config;
    const char* self;
    const char* spec;
  } kCases[] = {
      {kDense, "worker/1", R"({"ps":["a:1","a:2"],"worker":["b:1","b:2"]})"},
      // int() in TensorFlow's resolver takes a string, too.
      {R"({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "0"}})",
       "worker/0", R"({"ps":["a:1"],"worker":["b:1"]})"},
      // Keys of TensorFlow and Kubeflow that Cairn ignores.
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0, "trial": "1"}, "environment": "cloud",
           "rpc_layer": "grpc"})",
       "ps/0", R"({"ps":["a:1"]})"},
      {R"({"cluster": {"ps": ["a:1"], "master": ["c:1"]}, "task": {"type": "master", "index": 0}})",
       "chief/0", R"({"chief":["c:1"],"ps":["a:1"]})"},
      {R"({"cluster": {"ps": ["a:1"], "chief": ["c:1"]}, "task": {"type": "master", "index": 0}})", "chief/0",
       R"({"chief":["c:1"],"ps":["a:1"]})"},
      // Kubeflow with enableDynamicWorker: a worker sees all servers and itself; the key is sparseCluster up
      // to 1.6.
      {R"({"sparseCluster": {"worker": {"3": "w3:1"}, "ps": ["p0:1", "p1:1"]}, "task": {"type": "worker", "index": 3}})",
       "worker/3", R"({"ps":["p0:1","p1:1"],"worker":{"3":"w3:1"}})"},
      {R"({"cluster": {"worker": {"1": "w1:1"}, "ps": ["p0:1"]}, "task": {"type": "worker", "index": 1}})",
       "worker/1", R"({"ps":["p0:1"],"worker":{"1":"w1:1"}})"},
      // A ps sees a list with one address: its own, whatever its index.
      {R"({"cluster": {"worker": {}, "ps": ["p2:1"]}, "task": {"type": "ps", "index": 2}})", "ps/2",
       R"({"ps":{"2":"p2:1"}})"},
      {R"({"sparseCluster": {"worker": {}, "ps": ["p0:1"]}, "task": {"type": "ps", "index": "0"}})", "ps/0",
       R"({"ps":["p0:1"]})"},
      {R"({"sparseCluster": {"ps": ["p1:1"]}, "task": {"type": "ps", "index": 1}})", "ps/1",
       R"({"ps":{"1":"p1:1"}})"},
      {R"({"sparseCluster": {"worker": null, "ps": ["p1:1"]}, "task": {"type": "ps", "index": 1}})", "ps/1",
       R"({"ps":{"1":"p1:1"}})"},
      // The same as a sparse map, in TensorFlow's form.
      {R"({"cluster": {"ps": {"4": "p4:1"}}, "task": {"type": "ps", "index": 4}})", "ps/4",
       R"({"ps":{"4":"p4:1"}})"},
      // The evaluator: listed in the cluster, not listed, without a cluster, and in Kubeflow's empty cluster.
      {R"({"cluster": {"ps": ["a:1"], "evaluator": ["e:1"]}, "task": {"type": "evaluator", "index": 0}})",
       "evaluator/0", R"({"evaluator":["e:1"],"ps":["a:1"]})"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "evaluator", "index": 0}})", "evaluator/0",
       R"({"ps":["a:1"]})"},
      {R"({"task": {"type": "evaluator", "index": 0}})", "evaluator/0", "{}"},
      {R"({"cluster": {"worker": {}, "ps": []}, "task": {"type": "evaluator", "index": 0}})", "evaluator/0",
       "{}"},
  };
  for (const auto& test : kCases) {
    const ResolvedCluster resolved = Resolved({}, test.tf_config);
    EXPECT_EQ(resolved.source, "TF_CONFIG");
    EXPECT_EQ(resolved.self.ToString(), test.self) << test.tf_config;
    EXPECT_EQ(resolved.spec.ToJson(), test.spec) << test.tf_config;
  }
}

TEST(ResolveCluster, RefusedTfConfigsWithTheirReasons) {
  const struct {
    const char* tf_config;
    const char* reason;
  } kCases[] = {
      {"{}", R"(TF_CONFIG: has no "cluster", as in {"cluster": {"ps": ["localhost:2222"], "worker": )"
             R"(["localhost:2223"]}, "task": {"type": "worker", "index": 0}})"},
      {R"({"task": {"type": "worker", "index": 0}})",
       R"(TF_CONFIG: has no "cluster", as in {"cluster": {"ps": ["localhost:2222"], "worker": )"
       R"(["localhost:2223"]}, "task": {"type": "worker", "index": 0}})"},
      {R"({"cluster": {"ps": ["a:1"]}, "sparseCluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})",
       R"(TF_CONFIG: has both "cluster" and "sparseCluster")"},
      {R"({"cluster": {"ps": ["a:1"]}})",
       "TF_CONFIG: does not say which task this is; add --job_name and --task_index"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {}})",
       "TF_CONFIG: does not say which task this is; add --job_name and --task_index"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps"}})",
       "TF_CONFIG: does not say which ps this is; add --task_index"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"index": 0}})",
       "TF_CONFIG: task index 0 of which job? Add --job_name=ps|worker|chief|evaluator"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": "ps/0"})",
       R"(TF_CONFIG: "task" must be an object like {"type": "worker", "index": 0}, found string)"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": 3, "index": 0}})",
       "TF_CONFIG: task.type must be a string, found number"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "Ps", "index": 0}})",
       R"(TF_CONFIG: task.type: "Ps" is not a job; it must be ps, worker, chief (or master) or evaluator)"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "", "index": 0}})",
       R"(TF_CONFIG: task.type: "" is not a job; it must be ps, worker, chief (or master) or evaluator)"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": -1}})",
       "TF_CONFIG: task.index: -1 is negative"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": "-2"}})",
       "TF_CONFIG: task.index: -2 is negative"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0.5}})",
       "TF_CONFIG: task.index: 0.5 is not an index"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": "first"}})",
       R"(TF_CONFIG: task.index: "first" is not an index)"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 18446744073709551615}})",
       "TF_CONFIG: task.index: 18446744073709551615 is not an index"},
      {R"({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}})",
       "TF_CONFIG: this task is chief/0, but the cluster has no chief"},
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "worker", "index": 0}})",
       "TF_CONFIG: this task is worker/0, but the cluster has no worker"},
      {R"({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 1}})",
       "TF_CONFIG: this task is worker/1, but the cluster has worker 0 only"},
      {R"({"cluster": {"ps": ["a:1"], "worker": ["b:1", "b:2"]}, "task": {"type": "worker", "index": 2}})",
       "TF_CONFIG: this task is worker/2, but the cluster has worker 0 to 1 only"},
      {R"({"cluster": {"ps": ["a:1"], "worker": {"1": "b:1", "3": "b:2"}}, "task": {"type": "worker", "index": 2}})",
       "TF_CONFIG: this task is worker/2, but the cluster has worker 1, 3 only"},
      // One ps in a list, with workers in a list, is a dense cluster, not Kubeflow's view of a ps.
      {R"({"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "ps", "index": 1}})",
       "TF_CONFIG: this task is ps/1, but the cluster has ps 0 only"},
      // Nor is a cluster without workers.
      {R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 1}})",
       "TF_CONFIG: this task is ps/1, but the cluster has ps 0 only"},
      {R"({"cluster": {"ps": ["a:1"], "evaluator": ["e:1"]}, "task": {"type": "evaluator", "index": 1}})",
       "TF_CONFIG: this task is evaluator/1, but the cluster has evaluator 0 only"},
      // Kubeflow gives the chief of a dynamic cluster no information.
      {R"({"cluster": {"worker": {}, "ps": []}, "task": {"type": "chief", "index": 0}})",
       "TF_CONFIG: the list of ps is empty; training needs at least one"},
      {R"({"cluster": ["a:1"], "task": {"type": "ps", "index": 0}})",
       R"(TF_CONFIG: a cluster is an object like {"ps": ["localhost:2222"], "worker": ["localhost:2223"]}, )"
       "found array"},
  };
  for (const auto& test : kCases) EXPECT_EQ(RefusalOf({}, test.tf_config), test.reason) << test.tf_config;
}

TEST(ResolveCluster, FlagsDefineACluster) {
  const ResolvedCluster resolved = Resolved({.job_name = "worker",
                                             .task_index = 1,
                                             .ps_hosts = {"a:1"},
                                             .worker_hosts = {"b:1", "[::1]:2"},
                                             .chief_hosts = {"c:1"},
                                             .evaluator_hosts = {"e:1"}});
  EXPECT_EQ(resolved.source, "flags");
  EXPECT_EQ(resolved.self, (TaskId{"worker", 1}));
  EXPECT_EQ(resolved.spec.ToJson(),
            R"({"chief":["c:1"],"evaluator":["e:1"],"ps":["a:1"],"worker":["b:1","[::1]:2"]})");
}

TEST(ResolveCluster, RefusedFlagsWithTheirReasons) {
  const struct {
    ClusterFlags flags;
    const char* reason;
  } kCases[] = {
      {{}, "no cluster: give --ps_hosts and --worker_hosts, or --cluster=FILE, or set TF_CONFIG"},
      {{.job_name = "ps", .task_index = 0},
       "no cluster: give --ps_hosts and --worker_hosts, or --cluster=FILE, or set TF_CONFIG"},
      {{.job_name = "server", .task_index = 0, .ps_hosts = {"a:1"}},
       R"(--job_name: "server" is not a job; it must be ps, worker, chief (or master) or evaluator)"},
      {{.job_name = "ps", .task_index = -1, .ps_hosts = {"a:1"}}, "--task_index: -1 is negative"},
      {{.ps_hosts = {"a:1"}}, "flags: does not say which task this is; add --job_name and --task_index"},
      {{.job_name = "ps", .ps_hosts = {"a:1"}}, "flags: does not say which ps this is; add --task_index"},
      {{.task_index = 0, .ps_hosts = {"a:1"}},
       "flags: task index 0 of which job? Add --job_name=ps|worker|chief|evaluator"},
      {{.job_name = "worker", .task_index = 0, .worker_hosts = {"a:1"}},
       "--ps_hosts is missing; training needs at least one, as in --ps_hosts=localhost:2222"},
      {{.job_name = "ps", .task_index = 1, .ps_hosts = {"a:1"}},
       "flags: this task is ps/1, but the cluster has ps 0 only"},
      {{.job_name = "chief", .task_index = 0, .ps_hosts = {"a:1"}, .worker_hosts = {"b:1"}},
       "flags: this task is chief/0, but the cluster has no chief"},
      {{.job_name = "ps", .task_index = 0, .ps_hosts = {"a:1", "b"}},
       R"(--ps_hosts: ps/1: "b" has no port; write host:port, as in "b:2222")"},
      {{.job_name = "ps", .task_index = 0, .ps_hosts = {"a:1", ""}},
       R"(--ps_hosts: ps/1: "" is not an address; write host:port, as in "localhost:2222")"},
      {{.job_name = "ps", .task_index = 0, .ps_hosts = {"a:1"}, .worker_hosts = {"b:1", "a:1"}},
       "--worker_hosts: worker/1: a:1 is already the address of ps/0"},
      {{.job_name = "ps", .task_index = 0, .ps_hosts = {"a:1"}, .chief_hosts = {"b:1", "b:2"}},
       "--chief_hosts: chief/1: a cluster has one chief, chief/0"},
  };
  for (const auto& test : kCases) EXPECT_EQ(RefusalOf(test.flags), test.reason);
}

TEST(ResolveCluster, FlagsOverrideTheFileAndTheFileOverridesTheEnvironment) {
  const ClusterFile file(R"({"ps": ["file:1"]})");
  ClusterFlags flags{.cluster_file = file.path(), .job_name = "ps", .task_index = 0};
  EXPECT_EQ(Resolved(flags, kDense).spec.ToJson(), R"({"ps":["file:1"]})");
  EXPECT_EQ(Resolved(flags, kDense).source, file.path());
  flags.ps_hosts = {"flag:1"};
  EXPECT_EQ(Resolved(flags, kDense).spec.ToJson(), R"({"ps":["flag:1"]})");
}

TEST(ResolveCluster, AFileMayContainAWholeTfConfig) {
  const ClusterFile file(kDense);
  const ResolvedCluster resolved = Resolved({.cluster_file = file.path()});
  EXPECT_EQ(resolved.self, (TaskId{"worker", 1}));
  EXPECT_EQ(resolved.source, file.path());
}

TEST(ResolveCluster, FlagsOverrideTheTaskOfATfConfig) {
  EXPECT_EQ(Resolved({.task_index = 0}, kDense).self, (TaskId{"worker", 0}));
  EXPECT_EQ(Resolved({.job_name = "worker"}, kDense).self, (TaskId{"worker", 1}));
  EXPECT_EQ(Resolved({.job_name = "ps", .task_index = 1}, kDense).self, (TaskId{"ps", 1}));
  EXPECT_EQ(RefusalOf({.job_name = "ps"}, kDense),
            "TF_CONFIG: does not say which ps this is; add --task_index");
}

TEST(ResolveCluster, ABareClusterNeedsTheTaskFromFlags) {
  const ClusterFile file(R"({"ps": ["a:1"], "worker": ["b:1"]})");
  EXPECT_EQ(RefusalOf({.cluster_file = file.path()}),
            file.path() + ": does not say which task this is; add --job_name and --task_index");
  EXPECT_EQ(Resolved({.cluster_file = file.path(), .job_name = "worker", .task_index = 0}).self,
            (TaskId{"worker", 0}));
}

TEST(ResolveCluster, AnIndexThatFlagsNameIsNotTakenForTheOnlyServers) {
  for (const char* cluster : {R"({"ps": ["a:1"]})", R"({"ps": ["a:1"], "worker": {"3": "b:1"}})"}) {
    const ClusterFile file(cluster);
    EXPECT_EQ(RefusalOf({.cluster_file = file.path(), .job_name = "ps", .task_index = 1}),
              file.path() + ": this task is ps/1, but the cluster has ps 0 only");
  }
}

TEST(ResolveCluster, UnknownJobsAreIgnoredAndRemembered) {
  constexpr char kCluster[] = R"({"ps": ["a:1"], "wroker": ["b:1"], "tensorboard": ["c:1"]})";
  const ClusterFile file(kCluster);
  EXPECT_THAT(IgnoredJobs({.cluster_file = file.path()}, nullptr), ElementsAre("tensorboard", "wroker"));
  const std::string tf_config = std::string(R"({"cluster": )") + kCluster + "}";
  EXPECT_THAT(IgnoredJobs({}, tf_config.c_str()), ElementsAre("tensorboard", "wroker"));
  EXPECT_THAT(IgnoredJobs({.ps_hosts = {"a:1"}}, tf_config.c_str()), ::testing::IsEmpty());
}

TEST(ResolveCluster, AMissingFileIsNotFound) {
  const auto status = ResolveCluster({.cluster_file = "/nowhere/c.json"}, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--cluster: cannot open /nowhere/c.json"));
}

TEST(ResolveCluster, AnEmptyVariableCountsAsUnset) {
  EXPECT_THAT(RefusalOf({}, ""), HasSubstr("no cluster:"));
  EXPECT_THAT(RefusalOf({}, " \n"), HasSubstr("no cluster:"));
}

TEST(ResolveCluster, AnEvaluatorNeedsNoCluster) {
  const ResolvedCluster resolved = Resolved({.job_name = "evaluator", .task_index = 0});
  EXPECT_EQ(resolved.self, (TaskId{"evaluator", 0}));
  EXPECT_TRUE(resolved.spec.servers().empty());
  EXPECT_EQ(resolved.spec.Hash(), 0u);
}

TEST(ResolveCluster, ACommandNeedsNoTask) {
  const ClusterFile file(R"({"ps": ["a:1"]})");
  const auto resolved = ResolveCluster({.cluster_file = file.path()}, nullptr, /*require_task=*/false);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->self, TaskId());
  EXPECT_TRUE(ResolveCluster({.ps_hosts = {"a:1"}}, nullptr, /*require_task=*/false).ok());
  EXPECT_EQ(ResolveCluster({}, kDense, /*require_task=*/false)->self, TaskId());
}

// Its hash would differ from those of all other tasks; 0 matches any hash.
TEST(ResolveCluster, APsThatSeesOnlyItselfHasNoHash) {
  for (const char* tf_config :
       {R"({"cluster": {"worker": {}, "ps": ["p0:1"]}, "task": {"type": "ps", "index": 0}})",
        R"({"cluster": {"worker": {}, "ps": ["p1:1"]}, "task": {"type": "ps", "index": 1}})",
        R"({"cluster": {"ps": {"1": "p1:1"}}, "task": {"type": "ps", "index": 1}})"}) {
    const ResolvedCluster resolved = Resolved({}, tf_config);
    EXPECT_FALSE(resolved.spec.knows_all_servers());
    EXPECT_EQ(resolved.spec.Hash(), 0u);
    EXPECT_EQ(resolved.spec.servers().size(), 1u);
  }
}

TEST(ResolveCluster, AMissingTaskIsReportedWithTheExistingIndices) {
  EXPECT_EQ(RefusalOf({}, R"({"cluster": {"ps": ["p:1"], "worker": {"0": "a:1", "2147483647": "b:2"}},
                              "task": {"type": "worker", "index": 5}})"),
            "TF_CONFIG: this task is worker/5, but the cluster has worker 0, 2147483647 only");
}

TEST(ResolveCluster, AnUnlistedWorkerMayJoin) {
  const auto resolved = ResolveCluster(
      {.job_name = "worker", .task_index = 7, .ps_hosts = {"a:1"}, .unlisted_workers = true}, nullptr);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->self, (TaskId{"worker", 7}));
  EXPECT_EQ(resolved->spec.tasks_on_host_of(resolved->self), 1);
  EXPECT_FALSE(
      ResolveCluster({.job_name = "ps", .task_index = 7, .ps_hosts = {"a:1"}, .unlisted_workers = true},
                     nullptr)
          .ok());
}

}  // namespace
}  // namespace cairn::net
