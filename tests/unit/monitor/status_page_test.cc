#include "common/monitor/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace cairn::monitor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

StatusPage PageWith(std::vector<double> values) {
  StatusPage page = {.task = "ps/0", .state = "ready", .headline = ""};
  page.curves = {{"loss", "1", 0}};
  for (size_t i = 0; i < values.size(); ++i) page.history.push_back({static_cast<double>(i), {values[i]}});
  return page;
}

TEST(RenderHtml, NamesOfTheUserDoNotBecomeMarkup) {
  const std::string html =
      RenderHtml({.task = "ps/0", .state = "failed", .headline = "<script>alert('&')</script>"});
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
}

TEST(RenderHtml, LoadsNothingExternal) {
  const std::string html = RenderHtml(PageWith({1, 2}));
  EXPECT_THAT(html, Not(HasSubstr("http:")));
  EXPECT_THAT(html, Not(HasSubstr("https:")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
}

TEST(RenderHtml, AGapInTheValuesIsAGapInTheLine) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(CountOf(RenderHtml(PageWith({1, 2, 3})), "class=\"line\""), 1u);
  const std::string gap = RenderHtml(PageWith({1, 2, nan, 3, 4}));
  EXPECT_EQ(CountOf(gap, "class=\"line\""), 2u);
  EXPECT_THAT(gap, Not(HasSubstr("nan,")));
}

TEST(RenderHtml, ShowsATextIfThereAreNoValues) {
  EXPECT_THAT(RenderHtml(PageWith({})), HasSubstr("nothing yet"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(RenderHtml(PageWith({nan, nan})), HasSubstr("nothing yet"));
}

TEST(RenderHtml, AConstantCurveIsDrawn) {
  for (const double value : {0.0, 5.0, -5.0}) {
    EXPECT_EQ(CountOf(RenderHtml(PageWith({value, value, value})), "class=\"line\""), 1u) << value;
  }
}

TEST(Numbers, AreFormattedForPeople) {
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
  EXPECT_EQ(WithCommas(-999), "-999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(InBytes(12), "12 B");
  EXPECT_EQ(InBytes(1536), "1.5 KiB");
  EXPECT_EQ(InBytes(200.0 * 1024 * 1024), "200 MiB");
  EXPECT_EQ(InTime(0.0000005), "0 us");
  EXPECT_EQ(InTime(0.0123), "12.3 ms");
  EXPECT_EQ(InTime(61), "1 min 01 s");
  EXPECT_EQ(InTime(3720), "1 h 02 min");
}

}  // namespace
}  // namespace cairn::monitor
