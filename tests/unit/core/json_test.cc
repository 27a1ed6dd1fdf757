#include "common/core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

TEST(ParseJson, AKeyThatStandsTwiceIsRefused) {
  const auto status = ParseJson("{\"ps\": 1, \"x\": {\"ps\": 2}, \"ps\": 3}", "c").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("key \"ps\" appears twice"));
}

TEST(ParseJson, TheSameKeyInTwoObjectsIsFine) {
  EXPECT_TRUE(ParseJson("{\"a\": {\"k\": 1}, \"b\": {\"k\": 1}}", "c").ok());
}

TEST(ParseJson, ANumberBeyondDoubleIsAnErrorAndNotAnException) {
  EXPECT_FALSE(ParseJson("{\"a\": 1e990}", "c").ok());
}

TEST(ParseJson, InvalidUtf8IsAnErrorAndNotAnException) {
  EXPECT_FALSE(ParseJson("{\"a\": \"\xff\xfe\"}", "c").ok());
}

}  // namespace
}  // namespace cairn
