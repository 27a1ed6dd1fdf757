// The values at the markers of the log. Readers may arrive before or after the log reaches their marker. Part
// of a ReadTable; not thread-safe: guarded by its lock.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/memory/aligned_buffer.h"
#include "optim/store/variable_store.h"

namespace cairn::ps {

struct ReadResult {
  optim::Values values;
  bool finished = false;
  // The rest of the state, only at the marker of a snapshot.
  std::shared_ptr<const AlignedBuffer> slots{};  // one after another; null if there are none
  std::optional<float> learning_rate{};          // empty unless a config change has set it
  std::vector<optim::GroupSettings> groups{};    // the same
  optim::SkippedUpdates skipped{};
  // The states of the tables beside the variables [table - 1], each in some buffers.
  std::vector<std::vector<std::shared_ptr<const AlignedBuffer>>> tables{};
};
using ReadReply = absl::AnyInvocable<void(absl::StatusOr<ReadResult>)>;

class MarkerTable {
 public:
  // Limit on the readers that wait, over all markers; further readers get RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxAwaiting = 1024;

  // Returns the values stored for `token`, which serve one reader, or an error that explains why there are
  // none. Returns nullopt if the log has not reached the marker: `reply` is then stored until it has.
  std::optional<absl::StatusOr<ReadResult>> Read(const std::string& token, ReadReply& reply);
  // The log has reached `token`: returns the readers that wait for it. If no reader waits, the caller calls
  // Keep().
  std::vector<ReadReply> TakeReaders(const std::string& token);
  void Keep(const std::string& token, bool snapshot, absl::StatusOr<ReadResult> result);
  // Records a marker whose values were lost with the server that stored them. Readers get UNAVAILABLE and
  // must place a new marker.
  void KeepNothing(const std::string& token);

  // Drops unread snapshots, because a newer one follows.
  void DropSnapshots();
  // Drops values, oldest first, until `room` returns OK. Readers of dropped values get the error of `room`.
  void DropUntil(absl::FunctionRef<absl::Status()> room);
  // Forgets all markers, and returns all waiting readers.
  std::vector<ReadReply> Clear();

  std::vector<std::string> tokens() const;

 private:
  struct Kept {
    std::string token;
    bool snapshot;
    absl::StatusOr<ReadResult> result;
  };
  // Drops the values of all but the newest versions.
  void DropOld();

  std::deque<Kept> kept_;  // oldest first
  std::map<std::string, std::vector<ReadReply>> awaiting_;
  size_t num_awaiting_ = 0;  // the number of readers in awaiting_
};

}  // namespace cairn::ps
