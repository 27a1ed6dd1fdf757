#include "client/training/batch_means.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/training/push_repeats.h"
#include "client/transport/transport.h"
#include "common/core/status.h"

namespace cairn::client {
namespace {

// How long a call lets the server wait. Between calls this worker checks whether it still is a member.
constexpr auto kWait = std::chrono::seconds(1);
// The most values in one call, unless a single part has more.
constexpr size_t kMaxValues = 65536;

}  // namespace

BatchMeans::BatchMeans(Connection& connection, Options options)
    : connection_(connection), options_(std::move(options)) {}

void BatchMeans::Begin(const Step& step) {
  step_ = step;
  parts_.clear();
  skipped_ = false;
}

v1::BatchMeanRequest BatchMeans::RequestFor(int64_t index, int64_t first, Duration wait) const {
  v1::BatchMeanRequest request;
  request.set_layout(step_.layout);
  request.set_worker(step_.worker);
  request.set_incarnation(step_.incarnation);
  request.set_version(step_.version);
  request.set_examples(skipped_ ? 0 : step_.examples);
  request.set_index(index);
  request.set_first(first);
  request.set_wait_seconds(ToSeconds(wait));
  size_t values = 0;
  for (size_t part = static_cast<size_t>(first); part < parts_.size(); ++part) {
    values += parts_[part].size();
    if (values > kMaxValues && request.parts_size() > 0) break;
    request.add_parts()->mutable_values()->Add(parts_[part].begin(), parts_[part].end());
  }
  return request;
}

absl::StatusOr<v1::BatchMeanResponse> BatchMeans::Call(const v1::BatchMeanRequest& request) {
  v1::BatchMeanResponse response;
  CAIRN_RETURN_IF_ERROR(options_.persist([&] {
    return Annotate(connection_.stub(0).Call(request, &response, kCallTimeout, connection_.options().stop),
                    connection_.NameOf(0));
  }));
  return response;
}

absl::Status BatchMeans::Mean(absl::Span<double> values) {
  const auto index = static_cast<int64_t>(parts_.size());
  parts_.emplace_back(values.begin(), values.end());
  const TimePoint start = SteadyNow();
  const TimePoint deadline = start + options_.step_timeout;
  TimePoint next_report = start + PushRepeats::kLogEvery;
  for (int64_t first = index;;) {
    CAIRN_ASSIGN_OR_RETURN(const v1::BatchMeanResponse response, Call(RequestFor(index, first, kWait)));
    if (response.holds()) {
      if (static_cast<size_t>(response.mean_size()) != values.size()) {
        return absl::InternalError(absl::StrCat(connection_.NameOf(0), ": a mean of ", response.mean_size(),
                                                " values instead of ", values.size()));
      }
      std::copy(response.mean().begin(), response.mean().end(), values.begin());
      return absl::OkStatus();
    }
    first = std::clamp<int64_t>(response.known(), 0, index + 1);
    CAIRN_RETURN_IF_ERROR(options_.failure());
    const TimePoint now = SteadyNow();
    const std::string waits = absl::StrCat("synchronized batch normalization waits for ", response.missing());
    if (now >= deadline)
      return absl::UnavailableError(absl::StrCat(waits, ": ", HowLong(start, options_.step_timeout)));
    if (now >= next_report) {
      next_report += PushRepeats::kLogEvery;
      connection_.Report(absl::StrCat(waits, " (", HowLong(start, options_.step_timeout), ")"));
    }
  }
}

absl::Status BatchMeans::Skip() {
  skipped_ = true;
  return Call(RequestFor(0, 0, Duration::zero())).status();
}

absl::Status BatchMeans::SendAgain() {
  const auto size = static_cast<int64_t>(parts_.size());
  for (int64_t first = 0; skipped_ || first < size;) {
    const v1::BatchMeanRequest request = RequestFor(first, first, Duration::zero());
    const absl::Status sent = Call(request).status();
    // The round has ended, or this worker is not a member: the answer to its push says which.
    if (absl::IsAborted(sent)) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(sent);
    if (skipped_) return absl::OkStatus();
    first += request.parts_size();
  }
  return absl::OkStatus();
}

}  // namespace cairn::client
