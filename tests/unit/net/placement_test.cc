#include "common/net/cluster/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/core/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

using testing::HasSubstr;

std::vector<VariableInfo> Variables(const std::vector<Shape>& shapes) {
  std::vector<VariableInfo> variables;
  int64_t offset = 0;
  for (const Shape& shape : shapes) {
    variables.push_back({absl::StrCat("v", variables.size()), shape, offset});
    offset += shape.num_elements();
  }
  return variables;
}

int64_t Load(const std::vector<Slice>& slices) {
  int64_t load = 0;
  for (const Slice& slice : slices) load += slice.elements();
  return load;
}

// The bound of greedy placement: no server has more than an even share plus the largest part.
TEST(Placement, NoServerHasMoreThanAnEvenShareAndTheLargestPart) {
  Random random(3, "placement");
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Shape> shapes;
    const uint32_t count = 1 + random.NextBelow(20);
    for (uint32_t i = 0; i < count; ++i) {
      shapes.push_back(Shape({int64_t{1 + random.NextBelow(40)}, int64_t{1 + random.NextBelow(30)}}));
    }
    const auto variables = Variables(shapes);
    const int servers = 1 + static_cast<int>(random.NextBelow(7));
    const auto placed = PlaceVariables(variables, {.servers = servers, .split_bytes = 1000});
    int64_t total = 0, largest = 0, heaviest = 0;
    for (const auto& slices : placed) {
      total += Load(slices);
      heaviest = std::max(heaviest, Load(slices));
      for (const Slice& slice : slices) largest = std::max(largest, slice.elements());
    }
    ASSERT_EQ(total,
              std::accumulate(shapes.begin(), shapes.end(), int64_t{0},
                              [](int64_t sum, const Shape& shape) { return sum + shape.num_elements(); }));
    ASSERT_LE(heaviest, (total + servers - 1) / servers + largest);
    ASSERT_TRUE(Layout::Create(variables, placed).ok()) << "every row is on one server";
  }
}

TEST(Placement, ALargeVariableIsSplitByRowsOverAllServers) {
  const auto placed = PlaceVariables(Variables({Shape({10, 100})}), {.servers = 3, .split_bytes = 400});
  std::vector<int64_t> rows;
  for (const auto& slices : placed) {
    ASSERT_EQ(slices.size(), 1u);
    rows.push_back(slices[0].row_end - slices[0].row_begin);
  }
  std::sort(rows.begin(), rows.end());
  EXPECT_THAT(rows, testing::ElementsAre(3, 3, 4));
}

TEST(Placement, AVariableOfOneRowIsNotSplit) {
  const auto placed =
      PlaceVariables(Variables({Shape({1, 1000}), Shape({})}), {.servers = 3, .split_bytes = 4});
  size_t parts = 0;
  for (const auto& slices : placed) parts += slices.size();
  EXPECT_EQ(parts, 2u);
}

TEST(Placement, AVariableIsSplitBetweenBandsOfRows) {
  EXPECT_EQ(RowsPerBand(Shape({})), 1);
  EXPECT_EQ(RowsPerBand(Shape({0, 3})), 1);
  EXPECT_EQ(RowsPerBand(Shape({256, 3})), 1);
  EXPECT_EQ(RowsPerBand(Shape({257, 3})), 2);
  EXPECT_EQ(RowsPerBand(Shape({1001, 3})), 4);
  const auto placed =
      PlaceVariables(Variables({Shape({1001, 3}), Shape({257})}), {.servers = 7, .split_bytes = 4});
  for (const auto& slices : placed) {
    ASSERT_EQ(slices.size(), 2u);
    for (const Slice& slice : slices) {
      EXPECT_TRUE(slice.whole_bands()) << slice.row_begin << " to " << slice.row_end;
      EXPECT_GT(slice.elements(), 0);
    }
  }
  EXPECT_TRUE(Layout::Create(Variables({Shape({1001, 3}), Shape({257})}), placed).ok());
  EXPECT_FALSE((Slice{"v", Shape({1001, 3}), 0, 501, 0}.whole_bands()));
  EXPECT_FALSE((Slice{"v", Shape({1001, 3}), 501, 1001, 0}.whole_bands()));
  EXPECT_TRUE((Slice{"v", Shape({1001, 3}), 500, 1001, 0}.whole_bands()));
}

