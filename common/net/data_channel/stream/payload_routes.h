// Decides which payloads of this end are sent without a copy: mapped, if the other end has mapped the
// SharedBuffer that contains the payload, or borrowed, if it can read this process's memory. Knows what the
// other end is able to do, and which regions have been announced to it.
//
// Owned by the StreamSender. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/core/mutex.h"
#include "common/net/data_channel/shared_memory/shared_buffer.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

class PayloadRoutes {
 public:
  struct Route {
    // The region in which the payload is mapped, 0 if it is borrowed, nullopt if it must be copied or pinned.
    std::optional<uint64_t> region;
    // Not null: a region to announce to the other end first, in a message of kind kRegion.
    std::shared_ptr<const SharedRegion> announce;
  };

  // The abilities of the other end, as soon as they are known.
  void SetMaps(bool maps) { maps_ = maps; }
  void SetBorrows(bool borrows) { borrows_ = borrows; }

  // Returns each region to announce once.
  Route Of(FloatSpans payload) ABSL_LOCKS_EXCLUDED(mutex_);
  // The other end has mapped this region. INVALID_ARGUMENT if it was not announced.
  absl::Status Confirm(uint64_t region) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::atomic<bool> maps_{false}, borrows_{false};

  Mutex mutex_;
  // The regions that have been announced, by their numbers; true: the other end has mapped the region.
  std::map<uint64_t, bool> announced_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn::net
