// Parses delimited text record by record, as in RFC 4180, with any separator: a field in double quotes may
// contain separators, line breaks and, doubled, quotes.
//
// In addition to the RFC: lines end with LF or CRLF, and the last line may have no line end. Empty lines and
// a byte order mark are skipped. Unquoted fields lose surrounding blanks. A line that begins with '#' is a
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
  // `text` must outlive the reader. `separator`: one character, neither a quote nor a line end.
  explicit CsvReader(absl::string_view text, char separator = ',');

  // Reads the next record into `fields`, which are valid until the next call. Returns false at the end.
  // INVALID_ARGUMENT for a malformed record; the next call continues after it. DATA_LOSS for a quote that is
  // never closed.
  absl::StatusOr<bool> Next(std::vector<absl::string_view>& fields);

  // Whether the last record returned by Next() is a comment. Its fields are the line without the '#', split
  // at every separator; quotes have no special meaning.
  bool comment() const { return comment_; }

  // The first line, from 1, of the last record that Next() read.
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
  std::deque<std::string> unquoted_;  // fields of the record that differ from the text of the file
};

}  // namespace cairn::data