TEST(Placement, AVariableHasNoMorePartsThanBands) {
  const auto placed = PlaceVariables(Variables({Shape({10000})}), {.servers = 300, .split_bytes = 4});
  size_t parts = 0;
  for (const auto& slices : placed) parts += slices.size();
  EXPECT_EQ(parts, 250u);  // bands of 40 rows
}

TEST(Placement, EverySliceKeepsItsVariablesMovingAverage) {
  auto variables = Variables({Shape({4, 100}), Shape({4, 100})});
  variables[1].moving_average_momentum = 0.5f;
  for (const auto& slices : PlaceVariables(variables, {.servers = 2, .split_bytes = 400})) {
    ASSERT_EQ(slices.size(), 2u);
    EXPECT_FALSE(slices[0].whole());
    EXPECT_EQ(slices[0].moving_average_momentum, std::nullopt);
    EXPECT_EQ(slices[1].moving_average_momentum, 0.5f);
    EXPECT_EQ(Slice::FromProto(slices[0].ToProto())->moving_average_momentum, std::nullopt);
    EXPECT_EQ(Slice::FromProto(slices[1].ToProto())->moving_average_momentum, 0.5f);
  }
}

TEST(Placement, AVariableIsNotSplitIfItsConstraintNeedsAllRows) {
  auto variables = Variables({Shape({1024, 256}), Shape({1024, 256}), Shape({1024, 256})});
  variables[0].constraint = Constraint{.axes = {0}, .max_norm = 2};
  variables[1].constraint = Constraint{.axes = {1}, .max_norm = 2};
  variables[2].constraint = Constraint{.non_negative = true};
  for (const int64_t split_bytes : {0, 4096}) {
    std::vector<int> slices_of(3);
    for (const auto& slices : PlaceVariables(variables, {.servers = 5, .split_bytes = split_bytes})) {
      for (const Slice& slice : slices) {
        const auto found = std::find_if(variables.begin(), variables.end(),
                                        [&](const VariableInfo& each) { return each.name == slice.name; });
        ++slices_of[static_cast<size_t>(found - variables.begin())];
        EXPECT_EQ(slice.constraint, found->constraint);
        EXPECT_EQ(Slice::FromProto(slice.ToProto())->constraint, found->constraint);
      }
    }
    EXPECT_EQ(slices_of[0], 1);
    EXPECT_GT(slices_of[1], 1);
    EXPECT_GT(slices_of[2], 1);
  }
}

TEST(Placement, ByDefaultServersAreBalanced) {
  Random random(5, "level");
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Shape> shapes;
    const uint32_t count = 1 + random.NextBelow(12);
    int64_t band_bytes = 0;
    for (uint32_t i = 0; i < count; ++i) {
      shapes.push_back(Shape({int64_t{2 + random.NextBelow(5000)}, int64_t{1 + random.NextBelow(3000)}}));
      band_bytes = std::max(band_bytes, RowsPerBand(shapes.back()) * shapes.back().row_elements() * 4);
    }
    const auto variables = Variables(shapes);
    const int servers = 1 + static_cast<int>(random.NextBelow(9));
    const auto placed = PlaceVariables(variables, {.servers = servers});
    int64_t total = 0, heaviest = 0;
    for (const auto& slices : placed) {
      total += Load(slices) * 4;
      heaviest = std::max(heaviest, Load(slices) * 4);
      for (const Slice& slice : slices) {
        EXPECT_TRUE(slice.whole_bands());
        EXPECT_TRUE(slice.whole() || slice.elements() * 4 >= (128 << 10)) << slice.elements();
        EXPECT_EQ(std::count_if(slices.begin(), slices.end(),
                                [&](const Slice& other) { return other.name == slice.name; }),
                  1);
      }
    }
    ASSERT_LE(heaviest, total / servers + (256 << 10) + 4 * band_bytes) << "trial " << trial;
    ASSERT_TRUE(Layout::Create(variables, placed).ok()) << "every row is on one server";
  }
}

