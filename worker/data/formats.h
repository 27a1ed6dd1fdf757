// The file formats of labelled examples: one function each, listed in dataset.cc.
//
// A format looks whether a data set of its kind lies at a path and hands over its arrays; what they must
// satisfy is checked behind it, once for all formats.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/array.h"

namespace cairn::data {

struct Split {
  Array inputs;             // [examples, ...]
  Array labels;             // [examples]
  std::string inputs_name;  // where they came from, for messages: "mnist.npz: x_train"
  std::string labels_name;
};

struct Splits {
  Split train;
  std::optional<Split> validation;
};

// Each returns nullopt where nothing of its kind lies at `path`; an error names the file and what is wrong in
// it.
absl::StatusOr<std::optional<Splits>> LoadIdxDirectory(const std::string& path);
absl::StatusOr<std::optional<Splits>> LoadNpz(const std::string& path);

}  // namespace cairn::data
