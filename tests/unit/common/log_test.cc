#include "common/core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cairn {
namespace {

using ::testing::EndsWith;
using ::testing::MatchesRegex;

TEST(JsonLogLine, IsOneLineForAnyText) {
  const std::string line = JsonLogLine("worker/1", LogLevel::kWarning, "a \"b\"\nc \xff");
  EXPECT_THAT(line, EndsWith("}\n"));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["task"], "worker/1");
  EXPECT_EQ(json["message"], "a \"b\"\nc \xEF\xBF\xBD") << "invalid UTF-8 is replaced";
  EXPECT_THAT(json["time"].get<std::string>(), MatchesRegex("20[0-9-]+T[0-9:]+\\.[0-9]+Z"));
}

}  // namespace
}  // namespace cairn
