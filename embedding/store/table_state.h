// The state of a table as a sequence of float32: what a server saves, sends to a backup or the chief, and restores.
//
//   TableStateHead | [row] id (int64), values, slots
//
// An int64 takes the place of two floats. Rows are in the order of (bucket, id), which is that of
// RowStore::VisitSorted(): the states of all servers, one after another, are the same for any number of servers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "embedding/keys/key_hash.h"

namespace cairn::embedding {

struct TableStateHead {
  int64_t rows = 0;
  float learning_rate = 0;  // of the last update; before the first, of that one
  float unused = 0;
};

inline constexpr int64_t kStateHeadFloats = sizeof(TableStateHead) / sizeof(float);
inline constexpr int64_t kIdFloats = sizeof(int64_t) / sizeof(float);

// The number of floats in a state of so many rows.
inline int64_t StateFloats(int64_t rows, int64_t row_floats) {
  return kStateHeadFloats + rows * (kIdFloats + row_floats);
}

// Reads the contents of consecutive buffers.
class StateReader {
 public:
  explicit StateReader(std::vector<absl::Span<const float>> buffers) : buffers_(std::move(buffers)) {
    for (const absl::Span<const float> buffer : buffers_) left_ += static_cast<int64_t>(buffer.size());
  }

  // The number of floats that have not been read.
  int64_t left() const { return left_; }
  // Copies the next floats, at most left(), to `destination`; null: skips them.
  void Read(void* destination, int64_t floats) {
    auto* to = static_cast<float*>(destination);
    left_ -= floats;
    while (floats > 0) {
      const absl::Span<const float> buffer = buffers_[buffer_].subspan(at_);
      const size_t count = std::min(static_cast<size_t>(floats), buffer.size());
      if (to != nullptr && count > 0) {
        std::memcpy(to, buffer.data(), count * sizeof(float));
        to += count;
      }
      floats -= static_cast<int64_t>(count);
      at_ += count;
      if (count == buffer.size()) ++buffer_, at_ = 0;
    }
  }

 private:
  const std::vector<absl::Span<const float>> buffers_;
  size_t buffer_ = 0, at_ = 0;
  int64_t left_ = 0;
};

// Takes a state apart that arrives in pieces.
class StateParser {
 public:
  // `row_floats`: the values and slots of a row.
  explicit StateParser(int64_t row_floats) : record_(static_cast<size_t>(kIdFloats + row_floats)) {}

  // After the first kStateHeadFloats floats.
  const TableStateHead& head() const { return head_; }
  bool has_head() const { return head_floats_ == kStateHeadFloats; }
  // Whether all rows of the head, and nothing else, have arrived.
  bool complete() const { return has_head() && rows_ == head_.rows && rest_.empty(); }
  // Takes the next floats. Calls `visit` with a span of whole records (id, values, slots), any number of times. Returns
  // false, and stops, if there are more rows than the head says.
  template <typename Visit>
  bool Add(absl::Span<const float> piece, Visit visit) {
    while (!has_head() && !piece.empty()) {
      std::memcpy(reinterpret_cast<char*>(&head_) + static_cast<size_t>(head_floats_++) * sizeof(float),
                  piece.data(), sizeof(float));
      piece.remove_prefix(1);
    }
    if (!rest_.empty()) {
      Keep(piece);
      if (rest_.size() < record_) return true;
      if (!Pass(rest_, visit)) return false;
      rest_.clear();
    }
    const size_t whole = piece.size() / record_ * record_;
    if (whole > 0 && !Pass(piece.first(whole), visit)) return false;
    piece.remove_prefix(whole);
    Keep(piece);
    return true;
  }

 private:
  // Moves the next floats of the record that has begun.
  void Keep(absl::Span<const float>& piece) {
    const auto some = piece.subspan(0, record_ - rest_.size());
    rest_.insert(rest_.end(), some.begin(), some.end());
    piece.remove_prefix(some.size());
  }
  template <typename Visit>
  bool Pass(absl::Span<const float> records, Visit& visit) {
    rows_ += static_cast<int64_t>(records.size() / record_);
    if (rows_ > head_.rows) return false;
    visit(records);
    return true;
  }

  size_t record_;
  TableStateHead head_;
  int64_t head_floats_ = 0;  // that have arrived
  int64_t rows_ = 0;         // that have been passed
  std::vector<float> rest_;  // the beginning of a record
};

// Reads the head of a state of rows of `row_floats` values and slots. Nullopt if it has another number of floats than
// its head says.
inline std::optional<TableStateHead> ReadStateHead(StateReader& state, int64_t row_floats) {
  TableStateHead head;
  if (state.left() < kStateHeadFloats) return std::nullopt;
  state.Read(&head, kStateHeadFloats);
  const int64_t record = kIdFloats + row_floats;
  if (state.left() % record != 0 || state.left() / record != head.rows) return std::nullopt;
  return head;
}

// Checks that ids are in the order of (bucket, id).
class RowOrder {
 public:
  // Whether `id` comes after the id of the previous call.
  bool Follows(int64_t id) {
    const std::pair<int, int64_t> place(BucketOf(id), id);
    const bool follows = !last_.has_value() || *last_ < place;
    last_ = place;
    return follows;
  }

 private:
  std::optional<std::pair<int, int64_t>> last_;
};

}  // namespace cairn::embedding
