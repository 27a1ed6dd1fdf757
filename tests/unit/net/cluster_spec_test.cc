#include "common/net/cluster/cluster_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::net {
namespace {

using ::testing::ElementsAre;

ClusterSpec Spec(const std::string& text) {
  auto spec = ClusterSpec::FromJson(text, "c.json");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : ClusterSpec();
}

TEST(ClusterSpec, AcceptedFormsInTheirCanonicalForm) {
  const struct {
    const char* text;
    const char* canonical;
  } kCases[] = {
      // TensorFlow's dense form, with comments.
      {R"({"worker": ["b:2"], /* one server */ "ps": ["a:1"]})", R"({"ps":["a:1"],"worker":["b:2"]})"},
      // TensorFlow's sparse form, which is dense if no index is missing.
      {R"({"ps": ["a:1"], "worker": {"3": "b:2"}})", R"({"ps":["a:1"],"worker":{"3":"b:2"}})"},
      {R"({"ps": {"1": "b:2", "0": "a:1"}})", R"({"ps":["a:1","b:2"]})"},
      // No workers: a ps accepts that they join later. Go writes null for an empty list.
      {R"({"ps": ["a:1"]})", R"({"ps":["a:1"]})"},
      {R"({"ps": ["a:1"], "worker": [], "chief": {}, "evaluator": null})", R"({"ps":["a:1"]})"},
      // All jobs; "master" is the chief; others are ignored, whatever they hold.
      {R"({"ps": ["a:1"], "master": ["c:1"], "evaluator": ["e:1"], "tpu_worker": 7})",
       R"({"chief":["c:1"],"evaluator":["e:1"],"ps":["a:1"]})"},
      {R"({"ps": ["a:1"], "chief": ["c:1"], "master": []})", R"({"chief":["c:1"],"ps":["a:1"]})"},
      // The same host with other ports, the same port on other hosts.
      {R"({"ps": ["a:1", "a:2"], "worker": ["b:1", "[::1]:1"]})",
       R"({"ps":["a:1","a:2"],"worker":["b:1","[::1]:1"]})"},
  };
  for (const auto& test : kCases) {
    const ClusterSpec spec = Spec(test.text);
    EXPECT_EQ(spec.ToJson(), test.canonical);
    EXPECT_EQ(Spec(spec.ToJson()).ToJson(), test.canonical);
    EXPECT_TRUE(spec.knows_all_servers());
  }
}

TEST(ClusterSpec, RefusedFormsWithTheirReasons) {
  const struct {
    const char* text;
    const char* reason;
  } kCases[] = {
      {"[]",
       R"(c.json: a cluster is an object like {"ps": ["localhost:2222"], "worker": ["localhost:2223"]}, )"
       "found array"},
      {"null",
       R"(c.json: a cluster is an object like {"ps": ["localhost:2222"], "worker": ["localhost:2223"]}, )"
       "found null"},
      {"{}", R"(c.json: has no "ps"; training needs at least one, as in "ps": ["localhost:2222"])"},
      {R"({"PS": ["a:1"]})", R"(c.json: has no "ps", but "PS": job names are in lower case)"},
      {R"({"ps": []})", "c.json: the list of ps is empty; training needs at least one"},
      {R"({"ps": {}, "worker": ["a:1"]})", "c.json: the list of ps is empty; training needs at least one"},
      {R"({"ps": ["a:1"], "ps": ["b:1"]})", R"(c.json: key "ps" appears twice)"},
      {R"({"ps": "a:1"})",
       R"(c.json: ps: must be a list of "host:port" or an object from index to "host:port", found string)"},
      {R"({"ps": ["a:1"], "worker": 3})",
       R"(c.json: worker: must be a list of "host:port" or an object from index to "host:port", found number)"},
      {R"({"ps": ["a:1", 2222]})", R"(c.json: ps/1: the address must be a string "host:port", found number)"},
      {R"({"ps": ["a:1", null]})", R"(c.json: ps/1: the address must be a string "host:port", found null)"},
      {R"({"ps": ["a:1"], "worker": {"2": ["b:1"]}})",
       R"(c.json: worker/2: the address must be a string "host:port", found array)"},
      {R"({"ps": ["a:1", "b"]})", R"(c.json: ps/1: "b" has no port; write host:port, as in "b:2222")"},
      {R"({"ps": ["a:1"], "worker": ["b:70000"]})",
       R"(c.json: worker/0: "b:70000": the port must be 1 to 65535)"},
      {R"({"ps": ["a:1", "a:1"]})", "c.json: ps/1: a:1 is already the address of ps/0"},
      {R"({"ps": ["a:1"], "worker": ["b:1", "A:1"]})",
       "c.json: worker/1: a:1 is already the address of ps/0"},
      {R"({"ps": ["[::1]:1", "[0::1]:1"]})", "c.json: ps/1: [::1]:1 is already the address of ps/0"},
      {R"({"ps": ["a:1"], "worker": {"-1": "b:1"}})", "c.json: worker: task index -1 is negative"},
      {R"({"ps": ["a:1"], "worker": {"01": "b:1"}})", R"(c.json: worker: "01" is not a task index)"},
      {R"({"ps": ["a:1"], "worker": {"one": "b:1"}})", R"(c.json: worker: "one" is not a task index)"},
      {R"({"ps": ["a:1"], "worker": {"4294967296": "b:1"}})",
       R"(c.json: worker: "4294967296" is not a task index)"},
      {R"({"ps": {"0": "a:1", "2": "c:1"}})",
       "c.json: ps/1 is missing, but ps/2 is there: servers are numbered from 0 without gaps"},
      {R"({"ps": {"1": "a:1"}})",
       "c.json: ps/0 is missing, but ps/1 is there: servers are numbered from 0 without gaps"},
      {R"({"ps": ["a:1"], "chief": ["b:1", "c:1"]})", "c.json: chief/1: a cluster has one chief, chief/0"},
      {R"({"ps": ["a:1"], "chief": {"1": "b:1"}})", "c.json: chief/1: a cluster has one chief, chief/0"},
      {R"({"ps": ["a:1"], "chief": ["b:1"], "master": ["c:1"]})",
       R"(c.json: has both "chief" and "master", which are two names of one job)"},
      {R"({"ps": ["a:1"], "": ["b:1"]})", R"(c.json: "" is not the name of a job)"},
      {R"({"ps": ["a:1"], "my worker": ["b:1"]})", R"(c.json: "my worker" is not the name of a job)"},
      {R"({"ps": ["a:1"], "worker/0": ["b:1"]})", R"(c.json: "worker/0" is not the name of a job)"},
  };
  for (const auto& test : kCases) {
    const auto status = ClusterSpec::FromJson(test.text, "c.json").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), test.reason) << test.text;
  }
}

