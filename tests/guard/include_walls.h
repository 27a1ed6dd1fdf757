// Checks which folder may include which. It reads only #include lines.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cairn::guard {

struct Violation {
  std::string file;  // from the root: "ps/shard/shard.cc"
  int line = 0;
  std::string include;           // "nn/model.h"
  std::string rule;              // "ps may include only common, proto, ps"
  std::string ToString() const;  // "ps/shard/shard.cc:12: \"nn/model.h\": ps may include ..."
};

// `path` is relative to the root and determines the rules; files outside all rooms have none.
std::vector<Violation> CheckFile(absl::string_view path, absl::string_view text);

struct TreeReport {
  int files = 0;  // checked against a rule
  std::vector<Violation> violations;
};
// All C++ and CUDA sources below `root`.
TreeReport CheckTree(const std::string& root);

// Folders below `root`, without tests, that include each other in a circle: each one with those that it includes,
// as "nn -> nn/layers" and "nn/layers -> nn". Empty if there is no circle.
std::vector<std::string> FolderCycles(const std::string& root);

}  // namespace cairn::guard
