// TensorBoard's event files: TFRecords of Event messages. Each process writes its own files.
//
// One thread. File names end in ".cairn", which distinguishes them from files of other programs in the
// directory.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/tensorboard/v1/event.pb.h"

namespace cairn::worker {

class EventFile {
 public:
  // Creates a new file in `directory`, and the directory if it is missing.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& directory);
  ~EventFile();

  // Sets the event's time stamp and buffers it until Flush().
  void Add(tensorboard::v1::Event event);
  void AddScalar(const std::string& tag, int64_t step, double value);
  // Writes the buffered events. After an error the file may contain a part of them, which readers skip.
  absl::Status Flush();

 private:
  EventFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  const std::string path_;
  const int fd_;
  std::string pending_;
};

// Rewrites our files in `directory`, if it exists, with only those events for which `keep` returns true. Each
// file is replaced atomically. Incomplete records at the end of a file are removed, and so are files without
// events.
absl::Status KeepEvents(const std::string& directory,
                        absl::FunctionRef<bool(const tensorboard::v1::Event&)> keep);

}  // namespace cairn::worker
