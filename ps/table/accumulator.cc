#include "ps/table/accumulator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// The minimum average length, in bytes, of a borrowed chunk's runs. If the runs are shorter, copying the
// chunk is cheaper than iterating over its runs.
constexpr size_t kMinKeptRun = 4096;
// Limit on the number of runs; a chunk whose runs would exceed it is copied.
constexpr size_t kMaxReferences = 1024;

}  // namespace

absl::StatusOr<Accumulator::Neighbours> Accumulator::FindRoom(int64_t offset, int64_t count) {
  if (offset < 0 || offset > pool_.buffer_size() - count) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", count, " elements at ", offset,
                                                   " lies outside the ", pool_.buffer_size(),
                                                   " values of this server"));
  }
  const auto after = runs_.upper_bound(offset);
  const auto before = after == runs_.begin() ? runs_.end() : std::prev(after);
  if ((after != runs_.end() && after->first < offset + count) ||
      (before != runs_.end() && before->second > offset)) {
    return absl::InvalidArgumentError(absl::StrCat("chunk [", offset, ", ", offset + count,
                                                   ") repeats elements that have already arrived"));
  }
  return Neighbours{before, after};
}

absl::Span<float> Accumulator::DestinationFor(const v1::Chunk& chunk, int64_t count) {
  if (chunk.encoding() != v1::ENCODING_FLOAT32 || !FindRoom(chunk.offset(), count).ok()) return {};
  if (buffer_ == nullptr) buffer_ = pool_.TryAcquire();
  if (buffer_ == nullptr) return {};
  return {buffer_->data() + chunk.offset(), static_cast<size_t>(count)};
}

absl::Status Accumulator::Add(const v1::Chunk& chunk, net::Payload payload) {
  const int64_t offset = chunk.offset();
  CAIRN_ASSIGN_OR_RETURN(const auto elements, net::ReceivedElements::Of(chunk, payload));
  const int64_t count = elements.count();
  CAIRN_ASSIGN_OR_RETURN(const auto room, FindRoom(offset, count));
  const auto [before, after] = room;

  const int64_t next = after == runs_.end() ? pool_.buffer_size() : after->first;
  if (!Keep(chunk, payload, next)) CAIRN_RETURN_IF_ERROR(Copy(elements, offset, next));
  received_ += count;
  last_ = {offset, offset + count};

  int64_t begin = offset, end = offset + count;
  if (before != runs_.end() && before->second == begin) {
    begin = before->first;
    runs_.erase(before);
  }
  if (after != runs_.end() && after->first == end) {
    end = after->second;
    runs_.erase(after);
  }
  runs_[begin] = end;
  return absl::OkStatus();
}

bool Accumulator::Keep(const v1::Chunk& chunk, net::Payload payload, int64_t next) {
  if (!keeps_borrowed_ || payload.borrowed() == nullptr || chunk.encoding() != v1::ENCODING_FLOAT32)
    return false;
  const auto kept = payload.borrowed()->Keep();
  if (!kept.has_value()) return false;
  const size_t runs = kept->runs.size();
  if (runs > 1 && payload.borrowed()->size() / runs < kMinKeptRun) return false;
  if (references_.size() + 2 * runs > kMaxReferences) return false;
  for (const absl::Span<const char> run : kept->runs) {
    const auto address = reinterpret_cast<uintptr_t>(run.data());
    if (address % alignof(float) != 0 || run.size() % sizeof(float) != 0) return false;
  }
  if (references_.empty() && received_ > 0) references_.push_back({0, buffer_->data()});
  int64_t begin = chunk.offset();
  for (const absl::Span<const char> run : kept->runs) {
    Reference(begin, reinterpret_cast<const float*>(run.data()), next);
    begin += static_cast<int64_t>(run.size() / sizeof(float));
  }
  if (std::find(owners_.begin(), owners_.end(), kept->owner) == owners_.end()) {
    owners_.push_back(kept->owner);
    elements_ = GradientView();
  }
  return true;
}

absl::Status Accumulator::Copy(const net::ReceivedElements& elements, int64_t offset, int64_t next) {
  if (buffer_ == nullptr) buffer_ = pool_.TryAcquire();
  if (buffer_ == nullptr) return pool_.Refusal("received values");
  float* const to = buffer_->data() + offset;
  CAIRN_RETURN_IF_ERROR(elements.Copy(0, {to, static_cast<size_t>(elements.count())}));
  if (!references_.empty()) Reference(offset, to, next);
  return absl::OkStatus();
}

void Accumulator::Reference(int64_t begin, const float* elements, int64_t next) {
  // Whether the memory of `run`, extended up to element `to.begin`, continues in the memory of `to`.
  const auto goes_on_to = [](const optim::ElementRun& run, const optim::ElementRun& to) {
    return reinterpret_cast<uintptr_t>(run.elements) +
               static_cast<size_t>(to.begin - run.begin) * sizeof(float) ==
           reinterpret_cast<uintptr_t>(to.elements);
  };
  const auto first_behind = [this](int64_t element) {
    return std::upper_bound(references_.begin(), references_.end(), element,
                            [](int64_t at, const optim::ElementRun& run) { return at < run.begin; });
  };
  std::vector<optim::ElementRun> now = {{begin, elements}};
  if (next < pool_.buffer_size()) {
    const optim::ElementRun& there = *std::prev(first_behind(next));
    const optim::ElementRun rest = {next, there.elements + (next - there.begin)};
    if (!goes_on_to(now[0], rest)) now.push_back(rest);
  }
  const auto from = std::lower_bound(references_.begin(), references_.end(), begin,
                                     [](const optim::ElementRun& run, int64_t at) { return run.begin < at; });
  if (from != references_.begin() && goes_on_to(*std::prev(from), now[0])) now.erase(now.begin());
  const auto to = next < pool_.buffer_size() ? first_behind(next) : references_.end();
  if (now.empty() && from == to) return;  // usually the new elements extend a run
  references_.insert(references_.erase(from, to), now.begin(), now.end());
  elements_ = GradientView();
}

const GradientView& Accumulator::elements() {
  if (!elements_.none()) return elements_;
  if (references_.empty()) {
    elements_ = GradientView(buffer_);
  } else {
    std::vector<std::shared_ptr<const void>> owners = owners_;
    owners.push_back(buffer_);
    elements_ = GradientView(references_, std::move(owners));
  }
  return elements_;
}

GradientView Accumulator::Take() {
  (void)elements();
  owners_.clear();
  buffer_.reset();
  return std::exchange(elements_, GradientView());
}

}  // namespace cairn::ps
