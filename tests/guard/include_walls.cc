#include "tests/guard/include_walls.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn::guard {
namespace {

struct Room {
  const char* folder;
  std::vector<const char*> may_include;  // folders of ours, its own among them, or single headers
  bool knows_wire;                       // protobuf and gRPC
};

// The most specific folder comes first: a file belongs to the first room whose folder contains it.
const std::vector<Room>& Rooms() {
  static const auto* const rooms = new std::vector<Room>{
      {"common/core", {"common/core"}, false},
      {"common/flags", {"common/core", "common/flags", "common/memory", "common/system"}, false},
      {"common/ids", {"common/core", "common/ids"}, false},
      {"common/memory", {"common/core", "common/memory"}, false},
      {"common/system", {"common/core", "common/memory", "common/system"}, false},
      {"common/trace", {"common/core", "common/flags", "common/system", "common/trace"}, false},
      {"common/net", {"common", "proto"}, true},
      {"common/monitor", {"common", "proto"}, true},
      {"kernels", {"common/core", "common/memory", "common/system", "common/trace", "kernels"}, false},
      {"optim/store", {"common", "proto", "optim"}, true},
      {"optim", {"common/core", "common/system", "optim"}, false},
      {"embedding",
       {"common/core", "common/memory", "common/system", "embedding", "optim/optimizer.h", "optim/rules",
        "optim/schedule.h", "optim/simd"},
       false},
      {"nn",
       {"common/core", "common/ids", "common/memory", "common/system", "common/trace", "kernels", "nn"},
       false},
      {"data",
       {"common/core", "common/ids", "common/memory", "common/system", "common/trace", "data",
        "embedding/keys"},
       false},
      {"client", {"common", "proto", "client"}, true},
      {"ps/policy", {"common/core", "optim/store/group_settings.h", "proto", "ps/policy"}, true},
      {"ps/log", {"common", "optim", "proto", "ps/log", "ps/policy"}, true},
      {"ps/table", {"common", "embedding", "optim", "proto", "ps/policy", "ps/table"}, true},
      {"ps/shard", {"common", "optim", "proto", "ps/log", "ps/policy", "ps/shard", "ps/table"}, true},
      {"ps/replication",
       {"common", "optim", "proto", "ps/log", "ps/policy", "ps/replication", "ps/shard", "ps/table"},
       true},
      {"ps/members", {"common", "proto", "ps/members", "ps/replication"}, true},
      {"ps/job",
       {"common", "optim", "proto", "ps/job", "ps/log", "ps/members", "ps/replication", "ps/shard",
        "ps/table"},
       true},
      {"ps", {"common", "embedding", "proto", "optim", "ps"}, true},
      {"worker/tensorboard", {"common/core", "proto", "worker/tensorboard", "data", "nn"}, true},
      {"worker/checkpoint",
       {"common", "embedding/keys", "embedding/store", "proto", "worker/checkpoint"},
       true},
      {"worker/tables",
       {"client", "common", "embedding", "optim/store/optimizer_of.h", "proto", "worker/checkpoint",
        "worker/tables"},
       true},
      {"worker/peer", {"common", "proto", "worker/peer"}, true},
      // Workers without servers hold the variables and update them as a server does.
      {"worker/allreduce",
       {"common", "proto", "kernels", "client", "optim", "worker/peer", "worker/allreduce"},
       true},
      {"worker/split", {"common", "proto", "kernels", "nn", "worker/peer", "worker/split"}, true},
      {"include", {"include"}, false},
      // The public library: the only folder that the programs of users see is `include`.
      // It checks settings of groups as the servers do.
      {"api",
       {"api", "client", "common", "embedding/store/unique_keys.h", "optim/optimizer.h", "optim/store",
        "proto", "worker/allreduce", "worker/checkpoint", "worker/peer", "worker/tables"},
       true},
      {"worker/embedding",
       {"client", "common", "embedding", "kernels/bag_pool.h", "kernels/cpu/pool_bags.h", "nn",
        "optim/store/optimizer_of.h", "proto", "worker"},
       true},
      {"worker", {"client", "common", "data", "embedding", "kernels", "nn", "proto", "worker"}, true},
      {"cli", {"cli", "client", "common", "data", "kernels", "nn", "proto", "worker"}, true},
  };
  return *rooms;
}

constexpr const char* kOurFolders[] = {"api",     "client", "cli",   "common", "data", "embedding", "include",
                                       "kernels", "nn",     "optim", "proto",  "ps",   "tests",     "worker"};

bool LiesIn(absl::string_view path, absl::string_view folder) {
  return absl::StartsWith(path, folder) && path.size() > folder.size() && path[folder.size()] == '/';
}

bool IsOfTheWire(absl::string_view include) {
  return LiesIn(include, "grpc") || LiesIn(include, "grpcpp") || LiesIn(include, "google/protobuf") ||
         LiesIn(include, "proto") || absl::EndsWith(include, ".pb.h");
}

bool IsCuda(absl::string_view include) {
  for (const char* folder :
       {"cuda", "cub", "cute", "cutlass", "thrust", "nv", "nvtx3", "cooperative_groups"}) {
    if (LiesIn(include, folder)) return true;
  }
  for (const char* prefix : {"cuda", "cublas", "cudnn", "curand", "cooperative_groups", "nccl", "nvtx",
                             "nvml", "device_launch_parameters"}) {
    if (absl::StartsWith(include, prefix) && include.find('/') == absl::string_view::npos) return true;
  }
  return false;
}

// The text between the quotes or brackets of an #include line.
std::optional<absl::string_view> IncludeOf(absl::string_view line) {
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "#")) return std::nullopt;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (!absl::ConsumePrefix(&line, "include")) return std::nullopt;
  line = absl::StripLeadingAsciiWhitespace(line);
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return std::nullopt;
  const size_t end = line.find(line[0] == '"' ? '"' : '>', 1);
  if (end == absl::string_view::npos) return std::nullopt;
  return line.substr(1, end - 1);
}

