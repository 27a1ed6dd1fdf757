// Damaged cluster configurations, from fixed seeds: a cluster or a status, never a crash.
#include <gtest/gtest.h>

#include "common/core/random.h"
#include "common/net/cluster_spec.h"

namespace cairn::net {
namespace {

// Also pieces that mean something here, so that many mutants get past the JSON parser.
std::string Mutated(std::string text, Random& random) {
  constexpr const char* kPieces[] = {
      "{",          "}",    "[",  "]",       ",",   ":",    "\"",      "null",    "-1",
      "\"\"",       "[]",   "{}", "\"ps\"",  "0",   "true", "\\u0000", "[::1]:1", "99999999999999999999",
      "\"worker\"", "\xFF", "/*", "\"a:1\"", "1e99"};
  const uint32_t times = 1 + random.NextBelow(3);
  for (uint32_t i = 0; i < times && !text.empty(); ++i) {
    const size_t at = random.NextBelow(static_cast<uint32_t>(text.size()));
    const char* piece = kPieces[random.NextBelow(std::size(kPieces))];
    const uint32_t kind = random.NextBelow(4);
    if (kind == 0) text[at] = static_cast<char>(random.NextBelow(256));
    if (kind == 1) text.erase(at, 1 + random.NextBelow(6));
    if (kind == 2) text.insert(at, piece);
    if (kind == 3) text.replace(at, 1 + random.NextBelow(10), piece);
  }
  return text;
}

TEST(ClusterMutations, GiveAClusterOrAStatus) {
  const std::string kSeeds[] = {
      R"({"cluster": {"ps": ["a:1", "a:2"], "worker": ["b:1", "[::1]:2"]}, "task": {"type": "worker", "index": 1}})",
      R"({"sparseCluster": {"worker": {"3": "w3:1"}, "ps": ["p0:1"]}, "task": {"type": "worker", "index": "3"}})",
      R"({"cluster": {"worker": {}, "ps": ["p2:1"]}, "task": {"type": "ps", "index": 2}})",
      R"({"ps": {"0": "a:1", "1": "b:2"}, "chief": ["c:1"], "evaluator": ["d:1"], "other": 3})",
  };
  Random random(1, "cluster");
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = Mutated(kSeeds[i % 4], random);
    const auto cluster = ResolveCluster({}, text.c_str(), /*require_task=*/i % 2 == 0);
    ++(cluster.ok() ? accepted : refused);
    if (!cluster.ok()) {
      EXPECT_FALSE(cluster.status().message().empty());
    } else if (cluster->spec.knows_all_servers()) {
      // What was accepted is sound: its canonical form reads as itself.
      const auto again = ClusterSpec::FromJson(cluster->spec.ToJson(), "again");
      ASSERT_TRUE(again.ok()) << text << ": " << again.status();
      EXPECT_EQ(again->Hash(), cluster->spec.Hash());
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace cairn::net
