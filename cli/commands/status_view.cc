#include "cli/commands/status_view.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/monitor/inspection.h"
#include "common/monitor/status_page.h"
#include "common/net/wire/final_version.h"

namespace cairn::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

double Number(int64_t value) {
  return static_cast<double>(value);
}

// Pads columns to their widest cell; the first three are left-aligned, the others right-aligned.
std::string Align(const Rows& rows) {
  constexpr size_t kToTheLeft = 3;
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", i < kToTheLeft ? "" : padding, row[i],
                      i < kToTheLeft ? padding : "");
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// The address of "worker/1" in the cluster; empty if it is not listed.
std::string AddressOf(const net::ClusterSpec& cluster, const std::string& task) {
  for (const net::TaskId& trainer : cluster.trainers()) {
    if (trainer.ToString() == task) return cluster.tasks(trainer.job).at(trainer.index).ToString();
  }
  return "";
}

std::string Progress(const v1::ServerStatus& leader) {
  const int64_t last = net::FinalVersionOf(leader.job());
  std::string text = absl::StrCat("step ", monitor::WithCommas(Number(leader.version())));
  if (last > 0) absl::StrAppend(&text, " of ", monitor::WithCommas(Number(last)));
  if (leader.rates().updates_per_second() > 0) {
    absl::StrAppend(&text, ", ", monitor::WithCommas(leader.rates().examples_per_second()), " examples/s");
    const double left = Number(last - leader.version()) / leader.rates().updates_per_second();
    if (left > 0) absl::StrAppend(&text, ", about ", monitor::InTime(left), " left");
  }
  return text;
}

