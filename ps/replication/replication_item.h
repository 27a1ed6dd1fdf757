// An item of a stream to a backup: an event, or the mean of an update before its entry. Values.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/v1/replicate.pb.h"
#include "common/memory/aligned_buffer.h"

namespace cairn::ps {

// One event for the backup. The buffers of `floats`, and of each table, are concatenated.
struct ReplicationItem {
  v1::ReplicationBody body;
  std::vector<std::shared_ptr<const AlignedBuffer>> floats{};
  bool state = false;  // `floats` is a complete state
  // [table - 1]: of the tables beside the variables.
  std::vector<std::vector<std::shared_ptr<const AlignedBuffer>>> tables{};
  // The item is the entry of an update, and `floats` its mean, all of which has been offered in runs.
  bool mean_in_runs = false;

  // The bytes of all buffers.
  int64_t bytes() const;
};

// Elements [begin, end) of the mean of the update to `version`, whose entry may follow.
struct MeanRun {
  int64_t version = 0;
  std::shared_ptr<const AlignedBuffer> mean{};
  int64_t begin = 0, end = 0;
};

// Numbers ascend, over all streams of a replicator.
struct NumberedItem {
  uint64_t number = 0;
  ReplicationItem item{};
  std::optional<MeanRun> run{};  // if set, in place of an item, and without a number
};

// The mean that one stream has in runs. Not thread-safe.
class SentMean {
 public:
  void Add(const MeanRun& run);
  // Takes the mean out of the entry of an update, if the stream has all of it.
  void LeaveOut(ReplicationItem& item) const;

 private:
  int64_t version_ = 0, elements_ = 0;
};

// The bytes that a backup has not received yet, apart from states. Not thread-safe.
class Backlog {
 public:
  void Add(uint64_t number, const ReplicationItem& item);
  // The backup has all items up to this one.
  void Receive(uint64_t number);
  int64_t bytes() const { return bytes_; }

 private:
  std::deque<std::pair<uint64_t, int64_t>> items_;  // those with floats: their numbers and bytes
  int64_t bytes_ = 0;
};

}  // namespace cairn::ps