TEST(Placement, TheLargestVariablesFillTheRestOfTheShares) {
  // 64 MiB and 12 MiB on two servers: the large variable is not split in the middle.
  const auto placed = PlaceVariables(Variables({Shape({768, 4096}), Shape({4096, 4096})}), {.servers = 2});
  EXPECT_EQ(Load(placed[0]), Load(placed[1]));
  EXPECT_EQ(placed[0].size() + placed[1].size(), 3u);
}

TEST(Placement, VariablesThatFitStayWhole) {
  const auto placed =
      PlaceVariables(Variables({Shape({512, 512}), Shape({512, 512}), Shape({512, 512}), Shape({512, 512})}),
                     {.servers = 2});
  for (const auto& slices : placed) {
    ASSERT_EQ(slices.size(), 2u);
    EXPECT_TRUE(slices[0].whole() && slices[1].whole());
  }
}

TEST(Placement, SmallVariablesStayWholeByDefault) {
  const auto placed =
      PlaceVariables(Variables({Shape({1000}), Shape({1000})}), {.servers = 2, .split_bytes = 0});
  for (const auto& slices : placed) EXPECT_EQ(slices.size(), 1u);
}

TEST(Placement, WithFewerVariablesThanServersSomeHaveNone) {
  const auto variables = Variables({Shape({5}), Shape({3})});
  const auto placed = PlaceVariables(variables, {.servers = 4, .split_bytes = 0});
  EXPECT_EQ(Load(placed[0]), 5);
  EXPECT_EQ(Load(placed[1]), 3);
  EXPECT_TRUE(placed[2].empty());
  const Layout layout = Layout::Create(variables, placed).value();
  EXPECT_EQ(layout.arena_size(3), 0);
  EXPECT_TRUE(layout.covers(3));
}

TEST(Placement, DependsOnlyOnItsArguments) {
  const auto variables = Variables({Shape({8, 8}), Shape({64}), Shape({8, 8}), Shape({7})});
  const auto once = PlaceVariables(variables, {.servers = 3, .split_bytes = 100});
  const auto again = PlaceVariables(variables, {.servers = 3, .split_bytes = 100});
  for (size_t server = 0; server < once.size(); ++server) {
    ASSERT_EQ(once[server].size(), again[server].size());
    int64_t offset = 0;
    for (size_t i = 0; i < once[server].size(); ++i) {
      EXPECT_EQ(once[server][i].ToProto().SerializeAsString(),
                again[server][i].ToProto().SerializeAsString());
      EXPECT_EQ(once[server][i].offset, offset) << "slices are contiguous";
      offset += once[server][i].elements();
    }
  }
}

class LayoutRefusal : public testing::Test {
 protected:
  std::string Refusal(const std::vector<std::vector<Slice>>& slices) {
    const auto layout = Layout::Create(variables_, slices);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(layout.status().message());
  }
  const std::vector<VariableInfo> variables_ = Variables({Shape({4, 2})});
};

TEST_F(LayoutRefusal, NamesRowsThatAreMissingOrDuplicate) {
  EXPECT_THAT(Refusal({{}}), HasSubstr("'v0' is on no server"));
  EXPECT_THAT(Refusal({{{"v0", Shape({4, 2}), 0, 3, 0}}}), HasSubstr("'v0': row 3 is on no server"));
  EXPECT_THAT(Refusal({{{"v0", Shape({4, 2}), 1, 4, 0}}}), HasSubstr("'v0': row 0 is on no server"));
  EXPECT_THAT(Refusal({{{"v0", Shape({4, 2}), 0, 3, 0}}, {{"v0", Shape({4, 2}), 2, 4, 0}}}),
              HasSubstr("'v0': row 2 is on two servers"));
}

