#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/cluster_files/plan.h"
#include "cli/cluster_files/quote.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int CountOf(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(ClusterFiles, TasksHaveHostsOfTheirNames) {
  EXPECT_EQ(WriteClusterSpec({.servers = 1, .workers = 2}).value(),
            "{\"ps\":[\"ps0:2222\"],\"worker\":[\"worker0:2222\",\"worker1:2222\"]}\n");
}

TEST(ClusterFiles, GivenHostsAreAssignedRoundRobinWithConsecutivePorts) {
  EXPECT_EQ(WriteClusterSpec({.servers = 2, .workers = 3, .port = 7000, .hosts = {"a", "b"}}).value(),
            "{\"ps\":[\"a:7000\",\"b:7000\"],\"worker\":[\"a:7001\",\"b:7001\",\"a:7002\"]}\n");
}

TEST(ClusterFiles, AnInvalidHostIsRefused) {
  const auto text = WriteClusterSpec({.hosts = {"no host"}});
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("no host"));
}

TEST(ClusterFiles, EveryFormatSupportsAHundredTasks) {
  const ClusterPlan plan = {.servers = 40, .workers = 60, .worker_flags = {"--epochs=5"}};
  for (const auto write : {WriteClusterSpec, WriteShell, WriteCompose, WriteKubernetes}) {
    const auto text = write(plan);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(*text, Not(::testing::ContainsRegex("@[A-Z_]+@")));  // a template's name
  }
  const std::string compose = *WriteCompose(plan);
  EXPECT_EQ(CountOf(compose, "{<<: *ps, "), 40);
  EXPECT_EQ(CountOf(compose, "{<<: *worker, "), 60);
}

TEST(ClusterFiles, ComposeGivesEveryTaskTheSameCluster) {
  const std::string compose = *WriteCompose({.servers = 2, .workers = 1, .port = 3000});
  EXPECT_THAT(
      compose,
      HasSubstr(R"(TF_CONFIG: '{"cluster": {"ps":["ps0:3000","ps1:3000"],"worker":["worker0:3000"]}}')"));
  EXPECT_THAT(compose, HasSubstr("    ps1: {condition: service_healthy}\n"));
  EXPECT_THAT(compose, HasSubstr("test: [CMD, cairn, health, \"localhost:3000\"]"));
}

TEST(ClusterFiles, OnlyAClusterWithGpusReservesThem) {
  EXPECT_THAT(*WriteCompose({}), Not(HasSubstr("nvidia")));
  EXPECT_THAT(*WriteCompose({.gpus = 2}), HasSubstr("{driver: nvidia, count: 2, capabilities: [gpu]}"));
  EXPECT_THAT(*WriteKubernetes({}), Not(HasSubstr("nvidia")));
  EXPECT_THAT(*WriteKubernetes({.gpus = 2}), HasSubstr("nvidia.com/gpu: 2"));
  EXPECT_THAT(*WriteKubernetes({.gpus = 2}), HasSubstr("image: cairn-worker-gpu:latest"));
}

TEST(ClusterFiles, InKubernetesTheFirstWorkerIsTheChief) {
  const std::string one = *WriteKubernetes({.workers = 1, .name = "job"});
  EXPECT_THAT(one, HasSubstr(R"({"chief":["job-chief-0.job:2222"],"ps":["job-ps-0.job:2222"]})"));
  EXPECT_THAT(one, Not(HasSubstr("name: job-worker\n")));
  const std::string three = *WriteKubernetes({.workers = 3, .name = "job"});
  EXPECT_THAT(three, HasSubstr(R"("worker":["job-worker-0.job:2222","job-worker-1.job:2222"])"));
  EXPECT_THAT(three, HasSubstr("  completions: 2\n"));
}

TEST(ClusterFiles, AModelFileIsIncludedInTheConfigMap) {
  EXPECT_THAT(*WriteKubernetes({.model = "{\n\n \"layers\": []\n}\n"}),
              HasSubstr("  model.json: |\n    {\n\n     \"layers\": []\n    }\n---\n"));
  EXPECT_THAT(*WriteKubernetes({.name = "job"}), HasSubstr("configMap: {name: job-model}"));
}

TEST(ClusterFiles, WordsAreQuotedOnlyIfNecessary) {
  EXPECT_EQ(QuoteForShell("--epochs=5"), "--epochs=5");
  EXPECT_EQ(QuoteForShell("it's"), R"('it'\''s')");
  EXPECT_EQ(QuoteForShell(""), "''");
  EXPECT_EQ(QuoteForYaml("--epochs=5"), "--epochs=5");
  EXPECT_EQ(QuoteForYaml("5"), "'5'");  // else a number
  EXPECT_EQ(QuoteForYaml("--metrics=a: 'b'"), "'--metrics=a: ''b'''");
}

TEST(ClusterFiles, LineBreaksAreEscaped) {
  EXPECT_EQ(QuoteForShell("a'\n\\\0011"), R"($'a\'\012\\\0011')");
  EXPECT_EQ(QuoteForShell("\xff!"), R"($'\377!')");
  EXPECT_EQ(QuoteForYaml("a\"\n\\\t"), R"("a\"\u000A\\\u0009")");
  EXPECT_EQ(QuoteForYaml("\xC2\x85\xE2\x80\xA8 \xC3\xA9"), "\"\\u0085\\u2028 \xC3\xA9\"");
}

TEST(ClusterFiles, NamesThatYamlDoesNotReadAsStringsAreQuoted) {
  EXPECT_EQ(NameForYaml("cairn-2"), "cairn-2");
  for (const char* name : {"yes", "No", "null", "1e3", "0x1F", "12", "", "~", "a=b"}) {
    EXPECT_EQ(NameForYaml(name), absl::StrCat("'", name, "'"));
  }
  EXPECT_THAT(*WriteKubernetes({.name = "on"}), HasSubstr("  name: 'on'\n"));
  EXPECT_THAT(*WriteKubernetes({.name = "on"}), HasSubstr("  name: on-ps\n"));
}

TEST(ClusterFiles, DollarSignsAreNotSubstituted) {
  EXPECT_THAT(*WriteCompose({.worker_flags = {"--label_column=price_$"}}),
              HasSubstr("    - '--label_column=price_$$'\n"));
  EXPECT_THAT(*WriteKubernetes({.worker_flags = {"--label_column=$(HOSTNAME)"}}),
              HasSubstr("            - '--label_column=$$(HOSTNAME)'\n"));
  EXPECT_THAT(*WriteShell({.worker_flags = {"--label_column=$(reboot)"}}),
              HasSubstr("flags=('--label_column=$(reboot)' \"$@\")"));
}

TEST(ClusterFiles, AModelKeepsLeadingSpacesAndControlCharacters) {
  EXPECT_THAT(*WriteKubernetes({.model = "  {\n}\n"}), HasSubstr("  model.json: |2\n      {\n    }\n"));
  EXPECT_THAT(*WriteKubernetes({.model = "{\r\n}"}), HasSubstr("  model.json: \"{\\u000D\\u000A}\"\n"));
}

TEST(ClusterFiles, BytesThatAreNotUtf8AreDetected) {
  EXPECT_TRUE(IsUtf8("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  for (const char* bytes : {"\xff", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"}) {
    EXPECT_FALSE(IsUtf8(bytes));
  }
}

}  // namespace
}  // namespace cairn::cli
