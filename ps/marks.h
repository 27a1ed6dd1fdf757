// Values at a mark of the log, for readers who may come before the log has come to the mark, or after. Part
// of a shard, whose lock guards it; not thread-safe.
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
#include "common/core/aligned_buffer.h"
#include "ps/variable_store.h"

namespace cairn::ps {

struct ReadResult {
  Values values;
  bool finished = false;
  // At the mark of a snapshot: what is beside the values.
  std::shared_ptr<const AlignedBuffer> slots{};  // one after another; null where there are none
  std::optional<float> learning_rate{};          // as it was amended
};
using ReadReply = absl::AnyInvocable<void(absl::StatusOr<ReadResult>)>;

class Marks {
 public:
  // Readers that wait, of all marks together: more are RESOURCE_EXHAUSTED.
  static constexpr size_t kMostAwaiting = 1024;

  // A reader of `token`: what is kept for it, which is for one reader, or why it is not any more; else an
  // error, or, with nullopt, it waits and `reply` has been taken.
  std::optional<absl::StatusOr<ReadResult>> Read(const std::string& token, ReadReply& reply);
  // The log is at `token`: those who wait for it. With none, Keep() follows.
  std::vector<ReadReply> TakeReaders(const std::string& token);
  void Keep(const std::string& token, bool snapshot, absl::StatusOr<ReadResult> result);
  // Of a mark whose values another server kept: UNAVAILABLE, and the client takes a new mark.
  void KeepNothing(const std::string& token);

  // A snapshot follows, and nobody has come for those before.
  void DropSnapshots();
  // Values go, oldest first, until there is `room`; its error is what their readers get.
  void DropUntil(absl::FunctionRef<absl::Status()> room);
  // Forgets everything. All who wait.
  std::vector<ReadReply> Clear();

  std::vector<std::string> tokens() const;

 private:
  struct Kept {
    std::string token;
    bool snapshot;
    absl::StatusOr<ReadResult> result;
  };
  // Values of all but the newest versions go.
  void DropOld();

  std::deque<Kept> kept_;  // oldest first
  std::map<std::string, std::vector<ReadReply>> awaiting_;
  size_t num_awaiting_ = 0;  // in awaiting_
};

}  // namespace cairn::ps
