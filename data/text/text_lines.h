// The lines of one or several text files, each of which is an example. Plain files are mapped; gzip files are
// decompressed into memory. Only the place of a line is kept, so a set may be larger than memory.
//
// Filled by one thread; afterwards read from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/array.h"
#include "data/file/bad_rows.h"
#include "data/formats.h"

namespace cairn::data {

class TextLines {
 public:
  // Appends the lines of a file for which `take` returns true; false: the line is no example. An error of `take` is
  // given to `bad`, with the file and the number of the line. Lines without characters are no examples.
  absl::Status ReadFile(const std::string& path, BadRows& bad,
                        absl::FunctionRef<absl::StatusOr<bool>(absl::string_view line)> take);

  int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  // The line of an example, without its end.
  absl::string_view operator[](int64_t example) const;
  // "day_0: line 7". Searches the file.
  std::string Place(int64_t example) const;
  // The bytes in which the line of an example begins, for ReadAhead. Its end is not searched, which would wait for the
  // disk.
  absl::Span<const uint8_t> BytesOf(int64_t example) const;

  // Asks the processor to fetch the beginning of the line of an example from memory.
  void PrefetchMemory(int64_t example) const;

  const std::vector<FilePart>& parts() const { return parts_; }     // [file] in the order of their examples
  const std::vector<SharedBytes>& files() const { return files_; }  // [file]

 private:
  size_t FileOf(int64_t example) const;
  absl::string_view TextOf(size_t file) const {
    return {reinterpret_cast<const char*>(files_[file].data()), files_[file].size()};
  }

  std::vector<FilePart> parts_;
  std::vector<SharedBytes> files_;
  std::vector<uint64_t> offsets_;  // [example] where its line begins in its file
};

}  // namespace cairn::data
