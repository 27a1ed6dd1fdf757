// Comma-separated values, record by record, as RFC 4180 has them: a field in double quotes may hold commas,
// line breaks and, doubled, quotes.
//
// Beyond it: lines end with LF or CRLF, the last one perhaps with nothing; empty lines and a byte order mark
// are passed over; fields without quotes lose the blanks around them.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cairn::data {

// One thread.
class CsvReader {
 public:
  // `text` must outlive the reader.
  explicit CsvReader(absl::string_view text);

  // The next record's fields go to `fields`, valid until the next call; false at the end. INVALID_ARGUMENT
  // for a record that is none, behind which the next call goes on; DATA_LOSS for a quote that nothing closes.
  absl::StatusOr<bool> Next(std::vector<absl::string_view>& fields);

  // Where the record that Next() looked at last begins, from 1.
  int64_t line() const { return line_; }

 private:
  absl::StatusOr<absl::string_view> TakeQuoted();
  absl::string_view TakePlain();
  bool TakeLineEnd();

  absl::string_view rest_;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
  std::deque<std::string> unquoted_;  // fields of the record that differ from their text
};

}  // namespace cairn::data