TEST_F(LayoutRefusal, NamesAnotherShapeAndItsServer) {
  EXPECT_THAT(Refusal({{}, {{"v0", Shape({2, 4}), 0, 2, 0}}}), HasSubstr("on ps/1"));
}

TEST(Layout, KnowsTheServerOfEachRow) {
  const std::vector<std::vector<Slice>> slices = {
      {{"v1", Shape({2}), 0, 2, 0}, {"v0", Shape({4, 2}), 3, 4, 2}}, {{"v0", Shape({4, 2}), 0, 3, 0}}};
  const auto layout = Layout::Create(Variables({Shape({4, 2}), Shape({2})}), slices);
  ASSERT_TRUE(layout.ok());
  for (int64_t row = 0; row < 4; ++row) EXPECT_EQ(layout->partitioner_of(0).ServerOf(row), row < 3 ? 1 : 0);
  EXPECT_EQ(layout->partitioner_of(1).ServerOf(1), 0);
}

TEST(Layout, RefusesAVariableThatIsListedTwice) {
  auto variables = Variables({Shape({4}), Shape({4})});
  variables[1].name = "v0";
  const std::vector<std::vector<Slice>> slices = {{{"v0", Shape({4}), 0, 4, 0}}};
  const auto layout = Layout::Create(variables, slices);
  EXPECT_EQ(layout.status(), absl::InvalidArgumentError("variable 'v0' is listed twice"));
}

// Otherwise a pull would overwrite another variable, or a push would read from it.
TEST_F(LayoutRefusal, NamesASliceThatDoesNotFollowThoseBeforeIt) {
  for (const int64_t offset : {int64_t{-1}, int64_t{3}, int64_t{5}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(Refusal({{}, {{"v0", Shape({4, 2}), 0, 2, 0}, {"v0", Shape({4, 2}), 2, 4, offset}}}),
              absl::StrCat("variable 'v0' begins at element ", offset,
                           " of ps/1, but the variables before it end at 4"));
  }
}

TEST(SliceProto, RefusesRowsOutsideTheShape) {
  v1::VariableSlice proto = Slice{"a", Shape({4}), 0, 4, 0}.ToProto();
  EXPECT_TRUE(Slice::FromProto(proto).ok());
  proto.set_row_end(5);
  EXPECT_THAT(std::string(Slice::FromProto(proto).status().message()), HasSubstr("'a': invalid rows 0 to 5"));
  proto.set_row_end(1);
  proto.set_row_begin(2);
  EXPECT_FALSE(Slice::FromProto(proto).ok());
}

TEST(SliceProto, RefusesAConstraintThatDoesNotFit) {
  Slice slice = {"a", Shape({4, 2}), 0, 2, 0};
  const auto fault = [&](const Constraint& constraint) {
    slice.constraint = constraint;
    return std::string(Slice::FromProto(slice.ToProto()).status().message());
  };
  EXPECT_EQ(fault({.axes = {1}, .max_norm = 2}), "");
  EXPECT_EQ(fault({.axes = {2}, .max_norm = 2}),
            "variable 'a': constraint norms over axes [2] in [0, 2] at rate 1: shape [4,2] has no axis 2");
  EXPECT_EQ(
      fault({.axes = {0}, .max_norm = 2}),
      "variable 'a': constraint norms over axes [0] in [0, 2] at rate 1 needs all rows, got 0 to 2 of shape "
      "[4,2]");
}

TEST(SliceProto, RefusesAMomentumOutsideZeroToOne) {
  v1::VariableSlice proto = Slice{"a", Shape({4}), 0, 4, 0}.ToProto();
  for (const float momentum : {-0.1f, 1.1f, std::numeric_limits<float>::quiet_NaN()}) {
    proto.set_moving_average_momentum(momentum);
    EXPECT_THAT(std::string(Slice::FromProto(proto).status().message()),
                HasSubstr("'a': moving_average_momentum is "));
  }
  proto.set_moving_average_momentum(1);
  EXPECT_EQ(Slice::FromProto(proto)->moving_average_momentum, 1);
}

}  // namespace
}  // namespace cairn::net
