// The keys of some rows of a table, divided among the servers that store the rows.
//
// Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net/cluster/partitioner.h"

namespace cairn::client {

class RowPartition {
 public:
  // INVALID_ARGUMENT, naming the key, if no server stores it.
  static absl::StatusOr<RowPartition> Create(absl::Span<const int64_t> keys,
                                             const net::Partitioner& partitioner, int servers);

  // A copy of the keys that were divided.
  absl::Span<const int64_t> keys() const { return keys_; }
  // The keys of a server, in the order of keys().
  absl::Span<const int64_t> keys_on(int server) const {
    return whole() ? keys() : absl::MakeConstSpan(grouped_).subspan(Begin(server), Count(server));
  }
  // Parallel to keys_on(): where each key is in keys(). Empty if whole().
  absl::Span<const size_t> positions_on(int server) const {
    return whole() ? absl::Span<const size_t>()
                   : absl::MakeConstSpan(positions_).subspan(Begin(server), Count(server));
  }
  // Whether there is one server, which has all keys in their order.
  bool whole() const { return ends_.size() == 1; }

 private:
  size_t Begin(int server) const { return server == 0 ? 0 : ends_[static_cast<size_t>(server) - 1]; }
  size_t Count(int server) const { return ends_[static_cast<size_t>(server)] - Begin(server); }

  std::vector<int64_t> keys_;
  // One server after another; empty if whole().
  std::vector<int64_t> grouped_;
  std::vector<size_t> positions_;
  std::vector<size_t> ends_;  // [server] the end of its part of `grouped_`
};

// The rows of one table in a request.
struct DividedRows {
  int table = 0;
  std::shared_ptr<const RowPartition> partition{};  // of their keys
};

}  // namespace cairn::client
