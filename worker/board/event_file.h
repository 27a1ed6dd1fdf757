// TensorBoard's event files: TFRecords of Event messages, one file per life of the process.
//
// One thread. A file's name ends in ".cairn", by which our own are told from others' in the same directory.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/board/v1/event.pb.h"

namespace cairn::worker {

class EventFile {
 public:
  // A new file in `directory`, which is made where it is missing.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& directory);
  ~EventFile();

  // Stamps the event with the time and keeps it until Flush().
  void Add(board::v1::Event event);
  void AddScalar(const std::string& tag, int64_t step, double value);
  // Writes what was added; after an error a part of it may be in the file, which readers pass over.
  absl::Status Flush();

 private:
  EventFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  const std::string path_;
  const int fd_;
  std::string pending_;
};

// Goes through our files in `directory`, if there is one, and leaves in them what `keep` says, each file
// renamed over itself; what a process left half written at a file's end goes too, and so does a file that
// holds nothing any more.
absl::Status KeepEvents(const std::string& directory, absl::FunctionRef<bool(const board::v1::Event&)> keep);

}  // namespace cairn::worker
