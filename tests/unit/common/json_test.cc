#include "common/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace cairn {
namespace {

using ::testing::HasSubstr;

TEST(ParseJson, ReadsCommentsAndValues) {
  auto document = ParseJson("{ // the servers\n \"ps\": [\"a:1\"] }", "cluster.json");
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)["ps"][0], "a:1");
}

TEST(ParseJson, BadSyntaxNamesSourceAndLine) {
  const auto status = ParseJson("{\n\"ps\": [\n}", "cluster.json").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cluster.json:3:"));
}

TEST(ParseJson, ADuplicateKeyIsRefused) {
  const auto status = ParseJson("{\"ps\": 1, \"x\": {\"ps\": 2}, \"ps\": 3}", "c").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("key \"ps\" appears twice"));
}

TEST(ParseJson, TheSameKeyInTwoObjectsIsFine) {
  EXPECT_TRUE(ParseJson("{\"a\": {\"k\": 1}, \"b\": {\"k\": 1}}", "c").ok());
}

TEST(ParseJson, DeepNestingIsRefusedBeforeAnyRecursion) {
  for (const auto& [open, close] : {std::pair{"[", "]"}, {"{\"a\":", "}"}}) {
    for (int depth : {100, 1000, 300'000}) {
      std::string text = "[", end = "]";
      for (int i = 0; i < depth; ++i) text += open, end += close;
      const auto document = ParseJson(text + "1" + std::string(end.rbegin(), end.rend()), "c");
      EXPECT_EQ(document.ok(), depth == 100) << depth << document.status();
      if (depth == 100) continue;
      EXPECT_THAT(std::string(document.status().message()), HasSubstr("c: values nested more than 200 deep"));
    }
  }
}

TEST(LinesOfElements, CountsThroughStringsCommentsAndNesting) {
  const auto lines = LinesOfElements(R"({ // [ no array
  "config": {"name": "a \"quoted\" [ name",
    "layers": [
      {"kernel": [3,
                  4]}, /* a comment
      over lines */ "two",
      null
  ]}})");
  EXPECT_EQ(lines, (std::map<std::string, int64_t>{{"/config/layers/0", 4},
                                                   {"/config/layers/0/kernel/0", 4},
                                                   {"/config/layers/0/kernel/1", 5},
                                                   {"/config/layers/1", 6},
                                                   {"/config/layers/2", 7}}));
}

TEST(ParseJson, ANumberBeyondDoubleIsAnErrorAndNotAnException) {
  EXPECT_FALSE(ParseJson("{\"a\": 1e990}", "c").ok());
}

TEST(WithFiniteNumbers, InfiniteNumbersOutsideStringsBecomeTheLargest) {
  const std::string text = R"({"Infinity \\\"": [-Infinity, Infinity], "a\\": "-Infinity", "b": 1e3})";
  const auto document = ParseJson(WithFiniteNumbers(text), "m");
  ASSERT_TRUE(document.ok()) << document.status();
  constexpr double kLargest = std::numeric_limits<double>::max();
  EXPECT_EQ(*document,
            (nlohmann::json{{"Infinity \\\"", {-kLargest, kLargest}}, {"a\\", "-Infinity"}, {"b", 1e3}}));
  EXPECT_EQ(static_cast<float>((*document)["Infinity \\\""][0].get<double>()),
            -std::numeric_limits<float>::infinity());
}

TEST(ParseJson, InvalidUtf8IsAnErrorAndNotAnException) {
  EXPECT_FALSE(ParseJson("{\"a\": \"\xff\xfe\"}", "c").ok());
}

}  // namespace
}  // namespace cairn