Rows ServerRows(const ClusterView& view) {
  Rows rows = {{"TASK", "ADDRESS", "STATE", "STEP", "RECEIVED", "SENT", "STALENESS P50/P99", "QUEUED",
                "MEMORY", "UP", "INCARNATION"}};
  for (size_t i = 0; i < view.servers.size(); ++i) {
    const std::string task = absl::StrCat("ps/", i), address = view.cluster.servers()[i].ToString();
    if (!view.servers[i].ok()) {
      rows.push_back({task, address, "unreachable", "-", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const v1::ServerStatus& server = *view.servers[i];
    const std::string staleness = absl::StrCat(monitor::StalenessQuantile(server.counters(), 0.5), " / ",
                                               monitor::StalenessQuantile(server.counters(), 0.99));
    rows.push_back({task, address, monitor::NameOf(server.state()),
                    monitor::WithCommas(Number(server.version())),
                    monitor::InBytes(server.rates().received_bytes_per_second()) + "/s",
                    monitor::InBytes(server.rates().sent_bytes_per_second()) + "/s",
                    server.sequences() ? staleness : "-", absl::StrCat(server.queues().staged_pushes()),
                    monitor::InBytes(Number(server.resident_bytes())),
                    monitor::InTime(server.uptime_seconds()), absl::StrCat(server.incarnation())});
  }
  return rows;
}

Rows WorkerRows(const ClusterView& view, const v1::ServerStatus& leader) {
  Rows rows = {{"TASK", "ADDRESS", "STATE", "STEP", "EXAMPLES/S", "STEP TIME", "INPUT", "COMPUTE", "ANSWER",
                "LOSS", "LAST", "MEMORY", "HEARD", "INCARNATION", "DEVICE"}};
  int64_t rounds = 0;
  for (const v1::Member& member : leader.members()) rounds += member.times_last();
  for (const v1::Member& member : leader.members()) {
    const v1::WorkerReport& report = member.report();
    const bool told = report.step_seconds() > 0;
    const auto time = [&](double seconds) { return told ? monitor::InTime(seconds) : std::string("-"); };
    rows.push_back(
        {member.task(), AddressOf(view.cluster, member.task()), monitor::NameOf(member.state()),
         monitor::WithCommas(Number(member.step())),
         told ? monitor::WithCommas(report.examples_per_second()) : "-", time(report.step_seconds()),
         time(report.input_seconds()), time(report.compute_seconds()), time(report.answer_seconds()),
         told ? absl::StrFormat("%.4f", report.loss()) : "-",
         rounds == 0 ? "-" : absl::StrFormat("%.0f %%", 100 * Number(member.times_last()) / Number(rounds)),
         report.resident_bytes() > 0 ? monitor::InBytes(Number(report.resident_bytes())) : "-",
         member.state() == v1::MEMBER_STATE_EXPECTED ? "never" : monitor::InTime(member.heard_seconds()),
         absl::StrCat(member.incarnation()), report.device()});
  }
  return rows;
}

// One table on all servers that have answered.
struct TableSums {
  v1::TableStatus all;
  int64_t most_rows = 0;
  int servers = 0;
  std::string largest;  // the task with the most rows

  void Add(const std::string& task, const v1::TableStatus& table) {
    // The servers have different rows, so that the shares add up weighted by their gradients.
    const auto before = Number(all.gradients()), here = Number(table.gradients());
    for (v1::HotRow& row : *all.mutable_hottest()) row.set_share(row.share() * before / (before + here));
    for (const v1::HotRow& row : table.hottest()) {
      v1::HotRow& added = *all.add_hottest();
      added.set_id(row.id());
      added.set_share(row.share() * here / (before + here));
    }
    all.set_name(table.name());
    all.set_rows(all.rows() + table.rows());
    all.set_bytes(all.bytes() + table.bytes());
    all.set_lookups(all.lookups() + table.lookups());
    all.set_hits(all.hits() + table.hits());
    all.set_gradients(all.gradients() + table.gradients());
    all.set_updates(all.updates() + table.updates());
    all.set_lookups_per_second(all.lookups_per_second() + table.lookups_per_second());
    all.set_updates_per_second(all.updates_per_second() + table.updates_per_second());
    all.set_inserts_per_second(all.inserts_per_second() + table.inserts_per_second());
    ++servers;
    if (table.rows() <= most_rows) return;
    most_rows = table.rows();
    largest = task;
  }
  // The rows of the largest server, relative to the mean: "ps/1 1.04".
  std::string Balance() const {
    if (most_rows == 0) return "-";
    return absl::StrFormat("%s %.2f", largest, Number(most_rows) * servers / Number(all.rows()));
  }
  std::string Hottest() const {
    constexpr int kShown = 3;
    auto hottest = all.hottest();
    std::sort(hottest.begin(), hottest.end(),
              [](const v1::HotRow& a, const v1::HotRow& b) { return a.share() > b.share(); });
    while (hottest.size() > kShown) hottest.RemoveLast();
    return monitor::HottestOf(hottest);
  }
};

Rows TableRows(const ClusterView& view) {
  std::vector<TableSums> tables;
  for (const auto& server : view.servers) {
    if (!server.ok()) continue;
    for (int i = 0; i < server->tables_size(); ++i) {
      tables.resize(std::max(tables.size(), static_cast<size_t>(i) + 1));
      tables[static_cast<size_t>(i)].Add(server->task(), server->tables(i));
    }
  }
  Rows rows = {{"TABLE", "LARGEST", "HOTTEST ROWS", "ROWS", "MEMORY", "LOOKUPS/S", "HITS", "UPDATES/S",
                "DISTINCT", "INSERTS/S"}};
  for (const TableSums& table : tables) {
    const v1::TableStatus& all = table.all;
    rows.push_back(
        {all.name(), table.Balance(), table.Hottest(), monitor::WithCommas(Number(all.rows())),
         monitor::InBytes(Number(all.bytes())), monitor::WithCommas(all.lookups_per_second()),
         monitor::ShareOf(all.hits(), all.lookups()), monitor::WithCommas(all.updates_per_second()),
         monitor::ShareOf(all.updates(), all.gradients()), monitor::WithCommas(all.inserts_per_second())});
  }
  return rows;
}

nlohmann::ordered_json TablesJson(const v1::ServerStatus& server) {
  auto tables = nlohmann::ordered_json::array();
  for (const v1::TableStatus& table : server.tables()) {
    auto hottest = nlohmann::ordered_json::array();
    for (const v1::HotRow& row : table.hottest())
      hottest.push_back({{"id", row.id()}, {"share", row.share()}});
    tables.push_back({{"name", table.name()},
                      {"row_elements", table.row_elements()},
                      {"rows", table.rows()},
                      {"bytes", table.bytes()},
                      {"lookups", table.lookups()},
                      {"hits", table.hits()},
                      {"gradients", table.gradients()},
                      {"updates", table.updates()},
                      {"inserts", table.inserts()},
                      {"lookups_per_second", table.lookups_per_second()},
                      {"updates_per_second", table.updates_per_second()},
                      {"inserts_per_second", table.inserts_per_second()},
                      {"hottest", std::move(hottest)}});
  }
  return tables;
}

nlohmann::ordered_json CountersJson(const v1::Counters& counters) {
  return {{"accepted", counters.accepted()},
          {"stale", counters.stale()},
          {"duplicate", counters.duplicate()},
          {"refused", counters.rejected()},
          {"examples", counters.examples()},
          {"staleness_max", counters.staleness_max()},
          {"staleness_p50", monitor::StalenessQuantile(counters, 0.5)},
          {"staleness_p99", monitor::StalenessQuantile(counters, 0.99)}};
}

nlohmann::ordered_json ServerJson(const v1::ServerStatus& server) {
  return {{"state", monitor::NameOf(server.state())},
          {"failure", server.failure()},
          {"incarnation", server.incarnation()},
          {"program_version", server.program_version()},
          {"protocol", server.protocol()},
          {"uptime_seconds", server.uptime_seconds()},
          {"version", server.version()},
          {"sequences", server.sequences()},
          {"variables", server.variables()},
          {"variable_bytes", server.variable_bytes()},
          {"memory_bytes", server.memory_bytes()},
          {"memory_limit_bytes", server.memory_limit_bytes()},
          {"resident_bytes", server.resident_bytes()},
          {"received_bytes", server.received_bytes()},
          {"sent_bytes", server.sent_bytes()},
          {"malformed_chunks", server.malformed_chunks()},
          {"received_bytes_per_second", server.rates().received_bytes_per_second()},
          {"sent_bytes_per_second", server.rates().sent_bytes_per_second()},
          {"updates_per_second", server.rates().updates_per_second()},
          {"staged_pushes", server.queues().staged_pushes()},
          {"log_entries", server.queues().log_entries()},
          {"tables", TablesJson(server)},
          {"counters", CountersJson(server.counters())}};
}

nlohmann::ordered_json WorkerJson(const ClusterView& view, const v1::Member& member) {
  const v1::WorkerReport& report = member.report();
  return {{"task", member.task()},
          {"address", AddressOf(view.cluster, member.task())},
          {"state", monitor::NameOf(member.state())},
          {"incarnation", member.incarnation()},
          {"step", member.step()},
          {"heard_seconds", member.heard_seconds()},
          {"examples", report.examples()},
          {"examples_per_second", report.examples_per_second()},
          {"step_seconds", report.step_seconds()},
          {"input_seconds", report.input_seconds()},
          {"compute_seconds", report.compute_seconds()},
          {"answer_seconds", report.answer_seconds()},
          {"loss", std::isfinite(report.loss()) ? nlohmann::ordered_json(report.loss()) : nullptr},
          {"epoch", report.epoch()},
          {"resident_bytes", report.resident_bytes()},
          {"device", report.device()},
          {"times_last", member.times_last()},
          {"late_seconds", member.late_seconds()}};
}

}  // namespace

const v1::ServerStatus* ClusterView::leader() const {
  const v1::ServerStatus* best = nullptr;
  for (const auto& server : servers) {
    if (!server.ok()) continue;
    if (best == nullptr || (server->sequences() && !best->sequences())) best = &*server;
  }
  return best;
}

std::vector<std::string> ClusterView::troubles() const {
  std::vector<std::string> troubles;
  for (size_t i = 0; i < servers.size(); ++i) {
    const std::string name = absl::StrCat("ps/", i, " at ", cluster.servers()[i].ToString());
    if (!servers[i].ok()) {
      troubles.push_back(absl::StrCat(name, ": ", servers[i].status().message()));
    } else if (servers[i]->task() != absl::StrCat("ps/", i)) {
      troubles.push_back(absl::StrCat(name, " identifies itself as ", servers[i]->task()));
    } else if (servers[i]->cluster_hash() != 0 && servers[i]->cluster_hash() != cluster.Hash()) {
      troubles.push_back(absl::StrCat(name, " belongs to another cluster than this one"));
    } else if (servers[i]->state() == v1::STATE_FAILED) {
      troubles.push_back(absl::StrCat(name, ": the job failed: ", servers[i]->failure()));
    }
  }
  if (const v1::ServerStatus* server = leader(); server != nullptr && server->state() == v1::STATE_READY) {
    for (const v1::Member& member : server->members()) {
      if (member.state() != v1::MEMBER_STATE_LOST) continue;
      troubles.push_back(absl::StrCat(member.task(), " is lost: no heartbeat for ",
                                      monitor::InTime(member.heard_seconds())));
    }
  }
  return troubles;
}

bool ClusterView::well() const {
  return troubles().empty();
}

std::string AsTable(const ClusterView& view) {
  std::string text;
  const v1::ServerStatus* leader = view.leader();
  if (leader != nullptr) {
    absl::StrAppend(&text, monitor::HeadlineOf(*leader), "\n");
    if (leader->state() == v1::STATE_READY && leader->job().mode() != v1::MODE_VARIABLES) {
      const v1::Counters& counters = leader->counters();
      absl::StrAppend(&text, Progress(*leader),
                      "; gradients: ", monitor::WithCommas(Number(counters.accepted())), " accepted, ",
                      counters.stale(), " stale, ", counters.duplicate(), " duplicate, ", counters.rejected(),
                      " refused\n");
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, Align(ServerRows(view)));
  if (leader != nullptr && !leader->members().empty()) {
    absl::StrAppend(&text, "\n", Align(WorkerRows(view, *leader)));
  }
  if (const Rows tables = TableRows(view); tables.size() > 1) absl::StrAppend(&text, "\n", Align(tables));
  for (const std::string& trouble : view.troubles()) absl::StrAppend(&text, "\n! ", trouble);
  if (!view.well()) absl::StrAppend(&text, "\n");
  return text;
}

std::string AsJson(const ClusterView& view) {
  nlohmann::ordered_json json = {{"well", view.well()}, {"troubles", view.troubles()}};
  const v1::ServerStatus* leader = view.leader();
  json["job"] = nullptr;
  if (leader != nullptr && leader->has_job()) {
    const v1::Job& job = leader->job();
    json["job"] = {
        {"run_id", job.run_id()},
        {"mode", monitor::NameOf(job.mode())},
        {"generation", job.generation()},
        {"optimizer", job.optimizer().name()},
        {"learning_rate", leader->learning_rate()},
        {"batch_size", job.batch_size()},
        {"version", leader->version()},
        {"final_version", net::FinalVersionOf(job)},
        {"examples_per_second", leader->rates().examples_per_second()},
        {"updates_per_second", leader->rates().updates_per_second()},
        {"waiting_for", std::vector<std::string>(leader->waiting_for().begin(), leader->waiting_for().end())},
        {"waiting_seconds", leader->waiting_seconds()},
        {"straggler", monitor::StragglerOf(*leader)},
        {"counters", CountersJson(leader->counters())}};
  }
  json["servers"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < view.servers.size(); ++i) {
    nlohmann::ordered_json server = {{"task", absl::StrCat("ps/", i)},
                                     {"address", view.cluster.servers()[i].ToString()}};
    if (view.servers[i].ok()) {
      server.update(ServerJson(*view.servers[i]));
    } else {
      server["state"] = "unreachable";
      server["failure"] = std::string(view.servers[i].status().message());
    }
    json["servers"].push_back(std::move(server));
  }
  json["workers"] = nlohmann::ordered_json::array();
  if (leader != nullptr) {
    for (const v1::Member& member : leader->members()) json["workers"].push_back(WorkerJson(view, member));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace cairn::cli
