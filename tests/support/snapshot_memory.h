// Snapshots of a toy job, without files.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "client/snapshot.h"
#include "gtest/gtest.h"
#include "tests/support/toy_job.h"

namespace cairn::test {

// Keeps the newest of a chief's snapshots in memory. Before the first snapshot: the job's initial values.
class SnapshotMemory final : public client::StateSource {
 public:
  explicit SnapshotMemory(const ToyJob& toy) : toy_(toy) {}

  void Take(client::TrainingClient& client) {
    const auto marked = client.control().PlaceSnapshotMarker();
    ASSERT_TRUE(marked.ok()) << marked.status();
    auto snapshot = client::ReadSnapshot(client.connection(), *marked, {std::chrono::seconds(10)});
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    newest_ = *std::move(snapshot);
  }
  const client::Snapshot& newest() const { return *newest_; }

  absl::StatusOr<std::optional<v1::Progress>> Find(bool /*lost*/) override {
    if (!newest_.has_value()) return std::nullopt;
    return newest_->progress;
  }
  absl::Status Load(absl::Span<const std::string> slots, absl::Span<const absl::Span<float>> into) override {
    if (!newest_.has_value()) return client::FirstValues(toy_.initial).Load(slots, into);
    EXPECT_EQ(into.size(), 1 + slots.size());
    for (const client::Snapshot::Server& server : newest_->servers) {
      int64_t elements = 0;
      for (const net::Slice& slice : server.slices) elements += slice.elements();
      for (size_t part = 0; part < into.size(); ++part) {
        for (const net::Slice& slice : server.slices) {
          const auto variable = std::find_if(toy_.variables.begin(), toy_.variables.end(),
                                             [&](const auto& other) { return other.name == slice.name; });
          const float* from = server.state.data() + static_cast<int64_t>(part) * elements + slice.offset;
          std::copy_n(from, slice.elements(),
                      into[part].data() + variable->offset + slice.row_begin * slice.shape.row_elements());
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const ToyJob& toy_;
  std::optional<client::Snapshot> newest_;
};

}  // namespace cairn::test