// The rule that `include` breaks in `room`; empty: none.
std::string BrokenRule(const Room& room, absl::string_view path, absl::string_view include, bool quoted) {
  if (absl::StrContains(include, "../") ||
      (quoted && !absl::StrContains(include, "/") && !IsOfTheWire(include) && !IsCuda(include))) {
    return "includes of ours are written from the root";
  }
  if (IsCuda(include) && !LiesIn(path, "kernels/cuda")) return "CUDA's headers belong in kernels/cuda";
  if (IsOfTheWire(include) && !room.knows_wire)
    return absl::StrCat(room.folder, " knows neither proto nor gRPC");
  if (room.folder == absl::string_view("include") &&
      (quoted ? !LiesIn(include, "cairn") : absl::StrContains(include, "/"))) {
    return "the public headers include only each other and the standard library";
  }
  const bool ours = std::any_of(std::begin(kOurFolders), std::end(kOurFolders),
                                [&](const char* folder) { return LiesIn(include, folder); });
  const bool allowed = std::any_of(room.may_include.begin(), room.may_include.end(), [&](const char* place) {
    return include == place || LiesIn(include, place);
  });
  if (ours && !allowed) {
    return absl::StrCat(room.folder, " may include only ", absl::StrJoin(room.may_include, ", "));
  }
  return "";
}

const Room* RoomOf(absl::string_view path) {
  for (const Room& room : Rooms()) {
    if (LiesIn(path, room.folder)) return &room;
  }
  return nullptr;
}

bool IsSource(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh";
}

std::string FolderOf(absl::string_view path) {
  return std::string(path.substr(0, path.rfind('/')));
}

// [folder] The folders of ours that its sources include, except itself.
std::map<std::string, std::set<std::string>> IncludesOfFolders(const std::string& root) {
  std::map<std::string, std::set<std::string>> includes;
  for (const char* folder : kOurFolders) {
    const std::filesystem::path top = std::filesystem::path(root) / folder;
    if (folder == absl::string_view("tests") || !std::filesystem::exists(top)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
      if (!entry.is_regular_file() || !IsSource(entry.path())) continue;
      const std::string from = FolderOf(std::filesystem::relative(entry.path(), root).string());
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        const auto include = IncludeOf(line);
        if (!include.has_value() || !absl::StrContains(line, '"')) continue;
        if (!std::filesystem::exists(std::filesystem::path(root) / std::string(*include))) continue;
        if (const std::string to = FolderOf(*include); to != from) includes[from].insert(to);
      }
    }
  }
  return includes;
}

}  // namespace

std::string Violation::ToString() const {
  return absl::StrCat(file, ":", line, ": \"", include, "\": ", rule);
}

std::vector<Violation> CheckFile(absl::string_view path, absl::string_view text) {
  std::vector<Violation> violations;
  const Room* room = RoomOf(path);
  if (room == nullptr) return violations;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const auto include = IncludeOf(line);
    if (!include.has_value()) continue;
    const std::string rule = BrokenRule(*room, path, *include, absl::StrContains(line, '"'));
    if (!rule.empty()) violations.push_back({std::string(path), number, std::string(*include), rule});
  }
  return violations;
}

TreeReport CheckTree(const std::string& root) {
  TreeReport report;
  for (const char* folder : kOurFolders) {
    const std::filesystem::path top = std::filesystem::path(root) / folder;
    if (!std::filesystem::exists(top)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
      const std::string path = std::filesystem::relative(entry.path(), root).string();
      if (!entry.is_regular_file() || !IsSource(entry.path()) || RoomOf(path) == nullptr) continue;
      ++report.files;
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      const auto violations = CheckFile(path, text.str());
      report.violations.insert(report.violations.end(), violations.begin(), violations.end());
    }
  }
  return report;
}

std::vector<std::string> FolderCycles(const std::string& root) {
  const auto includes = IncludesOfFolders(root);
  // [folder] Everything that it includes, directly or not.
  std::map<std::string, std::set<std::string>> reached;
  for (const auto& [folder, direct] : includes) {
    std::vector<std::string> open(direct.begin(), direct.end());
    while (!open.empty()) {
      const std::string next = open.back();
      open.pop_back();
      if (!reached[folder].insert(next).second) continue;
      if (const auto found = includes.find(next); found != includes.end()) {
        open.insert(open.end(), found->second.begin(), found->second.end());
      }
    }
  }
  std::vector<std::string> cycles;
  for (const auto& [folder, direct] : includes) {
    for (const std::string& other : direct) {
      if (reached[other].contains(folder)) cycles.push_back(absl::StrCat(folder, " -> ", other));
    }
  }
  return cycles;
}

}  // namespace cairn::guard
