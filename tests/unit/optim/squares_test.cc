#include "optim/store/squares.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::optim {
namespace {

using testing::ElementsAre;
using testing::Pair;

// 2^53 + 1 is rounded to 2^53, so the order of the additions shows.
constexpr double kLarge = 9007199254740992;

TEST(AddUp, AddsByRowsInAnyOrderOfTheSlices) {
  const SliceSquares top = {"a", 0, {{.gradient = 1}, {.gradient = 1}}};
  const SliceSquares bottom = {"a", 2, {{.gradient = kLarge}, {.gradient = 1}}};
  const double in_order = ((1.0 + 1.0) + kLarge) + 1.0;
  ASSERT_NE(in_order, ((kLarge + 1.0) + 1.0) + 1.0);
  EXPECT_THAT(AddUp({top, bottom}), ElementsAre(Pair("a", Squares{.gradient = in_order})));
  EXPECT_THAT(AddUp({bottom, top}), ElementsAre(Pair("a", Squares{.gradient = in_order})));
}

TEST(AddUp, GivesTheSameBitsForWholeAndSplitVariables) {
  const std::vector<Squares> bands = {{.values = 1}, {.values = 1}, {.values = kLarge}, {.values = 1}};
  const auto whole = AddUp({{"a", 0, {Total(bands)}}});
  const auto split = AddUp({{"a", 0, {bands[0]}}, {"a", 1, {bands[1], bands[2], bands[3]}}});
  EXPECT_EQ(whole, split);
}

TEST(AddUp, KeepsVariablesAndKindsOfSumsSeparate) {
  EXPECT_THAT(AddUp({{"b", 0, {{.gradient = 1, .values = 2, .direction = 4}}},
                     {"a", 5, {{.gradient = 8}}},
                     {"b", 9, {{.gradient = 16, .values = 32, .direction = 64}}}}),
              ElementsAre(Pair("a", Squares{.gradient = 8}),
                          Pair("b", Squares{.gradient = 17, .values = 34, .direction = 68})));
}

TEST(AllGradients, AreAddedInTheOrderOfNames) {
  EXPECT_EQ(AllGradients({{"c", {.gradient = 1}}, {"b", {.gradient = kLarge}}, {"a", {.gradient = 1}}}),
            (1.0 + kLarge) + 1.0);
  EXPECT_EQ(AllGradients({}), 0);
}

}  // namespace
}  // namespace cairn::optim
