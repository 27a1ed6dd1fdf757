#include "common/net/data_channel/stream/payload_routes.h"

#include <memory>
#include <vector>

#include "common/net/data_channel/stream/wire.h"
#include "gtest/gtest.h"

namespace cairn::net {
namespace {

constexpr int64_t kElements = int64_t{16} << 10;

TEST(PayloadRoutes, PayloadsAreCopiedUntilTheOtherEndCanBorrow) {
  PayloadRoutes routes;
  const std::vector<float> memory(static_cast<size_t>(kElements));
  const absl::Span<const float> run = memory;
  EXPECT_EQ(routes.Of({&run, 1}).region, std::nullopt);
  routes.SetBorrows(true);
  EXPECT_EQ(routes.Of({&run, 1}).region, 0u);
  const absl::Span<const float> small = run.first(1000);
  EXPECT_EQ(routes.Of({&small, 1}).region, std::nullopt);
  std::vector<absl::Span<const float>> runs;
  for (size_t at = 0; at < run.size(); at += 512) runs.push_back(run.subspan(at, 512));
  EXPECT_EQ(routes.Of(runs).region, std::nullopt);
}

TEST(PayloadRoutes, ARegionIsAnnouncedOnceAndUsedWhenTheOtherEndHasMappedIt) {
  PayloadRoutes routes;
  routes.SetBorrows(true);
  routes.SetMaps(true);
  SharedBuffer buffer(kElements);
  const absl::Span<const float> run = buffer.span();
  const PayloadRoutes::Route first = routes.Of({&run, 1});
  ASSERT_NE(first.announce, nullptr);
  EXPECT_EQ(first.region, 0u);
  EXPECT_EQ(routes.Of({&run, 1}).announce, nullptr);
  EXPECT_EQ(routes.Confirm(first.announce->number), absl::OkStatus());
  EXPECT_EQ(routes.Of({&run, 1}).region, first.announce->number);
}

TEST(PayloadRoutes, AtMostEightRegionsAreAnnounced) {
  PayloadRoutes routes;
  routes.SetMaps(true);
  std::vector<std::unique_ptr<SharedBuffer>> buffers;
  for (size_t i = 0; i <= kMaxRegions; ++i) {
    buffers.push_back(std::make_unique<SharedBuffer>(kElements));
    const absl::Span<const float> run = buffers.back()->span();
    EXPECT_EQ(routes.Of({&run, 1}).announce != nullptr, i < kMaxRegions) << i;
  }
}

TEST(PayloadRoutes, ARegionThatWasNotAnnouncedCannotBeConfirmed) {
  PayloadRoutes routes;
  EXPECT_EQ(routes.Confirm(3).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::net
