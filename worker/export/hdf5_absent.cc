// Replaces hdf5_file.cc in builds without libhdf5.
#include "worker/export/hdf5_file.h"

namespace cairn::worker {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError(
      "is HDF5, which this build cannot read: it was configured without libhdf5 (Debian's libhdf5-dev)");
}

}  // namespace

absl::StatusOr<Hdf5File> Hdf5File::Open(data::SharedBytes /*bytes*/) {
  return Absent();
}

Hdf5File::~Hdf5File() = default;

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : bytes_(std::move(other.bytes_)), file_(std::exchange(other.file_, -1)) {}

absl::Status Hdf5File::List() {
  return Absent();
}

absl::StatusOr<std::optional<std::string>> Hdf5File::RootText(const std::string& /*attribute*/) const {
  return Absent();
}

absl::StatusOr<std::optional<std::vector<std::string>>> Hdf5File::GroupTexts(
    const std::string& /*path*/, const std::string& /*attribute*/) const {
  return Absent();
}

absl::Status Hdf5File::Read(const std::string& /*path*/, absl::Span<float> /*to*/) const {
  return Absent();
}

}  // namespace cairn::worker
