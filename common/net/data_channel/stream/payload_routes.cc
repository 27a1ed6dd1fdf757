#include "common/net/data_channel/stream/payload_routes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/data_channel/stream/message_writer.h"
#include "common/net/data_channel/stream/wire.h"

namespace cairn::net {
namespace {

// The smallest payload that is borrowed or mapped, if its runs are not too small. Announcing an address, and
// reading from it, costs as much as copying a few hundred bytes.
constexpr size_t kMinBorrowed = size_t{32} << 10;

}  // namespace

PayloadRoutes::Route PayloadRoutes::Of(FloatSpans payload) {
  Route route;
  if (BytesIn(payload) < std::max(kMinBorrowed, kMinBorrowedRun * payload.size())) return route;
  if (borrows_) route.region = 0;
  std::shared_ptr<const SharedRegion> region;
  if (maps_) region = SharedBuffer::RegionOf(payload);
  if (region == nullptr) return route;
  MutexLock lock(mutex_);
  if (const auto known = announced_.find(region->number); known != announced_.end()) {
    if (known->second) route.region = region->number;
  } else if (announced_.size() < kMaxRegions) {
    announced_[region->number] = false;
    route.announce = std::move(region);
  }
  return route;
}

absl::Status PayloadRoutes::Confirm(uint64_t region) {
  MutexLock lock(mutex_);
  const auto known = announced_.find(region);
  if (known == announced_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: region ", region, " confirmed, which was not announced"));
  }
  known->second = true;
  return absl::OkStatus();
}

}  // namespace cairn::net