TEST(ClusterSpec, BadSyntaxNamesFileAndLine) {
  const auto status = ClusterSpec::FromJson("{\n \"ps\": [\"a:1\"\n}", "c.json").status();
  EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("c.json:3: not valid JSON:"));
}

TEST(ClusterSpec, WithoutAChiefWorker0IsChief) {
  const ClusterSpec spec = Spec(R"({"ps": ["a:1"], "worker": ["b:1", "b:2"]})");
  EXPECT_EQ(spec.chief(), (TaskId{"worker", 0}));
  EXPECT_THAT(spec.trainers(), ElementsAre(TaskId{"worker", 0}, TaskId{"worker", 1}));
}

TEST(ClusterSpec, TheChiefIsTheFirstTrainerAndTheEvaluatorIsNone) {
  const ClusterSpec spec =
      Spec(R"({"ps": ["a:1"], "worker": {"5": "b:5", "2": "b:2"}, "chief": ["c:1"], "evaluator": ["d:1"]})");
  EXPECT_EQ(spec.chief(), (TaskId{"chief", 0}));
  EXPECT_THAT(spec.trainers(), ElementsAre(TaskId{"chief", 0}, TaskId{"worker", 2}, TaskId{"worker", 5}));
}

TEST(ClusterSpec, ServersComeInIndexOrderAlsoBeyondNine) {
  ClusterSpec spec;
  for (int i = 11; i >= 0; --i) ASSERT_TRUE(spec.Add({"ps", i}, {"h", 100 + i}).ok());
  ASSERT_EQ(spec.servers().size(), 12u);
  EXPECT_EQ(spec.servers()[2].port, 102);
  EXPECT_EQ(spec.servers()[10].port, 110);
}

