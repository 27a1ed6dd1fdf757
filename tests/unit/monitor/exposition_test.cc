#include "common/monitor/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace cairn::monitor {
namespace {

using ::testing::HasSubstr;

TEST(Exposition, FamiliesAreIntroducedAndSamplesEscaped) {
  Exposition out;
  out.Counter("cairn_pushes_total", "Pushes.\nBy \\ outcome.");
  out.Sample({{"outcome", "a\"b\\c\nd"}, {"task", "ps/0"}}, 3);
  out.Gauge("cairn_loss", "Loss.", 0.125);
  EXPECT_EQ(out.text(),
            "# HELP cairn_pushes_total Pushes.\\nBy \\\\ outcome.\n# TYPE cairn_pushes_total counter\n"
            "cairn_pushes_total{outcome=\"a\\\"b\\\\c\\nd\",task=\"ps/0\"} 3\n"
            "# HELP cairn_loss Loss.\n# TYPE cairn_loss gauge\ncairn_loss 0.125\n");
}

TEST(Exposition, HistogramsAreCumulativeAndEndAtInfinity) {
  Distribution distribution({0.5, 1});
  for (const double value : {0.25, 0.75, 0.75, 4.0}) distribution.Add(value);
  Exposition out;
  out.Histogram("t_seconds", "Times.", distribution);
  EXPECT_THAT(out.text(),
              HasSubstr("t_seconds_bucket{le=\"0.5\"} 1\nt_seconds_bucket{le=\"1\"} 3\n"
                        "t_seconds_bucket{le=\"+Inf\"} 4\nt_seconds_sum 5.75\nt_seconds_count 4\n"));
}

TEST(Exposition, NumbersArePrintedExactly) {
  Exposition out;
  out.Gauge("a", "A.", 123456789012.0);
  out.Gauge("b", "B.", std::numeric_limits<double>::quiet_NaN());
  out.Gauge("c", "C.", -std::numeric_limits<double>::infinity());
  EXPECT_THAT(out.text(), HasSubstr("\na 123456789012\n"));
  EXPECT_THAT(out.text(), HasSubstr("\nb NaN\n"));
  EXPECT_THAT(out.text(), HasSubstr("\nc -Inf\n"));
}

}  // namespace
}  // namespace cairn::monitor
