#include "ps/monitor/monitor_pages.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/monitor/exposition.h"
#include "common/monitor/inspection.h"
#include "common/net/wire/final_version.h"

namespace cairn::ps {
namespace {

using monitor::Exposition;

double Number(int64_t value) {
  return static_cast<double>(value);
}

void AddUpdates(const v1::ServerStatus& status, const Metrics& metrics, Exposition& out) {
  out.Gauge("cairn_ps_version", "The version of the variables: the number of updates applied to them.",
            Number(status.version()));
  out.Gauge("cairn_ps_final_version", "The version at which the job ends; 0 if it does not end at a version.",
            Number(net::FinalVersionOf(status.job())));
  out.Gauge("cairn_ps_learning_rate", "The learning rate of the next update.", status.learning_rate());
  const v1::Counters& counters = status.counters();
  out.Counter(
      "cairn_ps_pushes_total",
      "Gradients by outcome, since the job began. Accepted and stale ones are counted by the server that "
      "writes the round log.");
  out.Sample({{"outcome", "accepted"}}, Number(counters.accepted()));
  out.Sample({{"outcome", "stale"}}, Number(counters.stale()));
  out.Sample({{"outcome", "duplicate"}}, Number(counters.duplicate()));
  out.Sample({{"outcome", "refused"}}, Number(counters.rejected()));
  out.Counter("cairn_ps_examples_total",
              "Examples in accepted gradients, counted by the server that writes the round log.",
              Number(counters.examples()));
  if (counters.staleness_histogram_size() > 0) {
    std::vector<double> limits;
    std::vector<int64_t> counts(counters.staleness_histogram().begin(), counters.staleness_histogram().end());
    double sum = 0;
    for (int i = 0; i < counters.staleness_histogram_size(); ++i) {
      if (i + 1 < counters.staleness_histogram_size()) limits.push_back(i);
      sum += i * Number(counters.staleness_histogram(i));
    }
    out.Histogram("cairn_ps_staleness_versions",
                  "Updates between the version of an accepted gradient and its own update. In the sum, "
                  "gradients of the last bucket count with its lower bound.");
    out.Sample({}, limits, counts, sum);
  }
  out.Gauge("cairn_ps_staleness_max_versions", "The largest staleness of an accepted gradient.",
            Number(counters.staleness_max()));
  out.Histogram("cairn_ps_round_seconds",
                "From the arrival of an update's first gradient to the new version.", metrics.round_seconds);
  out.Histogram("cairn_ps_round_spread_seconds",
                "From the arrival of an update's first gradient to the last, if there are several.",
                metrics.spread_seconds);
  out.Histogram("cairn_ps_apply_seconds", "The arithmetic of an update: mean and optimizer.",
                metrics.apply_seconds);
}

void AddLoad(const v1::ServerStatus& status, Exposition& out) {
  out.Counter("cairn_ps_received_bytes_total", "Payload received: gradients and written values.",
              Number(status.received_bytes()));
  out.Counter("cairn_ps_sent_bytes_total", "Payload sent: values.", Number(status.sent_bytes()));
  out.Counter("cairn_ps_malformed_chunks_total",
              "Malformed chunks of gradients or values, which had no effect.",
              Number(status.malformed_chunks()));
  out.Gauge("cairn_ps_variables", "Variables of which this server stores rows.", Number(status.variables()));
  out.Gauge("cairn_ps_variable_bytes", "The size of one version of this server's values.",
            Number(status.variable_bytes()));
  out.Gauge("cairn_ps_job_memory_bytes", "Values, slots and buffers of the job.",
            Number(status.memory_bytes()));
  out.Gauge("cairn_ps_job_memory_limit_bytes", "The memory that the job may use: --memory_limit.",
            Number(status.memory_limit_bytes()));
  out.Gauge("cairn_ps_staged_pushes", "Gradients that are complete on this server and not decided.",
            Number(status.queues().staged_pushes()));
  out.Gauge("cairn_ps_oldest_push_seconds", "The age of the oldest staged gradient.",
            status.waiting_seconds());
  out.Gauge("cairn_ps_log_entries", "Entries of the round log that this server has not executed.",
            Number(status.queues().log_entries()));
  out.Gauge("cairn_ps_waiting_calls", "Calls that wait for a condition.",
            Number(status.queues().waiting_calls()));
}

void AddMembers(const v1::ServerStatus& status, Exposition& out) {
  out.Gauge("cairn_ps_members", "Workers of the job by state.");
  for (const auto state :
       {v1::MEMBER_STATE_EXPECTED, v1::MEMBER_STATE_LIVE, v1::MEMBER_STATE_LEFT, v1::MEMBER_STATE_LOST}) {
    int count = 0;
    for (const v1::Member& member : status.members()) count += member.state() == state;
    out.Sample({{"state", monitor::NameOf(state)}}, count);
  }
  if (status.members().empty()) return;
  out.Gauge("cairn_ps_member_step", "A worker's current step, by its own count.");
  for (const v1::Member& member : status.members()) {
    out.Sample({{"worker", member.task()}}, Number(member.step()));
  }
  out.Gauge("cairn_ps_member_heard_seconds", "Time since a worker's last heartbeat.");
  for (const v1::Member& member : status.members()) {
    out.Sample({{"worker", member.task()}}, member.heard_seconds());
  }
  out.Counter("cairn_ps_member_last_total",
              "How often a worker's gradient was the last one of an update on this server.");
  for (const v1::Member& member : status.members()) {
    out.Sample({{"worker", member.task()}}, Number(member.times_last()));
  }
  out.Counter("cairn_ps_member_late_seconds_total",
              "Total delay of the gradients in cairn_ps_member_last_total behind the first ones.");
  for (const v1::Member& member : status.members()) {
    out.Sample({{"worker", member.task()}}, member.late_seconds());
  }
  out.Gauge("cairn_ps_waiting_for", "1 for a task that the open round waits for.");
  for (const std::string& task : status.waiting_for()) out.Sample({{"task", task}}, 1);
}

void AddTables(const v1::ServerStatus& status, Exposition& out) {
  if (status.tables().empty()) return;
  const auto of_each = [&](double (*value)(const v1::TableStatus&)) {
    for (const v1::TableStatus& table : status.tables()) out.Sample({{"table", table.name()}}, value(table));
  };
  out.Gauge("cairn_ps_table_rows", "Rows of an embedding table that exist on this server.");
  of_each([](const v1::TableStatus& table) { return Number(table.rows()); });
  out.Gauge("cairn_ps_table_bytes", "Memory of these rows, with their optimizer slots and their index.");
  of_each([](const v1::TableStatus& table) { return Number(table.bytes()); });
  out.Counter("cairn_ps_table_lookups_total", "Rows read by workers.");
  of_each([](const v1::TableStatus& table) { return Number(table.lookups()); });
  out.Counter("cairn_ps_table_hits_total", "Rows read by workers that existed.");
  of_each([](const v1::TableStatus& table) { return Number(table.hits()); });
  out.Counter("cairn_ps_table_gradients_total", "Rows in the gradients of updates.");
  of_each([](const v1::TableStatus& table) { return Number(table.gradients()); });
  out.Counter("cairn_ps_table_updates_total",
              "Rows updated: a row that several gradients of an update contain counts once.");
  of_each([](const v1::TableStatus& table) { return Number(table.updates()); });
  out.Counter("cairn_ps_table_inserts_total", "Rows that updates have made.");
  of_each([](const v1::TableStatus& table) { return Number(table.inserts()); });
  out.Gauge("cairn_ps_table_hottest_ratio",
            "The share of the most frequent row among all rows in gradients, estimated from a sample.");
  of_each(
      [](const v1::TableStatus& table) { return table.hottest().empty() ? 0 : table.hottest(0).share(); });
}

monitor::StatusPage::Cell Text(std::string text) {
  return {.text = std::move(text)};
}
monitor::StatusPage::Cell Right(std::string text) {
  return {.text = std::move(text), .number = true};
}

monitor::StatusPage::Table Workers(const v1::ServerStatus& status) {
  monitor::StatusPage::Table table = {
      .title = "Workers",
      .columns = {"task", "state", "step", "examples/s", "step time", "input", "compute", "answer", "loss",
                  "last in round", "delay", "memory", "heartbeat", "device"},
      .rows = {},
      .empty = "no job"};
  double fastest = 0;
  int64_t rounds = 0;
  for (const v1::Member& member : status.members()) {
    fastest = std::max(fastest, member.report().examples_per_second());
    rounds += member.times_last();
  }
  for (const v1::Member& member : status.members()) {
    const v1::WorkerReport& report = member.report();
    const bool told = member.has_report() && report.step_seconds() > 0;
    const double last = rounds == 0 ? 0 : Number(member.times_last()) / Number(rounds);
    const bool bad = member.state() == v1::MEMBER_STATE_LOST;
    table.rows.push_back({Text(member.task()),
                          {.text = monitor::NameOf(member.state()), .bad = bad},
                          Right(monitor::WithCommas(Number(member.step()))),
                          {.text = told ? monitor::WithCommas(report.examples_per_second()) : "-",
                           .number = true,
                           .part = told && fastest > 0 ? report.examples_per_second() / fastest : -1},
                          Right(told ? monitor::InTime(report.step_seconds()) : "-"),
                          Right(told ? monitor::InTime(report.input_seconds()) : "-"),
                          Right(told ? monitor::InTime(report.compute_seconds()) : "-"),
                          Right(told ? monitor::InTime(report.answer_seconds()) : "-"),
                          Right(told ? absl::StrFormat("%.4f", report.loss()) : "-"),
                          {.text = absl::StrFormat("%.0f %%", 100 * last), .number = true, .part = last},
                          Right(member.times_last() == 0
                                    ? "-"
                                    : monitor::InTime(member.late_seconds() / Number(member.times_last()))),
                          Right(told ? monitor::InBytes(Number(report.resident_bytes())) : "-"),
                          Right(member.state() == v1::MEMBER_STATE_LIVE
                                    ? absl::StrCat(monitor::InTime(member.heard_seconds()), " ago")
                                    : "-"),
                          Text(report.device())});
  }
  return table;
}

monitor::StatusPage::Table Placement(const v1::ServerStatus& status) {
  monitor::StatusPage::Table table = {.title = "Placement: variables on this server",
                                      .columns = {"variable", "shape", "rows", "bytes"},
                                      .rows = {},
                                      .empty = "nothing"};
  for (const v1::VariableSlice& slice : status.largest_slices()) {
    int64_t row_elements = 1;
    for (int i = 1; i < slice.shape_size(); ++i) row_elements *= slice.shape(i);
    const int64_t rows = slice.row_end() - slice.row_begin();
    const bool whole = slice.shape_size() == 0 || rows == slice.shape(0);
    const double bytes = Number(rows * row_elements * static_cast<int64_t>(sizeof(float)));
    table.rows.push_back(
        {Text(slice.name()),
         Text(absl::StrCat("[", absl::StrJoin(slice.shape(), ", "), "]")),
         Text(whole ? "all" : absl::StrCat(slice.row_begin(), " to ", slice.row_end() - 1)),
         {.text = monitor::InBytes(bytes),
          .number = true,
          .part = status.variable_bytes() > 0 ? bytes / Number(status.variable_bytes()) : -1}});
  }
  if (status.variables() > status.largest_slices_size()) {
    table.title = absl::StrCat("Placement: the largest of ", status.variables(), " variables on this server");
  }
  return table;
}

monitor::StatusPage::Table EmbeddingTables(const v1::ServerStatus& status) {
  monitor::StatusPage::Table table = {.title = "Embedding tables: rows on this server",
                                      .columns = {"table", "elements", "rows", "memory", "lookups/s", "hits",
                                                  "updates/s", "distinct", "inserts/s", "hottest rows"},
                                      .rows = {},
                                      .empty = "none"};
  for (const v1::TableStatus& of : status.tables()) {
    table.rows.push_back(
        {Text(of.name()), Right(absl::StrCat(of.row_elements())),
         Right(monitor::WithCommas(Number(of.rows()))), Right(monitor::InBytes(Number(of.bytes()))),
         Right(monitor::WithCommas(of.lookups_per_second())),
         Right(monitor::ShareOf(of.hits(), of.lookups())),
         Right(monitor::WithCommas(of.updates_per_second())),
         Right(monitor::ShareOf(of.updates(), of.gradients())),
         Right(monitor::WithCommas(of.inserts_per_second())), Text(monitor::HottestOf(of.hottest()))});
  }
  return table;
}

monitor::StatusPage::Table Servers(const v1::ServerStatus& status) {
  monitor::StatusPage::Table table = {.title = "Servers", .columns = {"task", "address", ""}, .rows = {}};
  for (int server = 0; server < status.job().servers_size(); ++server) {
    const std::string task = absl::StrCat("ps/", server);
    table.rows.push_back(
        {Text(task), Text(status.job().servers(server)), Text(task == status.task() ? "this one" : "")});
  }
  return table;
}

monitor::StatusPage::Table Times(const Metrics& metrics) {
  monitor::StatusPage::Table table = {
      .title = "Updates", .columns = {"", "count", "mean", "median", "99th percentile"}, .rows = {}};
  const auto add = [&](const char* what, const Distribution& distribution) {
    const auto count = static_cast<double>(distribution.count());
    table.rows.push_back(
        {Text(what), Right(monitor::WithCommas(count)),
         Right(count == 0 ? "-" : monitor::InTime(distribution.sum() / count)),
         Right(count == 0 ? "-" : monitor::InTime(monitor::QuantileOf(distribution, 0.5))),
         Right(count == 0 ? "-" : monitor::InTime(monitor::QuantileOf(distribution, 0.99)))});
  };
  add("from its first gradient to the new version", metrics.round_seconds);
  add("from its first gradient to its last", metrics.spread_seconds);
  add("mean and optimizer", metrics.apply_seconds);
  return table;
}

}  // namespace

std::string MetricsOf(const v1::ServerStatus& status, const Metrics& metrics) {
  Exposition out;
  out.Gauge("cairn_ps_state", "1 for the server's current state.");
  for (const auto state : {v1::STATE_EMPTY, v1::STATE_INITIALISING, v1::STATE_READY, v1::STATE_FINISHED,
                           v1::STATE_FAILED, v1::STATE_BACKUP}) {
    out.Sample({{"state", monitor::NameOf(state)}}, status.state() == state ? 1 : 0);
  }
  AddUpdates(status, metrics, out);
  AddLoad(status, out);
  AddTables(status, out);
  AddMembers(status, out);
  out.AddProcess();
  return out.text();
}

monitor::StatusPage PageOf(const v1::ServerStatus& status, const Metrics& metrics,
                           std::vector<History::Point> history, const std::string& address) {
  const v1::Counters& counters = status.counters();
  const v1::Rates& rates = status.rates();
  monitor::StatusPage page = {.task = status.task(),
                              .state = monitor::NameOf(status.state()),
                              .well = status.state() != v1::STATE_FAILED,
                              .headline = monitor::HeadlineOf(status)};
  const int64_t final_version = net::FinalVersionOf(status.job());
  const std::string last =
      final_version > 0 ? absl::StrCat("of ", monitor::WithCommas(Number(final_version))) : "";
  page.facts = {
      {"version", monitor::WithCommas(Number(status.version())), last},
      {"examples/s", status.sequences() ? monitor::WithCommas(rates.examples_per_second()) : "-",
       absl::StrCat(monitor::WithCommas(Number(counters.examples())), " in total")},
      {"received", monitor::InBytes(rates.received_bytes_per_second()) + "/s",
       monitor::InBytes(Number(status.received_bytes())) + " in total"},
      {"sent", monitor::InBytes(rates.sent_bytes_per_second()) + "/s",
       monitor::InBytes(Number(status.sent_bytes())) + " in total"},
      {"gradients refused", monitor::WithCommas(Number(counters.stale() + counters.rejected())),
       absl::StrCat(monitor::WithCommas(Number(counters.stale())), " of them stale, ",
                    monitor::WithCommas(Number(counters.duplicate())), " duplicates")},
      {"staleness",
       absl::StrCat(monitor::StalenessQuantile(counters, 0.5), " / ",
                    monitor::StalenessQuantile(counters, 0.99)),
       absl::StrCat("median / 99th percentile; largest ", counters.staleness_max())},
      {"job's memory", monitor::InBytes(Number(status.memory_bytes())),
       absl::StrCat("of ", monitor::InBytes(Number(status.memory_limit_bytes())), "; process ",
                    monitor::InBytes(Number(status.resident_bytes())))},
      {"variables", monitor::WithCommas(Number(status.variables())),
       monitor::InBytes(Number(status.variable_bytes()))},
  };
  const auto newest = [&](size_t series) {
    return history.empty() ? std::numeric_limits<double>::quiet_NaN() : history.back().values[series];
  };
  const double loss = newest(3);
  page.curves = {
      {"examples/s", monitor::WithCommas(newest(1)), 1},
      {"loss, mean of the workers' last batches", std::isnan(loss) ? "-" : absl::StrFormat("%.4f", loss), 3},
      {"updates/s", absl::StrFormat("%.4g", newest(0)), 0},
      {"bytes/s, received and sent", monitor::InBytes(newest(2)), 2}};
  page.history = std::move(history);
  page.tables = {Workers(status), Times(metrics), Placement(status)};
  if (!status.tables().empty()) page.tables.push_back(EmbeddingTables(status));
  page.tables.push_back(Servers(status));
  page.footer = absl::StrCat("cairn-ps ", status.program_version(), " at ", address, ", up ",
                             monitor::InTime(status.uptime_seconds()), ", incarnation ", status.incarnation(),
                             ", protocol ", status.protocol(), ". For Prometheus: /metrics");
  return page;
}

}  // namespace cairn::ps
