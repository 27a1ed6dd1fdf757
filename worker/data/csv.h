// Text in columns, record by record, as RFC 4180 has it, with any separator: a field in double quotes may
// hold separators, line breaks and, doubled, quotes.
//
// Beyond the RFC: lines end with LF or CRLF, the last one perhaps with nothing; empty lines and a byte order
// mark are skipped; fields without quotes lose the blanks around them; a line that begins with '#' is a
// comment.
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
  // `text` must outlive the reader. `separator`: one character, no quote and no line end.
  explicit CsvReader(absl::string_view text, char separator = ',');

  // The next record's fields go to `fields`, valid until the next call; false at the end. INVALID_ARGUMENT
  // for a record that is none, behind which the next call goes on; DATA_LOSS for a quote that nothing closes.
  absl::StatusOr<bool> Next(std::vector<absl::string_view>& fields);

  // Whether the record that Next() returned last is a comment. Its fields are those of the line without the
  // '#', split at every separator: quotes mean nothing in it.
  bool comment() const { return comment_; }

  // The first line, from 1, of the record that Next() read last.
  int64_t line() const { return line_; }

 private:
  absl::StatusOr<absl::string_view> TakeQuoted();
  absl::string_view TakePlain();
  bool TakeLineEnd();
  void TakeComment(std::vector<absl::string_view>& fields);

  const char separator_;
  absl::string_view rest_;
  bool comment_ = false;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
  std::deque<std::string> unquoted_;  // fields of the record that differ from the file's text
};

}  // namespace cairn::data
