#include "worker/report/status_pages.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/log.h"
#include "common/flags/flags.h"
#include "common/monitor/exposition.h"
#include "common/monitor/inspection.h"
#include "common/monitor/status_page.h"
#include "common/system/process_usage.h"

namespace cairn::worker {
namespace {

double Number(int64_t value) {
  return static_cast<double>(value);
}

void AddRows(const WorkerMetrics& metrics, monitor::Exposition& out) {
  const client::WireMetrics& wire = metrics.wire;
  out.Counter("cairn_worker_row_bytes_total",
              "The part of cairn_worker_wire_bytes_total that belongs to rows of embedding tables.");
  out.Sample({{"direction", "push"}}, Number(wire.row_push_bytes.value()));
  out.Sample({{"direction", "pull"}}, Number(wire.row_pull_bytes.value()));
  out.Counter("cairn_worker_rows_total", "Rows whose gradients were pushed, and rows received.");
  out.Sample({{"direction", "push"}}, Number(wire.pushed_rows.value()));
  out.Sample({{"direction", "pull"}}, Number(wire.pulled_rows.value()));
  out.Counter("cairn_worker_lookups_total", "Ids that the batches of training looked up.",
              Number(metrics.lookups.ids.value()));
  out.Counter("cairn_worker_distinct_lookups_total",
              "The same, with ids that a batch repeats counted once: the rows that batches need.",
              Number(metrics.lookups.distinct.value()));
}

std::string Metrics(const WorkerMetrics& metrics) {
  const WorkerMetrics::Now now = metrics.now();
  monitor::Exposition out;
  out.Counter("cairn_worker_examples_total", "Examples whose gradients were computed.",
              Number(metrics.examples.value()));
  out.Gauge("cairn_worker_loss", "Mean over the last batch.", now.last.loss);
  out.Gauge("cairn_worker_epoch", "The current epoch, from 1.", Number(now.last.epoch));
  out.Gauge("cairn_worker_version", "The version of the variables after the last step.",
            Number(now.last.version));
  out.Counter("cairn_worker_pushes_total", "Gradients, by the servers' answer.");
  out.Sample({{"outcome", "accepted"}}, Number(metrics.accepted.value()));
  out.Sample({{"outcome", "stale"}}, Number(metrics.stale.value()));
  out.Sample({{"outcome", "refused"}}, Number(metrics.refused.value()));
  out.Sample({{"outcome", "duplicate"}}, Number(metrics.duplicate.value()));
  out.Histogram("cairn_worker_step_seconds", "The duration of a step.", metrics.step_seconds);
  out.Histogram("cairn_worker_step_phase_seconds",
                "The phases of a step: waiting for the batch; the forward and backward passes, during which "
                "gradients are sent; waiting for the servers' answer.");
  out.Sample({{"phase", "input"}}, metrics.input_seconds);
  out.Sample({{"phase", "compute"}}, metrics.compute_seconds);
  out.Sample({{"phase", "answer"}}, metrics.answer_seconds);
  out.Histogram("cairn_worker_staleness_versions",
                "Updates between the version of an accepted gradient and its own update.", metrics.staleness);
  const client::WireMetrics& wire = metrics.wire;
  out.Counter("cairn_worker_wire_bytes_total",
              "Bytes of gradients pushed, of values in the answers, and of rows read.");
  out.Sample({{"direction", "push"}}, Number(wire.push_bytes.value()));
  out.Sample({{"direction", "pull"}}, Number(wire.pull_bytes.value()));
  out.Counter("cairn_worker_wire_saved_bytes_total", "The additional bytes that float32 would take.");
  out.Sample({{"direction", "push"}}, Number(wire.push_float32_bytes.value() - wire.push_bytes.value()));
  out.Sample({{"direction", "pull"}}, Number(wire.pull_float32_bytes.value() - wire.pull_bytes.value()));
  AddRows(metrics, out);
  out.Gauge(
      "cairn_worker_gradient_error_ratio",
      "For compressed gradients with their residuals: the norm of what was not sent, relative to the whole.",
      wire.error());
  out.Counter("cairn_worker_rejoins_total", "How often the worker lost its membership and joined again.",
              Number(metrics.rejoins.value()));
  out.Counter("cairn_worker_checkpoints_total", "Checkpoints of the chief, by outcome.");
  out.Sample({{"outcome", "saved"}}, Number(metrics.checkpoints.value()));
  out.Sample({{"outcome", "failed"}}, Number(metrics.checkpoints_failed.value()));
  if (metrics.checkpoint_version >= 0) {
    out.Gauge("cairn_worker_checkpoint_version", "The version of the newest checkpoint.",
              Number(metrics.checkpoint_version));
    out.Gauge("cairn_worker_checkpoint_timestamp_seconds",
              "When the newest checkpoint was saved, in Unix seconds.", metrics.checkpoint_unix_seconds);
  }
  out.AddProcess();
  return out.text();
}

monitor::StatusPage::Table Phases(const WorkerMetrics& metrics) {
  monitor::StatusPage::Table table = {.title = "Where a step's time goes",
                                      .columns = {"", "mean", "share", "median", "99th percentile"},
                                      .rows = {}};
  const double whole = metrics.step_seconds.sum();
  const auto add = [&](const char* what, const Distribution& phase) {
    const double count = Number(phase.count());
    const double part = whole > 0 ? phase.sum() / whole : 0;
    table.rows.push_back({{.text = what},
                          {.text = count == 0 ? "-" : monitor::InTime(phase.sum() / count), .number = true},
                          {.text = absl::StrFormat("%.0f %%", 100 * part), .number = true, .part = part},
                          {.text = monitor::InTime(monitor::QuantileOf(phase, 0.5)), .number = true},
                          {.text = monitor::InTime(monitor::QuantileOf(phase, 0.99)), .number = true}});
  };
  add("waiting for the batch", metrics.input_seconds);
  add("forward and backward passes", metrics.compute_seconds);
  add("waiting for the servers' answer", metrics.answer_seconds);
  add("the whole step", metrics.step_seconds);
  return table;
}

monitor::StatusPage::Table Servers(const v1::Job& job) {
  monitor::StatusPage::Table table = {.title = "Servers", .columns = {"task", "address"}, .rows = {}};
  for (int server = 0; server < job.servers_size(); ++server) {
    table.rows.push_back({{.text = absl::StrCat("ps/", server)}, {.text = job.servers(server)}});
  }
  return table;
}

// "12.5 % of float32, error 0.31"
std::string SavedOf(const client::WireMetrics& wire) {
  const double whole = Number(wire.push_float32_bytes.value());
  std::string text =
      absl::StrFormat("%.3g %% of float32", whole > 0 ? 100 * Number(wire.push_bytes.value()) / whole : 100);
  if (wire.error() > 0) absl::StrAppendFormat(&text, ", error %.2g", wire.error());
  return text;
}

monitor::StatusPage StatusOf(const WorkerIdentity& identity, const WorkerMetrics& metrics) {
  WorkerMetrics::Now now = metrics.now();
  const bool trains = metrics.step_seconds.count() > 0;
  const v1::Job& job = identity.job;
  monitor::StatusPage page = {
      .task = identity.task,
      .state = trains ? "trains" : "starting",
      .headline = absl::StrCat(identity.model, ", ", monitor::WithCommas(Number(identity.parameters)),
                               " parameters, ", monitor::NameOf(job.mode()), ", batches of ",
                               job.batch_size(), ", on ", now.device)};
  const auto last_loss = trains ? absl::StrFormat("%.4f", now.last.loss) : "-";
  const double steps = Number(metrics.step_seconds.count());
  page.facts = {
      {"version", monitor::WithCommas(Number(now.last.version)),
       job.final_version() > 0 ? absl::StrCat("of ", monitor::WithCommas(Number(job.final_version()))) : ""},
      {"epoch", absl::StrCat(now.last.epoch), absl::StrCat("of ", job.epochs())},
      {"examples/s", monitor::WithCommas(now.examples_per_second),
       absl::StrCat(monitor::WithCommas(Number(metrics.examples.value())), " in all")},
      {"loss", last_loss, "of the last batch"},
      {"step", trains ? monitor::InTime(metrics.step_seconds.sum() / steps) : "-",
       absl::StrCat(monitor::WithCommas(steps), " steps")},
      {"gradients refused", monitor::WithCommas(Number(metrics.stale.value() + metrics.refused.value())),
       absl::StrCat(monitor::WithCommas(Number(metrics.stale.value())), " of them stale")},
      {"pushed", monitor::InBytes(Number(metrics.wire.push_bytes.value())), SavedOf(metrics.wire)},
      {"memory", monitor::InBytes(Number(UsageOfThisProcess().resident_bytes)), "of the process"},
      {"checkpoint",
       metrics.checkpoint_version >= 0 ? absl::StrCat("step ", metrics.checkpoint_version.load()) : "-",
       absl::StrCat(metrics.checkpoints.value(), " saved, ", metrics.checkpoints_failed.value(), " failed")},
  };
  if (metrics.lookups.ids.value() > 0) {
    page.facts.push_back(
        {"rows", monitor::WithCommas(Number(metrics.wire.pulled_rows.value())),
         absl::StrCat("received; ",
                      monitor::ShareOf(metrics.lookups.distinct.value(), metrics.lookups.ids.value()),
                      " of a batch's lookups are distinct")});
  }
  page.curves = {{"examples/s", monitor::WithCommas(now.examples_per_second), 0}, {"loss", last_loss, 1}};
  page.history = std::move(now.history);
  page.tables = {Phases(metrics), Servers(job)};
  page.footer = absl::StrCat("cairn-worker ", std::string(Version()), " at ", identity.address, ", up ",
                             monitor::InTime(now.up_seconds), ". For Prometheus: /metrics");
  return page;
}

}  // namespace

absl::StatusOr<std::unique_ptr<monitor::HttpServer>> ServePages(const monitor::MetricsFlags& flags,
                                                                WorkerIdentity identity,
                                                                const WorkerMetrics& metrics) {
  if (!flags.port.has_value()) return nullptr;
  auto server = monitor::HttpServer::Start(
      flags.host, *flags.port, [identity = std::move(identity), &metrics](const std::string& path) {
        return PageOf(identity, metrics, path);
      });
  if (server.ok()) LogInfo("status at http://", flags.host, ":", (*server)->port(), "/statusz");
  return server;
}

monitor::HttpReply PageOf(const WorkerIdentity& identity, const WorkerMetrics& metrics,
                          const std::string& path) {
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = Metrics(metrics)};
  }
  if (path == "/healthz") return {.body = "ok\n"};
  if (path == "/statusz" || path == "/") {
    return {.content_type = "text/html; charset=utf-8",
            .body = monitor::RenderHtml(StatusOf(identity, metrics))};
  }
  return {.status = 404, .body = "no such page: there are /metrics, /healthz and /statusz\n"};
}

}  // namespace cairn::worker
