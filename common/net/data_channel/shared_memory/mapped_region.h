// A memory region of the other end, mapped read-only into this process. A payload in it is used in place, or
// copied without a system call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/core/file_descriptor.h"
#include "common/net/data_channel/shared_memory/peer_memory.h"
#include "common/net/data_channel/shared_memory/shared_memory.h"
#include "common/net/wire/frame.h"

namespace cairn::net {

// The announcement of a region on the socket, little-endian. The region's descriptor is passed with it.
struct DataRegion {
  uint64_t number = 0;
  uint64_t address = 0;  // in the sender's memory
  uint64_t bytes = 0;
};

class MappedRegion {
 public:
  // Maps `memory`, which came with the announcement `told`. INVALID_ARGUMENT if the memory does not match the
  // announcement, UNAVAILABLE if it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<const MappedRegion>> Open(const DataRegion& told,
                                                                  FileDescriptor memory);

  // Translates `run`, in the other end's addresses, to this process's mapping; nullopt if it is not wholly
  // inside the region.
  std::optional<absl::Span<const char>> Here(const BorrowedRun& run) const;
  absl::Span<const char> all() const { return {memory_.data(), memory_.size()}; }

 private:
  MappedRegion(SharedMemory memory, uint64_t address) : memory_(std::move(memory)), address_(address) {}

  const SharedMemory memory_;
  const uint64_t address_;  // address of the region in the other end's memory
};

// A mapped payload. `socket` must outlive it: the other end shuts the socket down before it overwrites the
// payload.
class MappedBytes final : public BorrowedBytes {
 public:
  // INVALID_ARGUMENT for a run that is not inside the region.
  static absl::StatusOr<MappedBytes> Of(std::shared_ptr<const MappedRegion> region,
                                        absl::Span<const BorrowedRun> runs, int socket);

  size_t size() const override { return size_; }
  absl::Status Scatter(size_t begin, absl::Span<const absl::Span<char>> to) const override;
  std::optional<Kept> Keep() const override { return Kept{.owner = region_, .runs = runs_}; }

 private:
  MappedBytes(std::shared_ptr<const MappedRegion> region, int socket)
      : region_(std::move(region)), socket_(socket) {}

  std::shared_ptr<const MappedRegion> region_;
  int socket_;
  std::vector<absl::Span<const char>> runs_;  // adjacent runs are merged
  size_t size_ = 0;
};

}  // namespace cairn::net
