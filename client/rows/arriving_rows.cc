#include "client/rows/arriving_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/aligned_buffer.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/row_frame.h"

namespace cairn::client {

void ArrivingRows::Clear() {
  MutexLock lock(mutex_);
  expected_.clear();
}

absl::StatusOr<std::vector<DividedRows>> ArrivingRows::Expect(const RowTables& tables,
                                                              absl::Span<const RowValues> rows) {
  std::vector<DividedRows> all;
  for (const RowValues& of_table : rows) {
    const auto of_row = static_cast<size_t>(tables.row_elements(of_table.table));
    CAIRN_CHECK(of_table.rows.size() == of_table.keys.size() * of_row);
    CAIRN_ASSIGN_OR_RETURN(all.emplace_back(), tables.Divide(of_table.table, of_table.keys));
  }
  for (size_t i = 0; i < all.size(); ++i) Expect(all[i], rows[i].rows);
  return all;
}

void ArrivingRows::Expect(const DividedRows& divided, absl::Span<float> rows) {
  MutexLock lock(mutex_);
  CAIRN_CHECK(Find(divided.table) == nullptr);
  expected_.push_back({.table = divided.table, .partition = divided.partition, .rows = rows});
}

void ArrivingRows::Restart(int server) {
  MutexLock lock(mutex_);
  const auto s = static_cast<size_t>(server);
  for (Expected& expected : expected_) {
    if (s < expected.come.size()) expected.come[s] = 0;
  }
}

absl::Status ArrivingRows::Add(int server, const v1::Rows& rows, net::Payload payload) {
  CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(server, rows));
  const auto count = static_cast<size_t>(rows.count());
  CAIRN_RETURN_IF_ERROR(net::CheckRowElements(rows, payload, static_cast<int64_t>(place.row_elements)));
  if (place.partition->whole()) {
    return net::CopyRowElements(
        rows, payload, place.rows.subspan(place.first * place.row_elements, count * place.row_elements));
  }
  // A frame fits in the cache, and is read once from the sender's memory.
  const size_t elements = count * place.row_elements;
  const auto frame = std::make_unique_for_overwrite<float[]>(elements);
  CAIRN_RETURN_IF_ERROR(net::CopyRowElements(rows, payload, {frame.get(), elements}));
  const absl::Span<const size_t> positions =
      place.partition->positions_on(server).subspan(place.first, count);
  for (size_t i = 0; i < count; ++i) {
    std::copy_n(frame.get() + i * place.row_elements, place.row_elements,
                place.rows.data() + positions[i] * place.row_elements);
  }
  return absl::OkStatus();
}

absl::StatusOr<ArrivingRows::Place> ArrivingRows::PlaceOf(int server, const v1::Rows& rows) {
  MutexLock lock(mutex_);
  Expected* const expected = Find(rows.table());
  const auto s = static_cast<size_t>(server);
  if (expected != nullptr && expected->come.size() <= s) expected->come.resize(s + 1);
  const size_t left =
      expected == nullptr ? 0 : expected->partition->keys_on(server).size() - expected->come[s];
  if (rows.count() < 1 || static_cast<uint64_t>(rows.count()) > left) {
    return absl::InternalError(absl::StrCat("an answer has ", rows.count(), " rows of table ", rows.table(),
                                            ", of which ", left, " were expected"));
  }
  Place place = {.partition = expected->partition,
                 .rows = expected->rows,
                 .row_elements = expected->rows.size() / expected->partition->keys().size(),
                 .first = expected->come[s]};
  expected->come[s] += static_cast<size_t>(rows.count());
  return place;
}

ArrivingRows::Expected* ArrivingRows::Find(int table) {
  for (Expected& expected : expected_) {
    if (expected.table == table) return &expected;
  }
  return nullptr;
}

bool ArrivingRows::complete(int servers) const {
  MutexLock lock(mutex_);
  for (const Expected& expected : expected_) {
    for (int server = 0; server < servers; ++server) {
      const auto s = static_cast<size_t>(server);
      const size_t come = s < expected.come.size() ? expected.come[s] : 0;
      if (come != expected.partition->keys_on(server).size()) return false;
    }
  }
  return true;
}

absl::Status RowSink::AddRows(const v1::Rows& rows, net::Payload payload) {
  if (wire_ != nullptr) {
    const int64_t bytes = net::PayloadBytes(payload);
    wire_->pull_bytes.Add(bytes);
    wire_->row_pull_bytes.Add(bytes);
    wire_->pull_float32_bytes.Add(net::CodecOf(rows.encoding()) == nullptr ? bytes : 2 * bytes);
    wire_->pulled_rows.Add(rows.count());
  }
  return rows_.Add(server_, rows, payload);
}

absl::Status RowSink::Add(const v1::Chunk&, net::Payload) {
  return absl::InternalError("values that were not requested");
}

}  // namespace cairn::client
