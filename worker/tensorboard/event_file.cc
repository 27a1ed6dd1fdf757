#include "worker/tensorboard/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/clock.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "data/tf_record/tf_record.h"

namespace cairn::worker {
namespace {

constexpr char kMarker[] = ".tfevents.", kOurs[] = ".cairn";
constexpr char kVersion[] = "brain.Event:2";

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

absl::Status FileError(int error, const std::string& path) {
  return absl::ErrnoToStatus(error, path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError(error.value(), directory);
  const auto seconds = static_cast<int64_t>(UnixSeconds());
  for (int life = 0;; ++life) {
    // TensorBoard reads a directory's files in the order of their names.
    const std::string path = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d.%d%s", directory, seconds,
                                             HostName(), getpid(), life, kOurs);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return FileError(errno, path);
    std::unique_ptr<EventFile> file(new EventFile(path, fd));
    tensorboard::v1::Event version;
    version.set_file_version(kVersion);
    file->Add(std::move(version));
    CAIRN_RETURN_IF_ERROR(file->Flush());
    return file;
  }
}

EventFile::~EventFile() {
  (void)Flush();
  close(fd_);
}

void EventFile::Add(tensorboard::v1::Event event) {
  event.set_wall_time(UnixSeconds());
  data::AppendTfRecord(event.SerializeAsString(), pending_);
}

void EventFile::AddScalar(const std::string& tag, int64_t step, double value) {
  tensorboard::v1::Event event;
  event.set_step(step);
  auto& scalar = *event.mutable_summary()->add_value();
  scalar.set_tag(tag);
  scalar.set_simple_value(static_cast<float>(value));
  Add(std::move(event));
}

absl::Status EventFile::Flush() {
  const std::string bytes = std::exchange(pending_, std::string());
  for (size_t written = 0; written < bytes.size();) {
    const ssize_t count = write(fd_, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno != EINTR) return FileError(errno, path_);
    if (count > 0) written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

namespace {

absl::Status KeepEventsOf(const std::string& path,
                          absl::FunctionRef<bool(const tensorboard::v1::Event&)> keep) {
  CAIRN_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  data::TfRecordReader reader({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  std::string kept;
  bool holds_something = false;
  for (;;) {
    const auto record = reader.Next();
    if (absl::IsInvalidArgument(record.status())) continue;
    if (!record.ok() || !record->has_value()) break;
    tensorboard::v1::Event event;
    if (!event.ParseFromArray((*record)->data(), static_cast<int>((*record)->size()))) continue;
    const bool version = event.what_case() == tensorboard::v1::Event::kFileVersion;
    if (!version && !keep(event)) continue;
    holds_something |= !version;
    data::AppendTfRecord({reinterpret_cast<const char*>((*record)->data()), (*record)->size()}, kept);
  }
  if (!holds_something) {
    return unlink(path.c_str()) == 0 ? absl::OkStatus() : FileError(errno, path);
  }
  return kept == bytes ? absl::OkStatus() : WriteFileAtomically(path, kept);
}

}  // namespace

absl::Status KeepEvents(const std::string& directory,
                        absl::FunctionRef<bool(const tensorboard::v1::Event&)> keep) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StrContains(name, kMarker) && absl::EndsWith(name, kOurs))
      paths.push_back(entry.path().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) return FileError(error.value(), directory);
  for (const std::string& path : paths) CAIRN_RETURN_IF_ERROR(KeepEventsOf(path, keep));
  return absl::OkStatus();
}

}  // namespace cairn::worker
