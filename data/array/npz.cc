#include "data/array/npz.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/core/status.h"
#include "data/array/npy.h"

namespace cairn::data {

absl::StatusOr<NpzFile> NpzFile::Open(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(ZipFile archive, ZipFile::Open(path));
  return NpzFile(path, std::move(archive));
}

std::vector<std::string> NpzFile::Names() const {
  std::vector<std::string> names = archive_.Names();
  for (std::string& name : names) name = std::string(absl::StripSuffix(name, ".npy"));
  return names;
}

bool NpzFile::Has(absl::string_view name) const {
  return archive_.Has(absl::StrCat(name, ".npy"));
}

absl::StatusOr<Array> NpzFile::Read(absl::string_view name) const {
  if (!Has(name)) {
    return absl::NotFoundError(
        absl::StrCat(path_, ": has no array ", name, "; it has: ", absl::StrJoin(Names(), ", ")));
  }
  const auto read = [&]() -> absl::StatusOr<Array> {
    CAIRN_ASSIGN_OR_RETURN(const auto reader, archive_.OpenMember(absl::StrCat(name, ".npy")));
    return ReadNpy(*reader);
  };
  auto array = read();
  if (!array.ok()) return Annotate(array.status(), absl::StrCat(path_, ": ", name));
  return array;
}

}  // namespace cairn::data
