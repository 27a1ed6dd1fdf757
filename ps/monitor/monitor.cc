#include "ps/monitor/monitor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/inspector.grpc.pb.h"
#include "common/monitor/exposition.h"
#include "common/monitor/status_page.h"
#include "common/net/grpc/grpc_util.h"
#include "grpcpp/support/server_callback.h"
#include "ps/monitor/monitor_pages.h"

namespace cairn::ps {
namespace {

constexpr auto kSampleEvery = std::chrono::seconds(1);
constexpr auto kRatesOver = std::chrono::seconds(5);
constexpr size_t kCurvePoints = 240;

class Inspector final : public v1::Inspector::CallbackService {
 public:
  Inspector(const Monitor& monitor, const net::Gate* gate) : monitor_(monitor), gate_(gate) {}
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const v1::DescribeRequest*,
                                     v1::ServerStatus* response) override {
    const absl::Status admitted = gate_ == nullptr ? absl::OkStatus() : gate_->Admit(*context).status();
    if (admitted.ok()) *response = monitor_.Status();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(net::ToGrpc(admitted));
    return reactor;
  }

 private:
  const Monitor& monitor_;
  const net::Gate* const gate_;
};

// The mean over the workers that have reported a loss; NaN if none has.
double MeanLoss(const v1::ServerStatus& status) {
  double sum = 0;
  int count = 0;
  for (const v1::Member& member : status.members()) {
    if (member.state() != v1::MEMBER_STATE_LIVE || !member.has_report() || member.report().examples() == 0)
      continue;
    sum += member.report().loss();
    ++count;
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
}

}  // namespace

Monitor::Monitor(Server& server, const Clock& clock, std::string address)
    : server_(server), clock_(clock), address_(std::move(address)), history_(kCurvePoints, kSampleEvery) {}

void Monitor::Sample() {
  const TimePoint now = clock_.Now();
  {
    MutexLock lock(mutex_);
    if (!recent_.empty() && now - recent_.back().at < kSampleEvery) return;
  }
  const v1::ServerStatus status = server_.Status();
  {
    MutexLock lock(mutex_);
    // The version falls if a job is rolled back, or another job begins.
    if (!recent_.empty() && status.version() < recent_.back().version) recent_.clear();
    if (!recent_.empty() && recent_.back().tables.size() != static_cast<size_t>(status.tables_size())) {
      recent_.clear();
    }
    recent_.push_back({.at = now,
                       .received_bytes = status.received_bytes(),
                       .sent_bytes = status.sent_bytes(),
                       .version = status.version(),
                       .examples = status.counters().examples()});
    for (const v1::TableStatus& table : status.tables()) {
      recent_.back().tables.push_back(
          {.lookups = table.lookups(), .updates = table.updates(), .inserts = table.inserts()});
    }
    while (recent_.size() > 2 && now - recent_.front().at > kRatesOver) recent_.pop_front();
  }
  if (!history_.Wants(now)) return;
  const v1::Rates rates = WithRates(status).rates();
  history_.Add(now, {rates.updates_per_second(), rates.examples_per_second(),
                     rates.received_bytes_per_second() + rates.sent_bytes_per_second(), MeanLoss(status)});
}

v1::ServerStatus Monitor::Status() const {
  return WithRates(server_.Status());
}

v1::ServerStatus Monitor::WithRates(v1::ServerStatus status) const {
  MutexLock lock(mutex_);
  if (recent_.size() < 2) return status;
  const Totals &first = recent_.front(), &last = recent_.back();
  const double seconds = ToSeconds(last.at - first.at);
  const auto rate = [&](int64_t before, int64_t after) {
    return static_cast<double>(after - before) / seconds;
  };
  v1::Rates& rates = *status.mutable_rates();
  rates.set_received_bytes_per_second(rate(first.received_bytes, last.received_bytes));
  rates.set_sent_bytes_per_second(rate(first.sent_bytes, last.sent_bytes));
  rates.set_updates_per_second(rate(first.version, last.version));
  rates.set_examples_per_second(rate(first.examples, last.examples));
  const size_t tables = std::min(last.tables.size(), static_cast<size_t>(status.tables_size()));
  for (size_t i = 0; i < tables; ++i) {
    const Totals::OfTable &before = first.tables[i], &after = last.tables[i];
    v1::TableStatus& table = *status.mutable_tables(static_cast<int>(i));
    table.set_lookups_per_second(rate(before.lookups, after.lookups));
    table.set_updates_per_second(rate(before.updates, after.updates));
    table.set_inserts_per_second(rate(before.inserts, after.inserts));
  }
  return status;
}

monitor::HttpReply Monitor::Page(const std::string& path) const {
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = MetricsOf(Status(), server_.metrics())};
  }
  if (path == "/healthz") {
    const v1::ServerStatus status = server_.Status();
    if (status.state() != v1::STATE_FAILED) return {.body = "ok\n"};
    return {.status = 503, .body = absl::StrCat(status.failure(), "\n")};
  }
  if (path == "/statusz" || path == "/") {
    return {.content_type = "text/html; charset=utf-8",
            .body = monitor::RenderHtml(PageOf(Status(), server_.metrics(), history_.points(), address_))};
  }
  return {.status = 404, .body = "no such page: there are /metrics, /healthz and /statusz\n"};
}

std::unique_ptr<grpc::Service> Monitor::MakeService(const net::Gate* gate) {
  return std::make_unique<Inspector>(*this, gate);
}

}  // namespace cairn::ps
