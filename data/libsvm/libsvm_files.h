// Finds libsvm and libffm files.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/file_sets.h"

namespace cairn::data {

// Whether `path` is a file of this form: one named *.libsvm, *.svm, *.libffm or *.ffm, plain or with ".gz"; or a file
// of any other name whose first example is a line of pairs.
bool IsLibsvmFile(const std::string& path);

// The sets at `path`: a file itself, and FILE.t beside it, which is the validation set (LIBSVM's own data sets have
// such names); or a directory with train*, test*, ... with one of the suffixes above, or with .txt and such a first
// line. Errors are those of FindSets().
absl::StatusOr<SetFiles> FindLibsvmFiles(const std::string& path);

}  // namespace cairn::data
