#include "ps/log/marker_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::ps {
namespace {

// Number of versions kept at markers for readers that have not arrived. Many readers that start together use
// one version.
constexpr size_t kKeptVersions = 64;
// Number of markers that are remembered without their values, to refuse readers that arrive too late.
constexpr size_t kRememberedMarkers = 4096;

absl::Status NotKept(absl::string_view token) {
  return absl::UnavailableError(absl::StrCat("the values at marker ", token, " have been dropped"));
}

}  // namespace

std::optional<absl::StatusOr<ReadResult>> MarkerTable::Read(const std::string& token, ReadReply& reply) {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.token == token; });
  if (found != kept_.end()) {
    auto result = std::move(found->result);
    kept_.erase(found);
    return result;
  }
  if (num_awaiting_ >= kMaxAwaiting) {
    return absl::ResourceExhaustedError(absl::StrCat("marker ", token, ": ", num_awaiting_,
                                                     " reads wait for markers, at most ", kMaxAwaiting));
  }
  ++num_awaiting_;
  awaiting_[token].push_back(std::move(reply));
  return std::nullopt;
}

std::vector<ReadReply> MarkerTable::TakeReaders(const std::string& token) {
  const auto found = awaiting_.find(token);
  if (found == awaiting_.end()) return {};
  std::vector<ReadReply> readers = std::move(found->second);
  num_awaiting_ -= readers.size();
  awaiting_.erase(found);
  return readers;
}

void MarkerTable::Keep(const std::string& token, bool snapshot, absl::StatusOr<ReadResult> result) {
  kept_.push_back({token, snapshot, std::move(result)});
  DropOld();
  if (kept_.size() > kRememberedMarkers) kept_.pop_front();
}

void MarkerTable::DropOld() {
  size_t versions = 0;
  int64_t last = -1;
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) {
    if (!kept->result.ok()) continue;
    versions += std::exchange(last, kept->result->values.version) == last ? 0 : 1;
    if (versions > kKeptVersions) kept->result = NotKept(kept->token);
  }
}

void MarkerTable::KeepNothing(const std::string& token) {
  Keep(token, /*snapshot=*/false,
       absl::UnavailableError(
           absl::StrCat("the values at marker ", token, " were lost with the server that stored them")));
}

void MarkerTable::DropSnapshots() {
  for (Kept& kept : kept_) {
    if (kept.snapshot && kept.result.ok()) kept.result = NotKept(kept.token);
  }
}

void MarkerTable::DropUntil(absl::FunctionRef<absl::Status()> room) {
  for (Kept& kept : kept_) {
    const absl::Status status = room();
    if (status.ok()) return;
    if (kept.result.ok()) kept.result = status;
  }
}

std::vector<ReadReply> MarkerTable::Clear() {
  std::vector<ReadReply> readers;
  for (auto& [token, replies] : awaiting_) {
    for (ReadReply& reply : replies) readers.push_back(std::move(reply));
  }
  awaiting_.clear();
  num_awaiting_ = 0;
  kept_.clear();
  return readers;
}

std::vector<std::string> MarkerTable::tokens() const {
  std::vector<std::string> tokens;
  for (const Kept& kept : kept_) tokens.push_back(kept.token);
  return tokens;
}

}  // namespace cairn::ps
