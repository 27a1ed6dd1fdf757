#include "common/net/data_channel/shared_memory/mapped_region.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/data_channel/socket/socket.h"

namespace cairn::net {

absl::StatusOr<std::shared_ptr<const MappedRegion>> MappedRegion::Open(const DataRegion& told,
                                                                       FileDescriptor memory) {
  CAIRN_ASSIGN_OR_RETURN(
      SharedMemory mapped,
      SharedMemory::Open(std::move(memory), SharedMemory::Access::kRead, /*most_bytes=*/told.bytes));
  if (mapped.size() != told.bytes || told.bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: region of ", told.bytes, " bytes, but its memory has ", mapped.size()));
  }
  (void)mapped.TakeDescriptor();  // closes the descriptor, which the mapping does not need
  return std::shared_ptr<const MappedRegion>(new MappedRegion(std::move(mapped), told.address));
}

std::optional<absl::Span<const char>> MappedRegion::Here(const BorrowedRun& run) const {
  if (run.address < address_) return std::nullopt;
  const uint64_t begin = run.address - address_;
  if (begin > memory_.size() || run.bytes > memory_.size() - begin) return std::nullopt;
  return all().subspan(begin, run.bytes);
}

absl::StatusOr<MappedBytes> MappedBytes::Of(std::shared_ptr<const MappedRegion> region,
                                            absl::Span<const BorrowedRun> runs, int socket) {
  MappedBytes bytes(std::move(region), socket);
  for (const BorrowedRun& run : runs) {
    const auto here = bytes.region_->Here(run);
    if (!here.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("frame: ", run.bytes, " bytes lie outside the region"));
    }
    bytes.size_ += here->size();
    auto& known = bytes.runs_;
    if (!known.empty() && known.back().data() + known.back().size() == here->data()) {
      known.back() = {known.back().data(), known.back().size() + here->size()};
    } else {
      known.push_back(*here);
    }
  }
  return bytes;
}

absl::Status MappedBytes::Scatter(size_t begin, absl::Span<const absl::Span<char>> to) const {
  auto run = runs_.begin();
  for (absl::Span<char> place : to) {
    while (!place.empty()) {
      for (; run != runs_.end() && begin >= run->size(); ++run) begin -= run->size();
      if (run == runs_.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat(place.size(), " bytes lie beyond the end of the payload"));
      }
      const size_t count = std::min(place.size(), run->size() - begin);
      std::memcpy(place.data(), run->data() + begin, count);
      place.remove_prefix(count);
      begin += count;
    }
  }
  return CheckOtherEnd(socket_);  // after the copy, as in PeerMemory::Read()
}

}  // namespace cairn::net