TEST(ClusterSpec, CountsTheTasksOnAHost) {
  const ClusterSpec spec = Spec(R"({"ps": ["a:1", "b:1"], "worker": ["a:2", "a:3"]})");
  EXPECT_EQ(spec.tasks_on_host_of({"worker", 0}), 3);
  EXPECT_EQ(spec.tasks_on_host_of({"ps", 1}), 1);
  EXPECT_EQ(spec.tasks_on_host_of({"evaluator", 0}), 1);
}

TEST(ClusterSpec, TrainersOnAHostAreNumberedInTheirOrder) {
  const ClusterSpec spec = Spec(
      R"({"ps": ["a:1"], "chief": ["a:2"], "worker": ["b:1", "a:3", "b:2", "a:4"], "evaluator": ["a:5"]})");
  EXPECT_EQ(spec.local_rank_of({"chief", 0}), 0);
  EXPECT_EQ(spec.local_rank_of({"worker", 1}), 1);
  EXPECT_EQ(spec.local_rank_of({"worker", 3}), 2);
  EXPECT_EQ(spec.local_rank_of({"worker", 0}), 0);
  EXPECT_EQ(spec.local_rank_of({"worker", 2}), 1);
}

TEST(ClusterSpec, TheLargestIndexIsKept) {
  const auto gap = ClusterSpec::FromJson(R"({"ps": {"2147483647": "a:1"}})", "c.json").status();
  EXPECT_THAT(std::string(gap.message()), ::testing::HasSubstr("ps/0 is missing, but ps/2147483647"));
  const std::string text = R"({"ps":["a:1"],"worker":{"2147483647":"b:2"}})";
  EXPECT_EQ(Spec(text).ToJson(), text);
}

TEST(ClusterSpec, AnUnlistedEvaluatorIsAloneOnItsHost) {
  const ClusterSpec spec = Spec(R"({"ps": ["a:1"], "worker": ["b:1", "a:2"]})");
  EXPECT_EQ(spec.tasks_on_host_of({"evaluator", 0}), 1);
  EXPECT_EQ(spec.local_rank_of({"evaluator", 0}), 0);
}

TEST(ClusterSpec, HashDependsOnlyOnTheServersAndTheirOrder) {
  const uint64_t hash = Spec(R"({"ps": ["a:1", "b:1"], "worker": ["c:1"]})").Hash();
  EXPECT_EQ(hash, Spec(R"({"ps": {"1": "b:1", "0": "a:1"}, "worker": {"7": "d:1"}})").Hash());
  EXPECT_NE(hash, Spec(R"({"ps": ["b:1", "a:1"], "worker": ["c:1"]})").Hash());
  EXPECT_NE(hash, Spec(R"({"ps": ["a:1"], "worker": ["c:1"]})").Hash());
}

// FNV-1a of "a:1,b:1", computed independently: after a change, old and new processes could not connect.
TEST(ClusterSpec, HashIsTheSameOnEveryMachine) {
  EXPECT_EQ(Spec(R"({"ps": ["a:1", "b:1"]})").Hash(), 0x8001A7261948F6E2u);
}

TEST(ClusterSpec, ARefusedTaskChangesNothing) {
  ClusterSpec spec = Spec(R"({"ps": ["a:1"]})");
  EXPECT_EQ(spec.Add({"ps", 0}, {"b", 1}).message(), "ps/0: is listed twice");
  EXPECT_EQ(spec.Add({"worker", 0}, {"a", 1}).message(), "worker/0: a:1 is already the address of ps/0");
  EXPECT_EQ(spec.Add({"worker", -1}, {"b", 1}).message(), "worker/-1: the index is negative");
  EXPECT_EQ(spec.Add({"trainer", 0}, {"b", 1}).message(),
            "trainer/0: a job is one of chief, evaluator, ps, worker");
  EXPECT_EQ(spec.ToJson(), R"({"ps":["a:1"]})");
}

}  // namespace
}  // namespace cairn::net
