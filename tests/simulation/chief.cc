#include "tests/simulation/chief.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "tests/simulation/table_rows.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::simulation {
namespace {

constexpr double kReturn = 30;  // ps/members/job_members.cc

// The state of a server in a snapshot.
struct Copy {
  float value = 0;
  ps::ReceivedTables tables{};
};

Copy CopyOf(const ps::ReadResult& read) {
  Copy copy = {.value = read.values.data->data()[0]};
  for (const ps::TableState& table : read.tables) copy.tables.push_back(table.at(0));
  return copy;
}

}  // namespace

bool Chief::ReturnIsOver(double now) const {
  return ready_ > 0 && ready_ == histories_.generation() && now - ready_at_ > kReturn;
}

void Chief::LookAgain(double seconds) {
  ++look_;
  simulation_.events.After(seconds, [this, look = look_] {
    if (look == look_) Look();
  });
}

void Chief::Look() {
  shards_.assign(known_.size(), {});
  waiting_ = known_.size();
  for (int shard = 0; shard < fleet_.size(); ++shard) Reach(shard);
}

void Chief::Reach(int shard) {
  FindAny(simulation_, fleet_, shard, known_[static_cast<size_t>(shard)],
          IfLooking<absl::StatusOr<Found>>([this, shard](auto found) {
            if (!found.ok()) {
              QueryAgain(found.status(), [this, shard] { Reach(shard); });
              return;
            }
            known_[static_cast<size_t>(shard)] = found->known;
            if (--waiting_ == 0) DescribeAll([this] { Survey(); });
          }));
}

void Chief::DescribeAll(const std::function<void()>& then) {
  waiting_ = known_.size();
  for (int shard = 0; shard < fleet_.size(); ++shard) DescribeOne(shard, then);
}

void Chief::DescribeOne(int shard, const std::function<void()>& then) {
  const auto index = static_cast<size_t>(shard);
  Describe(simulation_, fleet_, shard, known_[index],
           IfLooking<absl::StatusOr<Found>>([this, shard, index, then](auto found) {
             if (!found.ok()) {
               QueryAgain(found.status(), [this, shard, then] { DescribeOne(shard, then); });
               return;
             }
             if (!found->known.server.IsBefore(known_[index].server)) known_[index] = found->known;
             shards_[index].described = found->response;
             if (--waiting_ == 0) then();
           }));
}

void Chief::QueryAgain(const absl::Status& failure, std::function<void()> again) {
  if (!client::IsTransient(failure)) {
    End(failure);
    return;
  }
  all_ready_ &= !absl::IsUnavailable(failure);  // it may only have been slow
  simulation_.events.After(0.5, [this, look = look_, again = std::move(again)] {
    if (look == look_) again();
  });
}

void Chief::End(const absl::Status& status) {
  all_ready_ = false;
  if (ExitCodeOf(status) != ExitCode::kRetryable && histories_.begun()) {
    histories_.newest().Violation(absl::StrCat("the chief ends for good: ", status.ToString()));
  }
  if (simulation_.Below(2) == 0) known_.assign(known_.size(), {});  // another process knows nothing
  LookAgain(1);
}

void Chief::Survey() {
  int64_t generation = -1, begun = -1;
  size_t ready = 0, same = 0;
  for (const Shard& each : shards_) {
    if (each.described.state() == v1::STATE_INITIALISING || each.described.state() == v1::STATE_BACKUP)
      begun = std::max(begun, each.described.job().generation());
    if (each.described.state() != v1::STATE_READY) continue;
    ++ready;
    generation = std::max(generation, each.described.job().generation());
    same += each.described.job().generation() == shards_[0].described.job().generation() ? 1 : 0;
  }
  all_ready_ = ready == shards_.size() && same == shards_.size();
  if (all_ready_) {
    if (simulation_.setting.server_faults != ServerFaults::kNone && simulation_.Below(2) == 0) {
      TakeSnapshot();
    } else {
      LookAgain(1 + simulation_.UpTo(5));
    }
    return;
  }
  // The first replication of the state is under way: the live chief waits for it.
  bool initialising = written_;
  for (const Shard& each : shards_) {
    initialising &=
        each.described.state() == v1::STATE_READY || each.described.state() == v1::STATE_INITIALISING;
    initialising &= each.described.job().generation() == generation_;
  }
  if (initialising && (ready > 0 || simulation_.Below(20) > 0)) {
    LookAgain(0.5);
    return;
  }
  generation_ = std::max({generation_, generation, begun}) + 1;
  written_ = false;
  ++num_seal_keys_;
  Create(0);
}

v1::CreateRequest Chief::Request(int shard) const {
  const Rules& rules = simulation_.rules();
  v1::CreateRequest request;
  v1::Job& job = *request.mutable_job();
  job.set_run_id("simulated");
  job.set_mode(rules.mode);
  for (int w = 0; w < (rules.elastic ? 1 : rules.workers); ++w) job.add_workers(absl::StrCat("worker/", w));
  for (int s = 0; s < rules.servers; ++s) job.add_servers(absl::StrCat("host", s, ":1"));
  job.set_replicas_to_aggregate(rules.replicas_to_aggregate);
  if (rules.max_staleness >= 0) job.set_max_staleness(rules.max_staleness);
  job.set_final_version(rules.final_version);
  job.set_lease_seconds(kLease);
  job.mutable_optimizer()->set_name(rules.layerwise ? "Lamb" : "SGD");
  auto& numbers = *job.mutable_optimizer()->mutable_hyperparameters();
  numbers["learning_rate"] = 1;
  if (!rules.rate_one) numbers["global_clipnorm"] = rules.clipnorm;
  if (rules.num_examples > 0) {
    job.set_dynamic_sharding(true);
    job.set_num_examples(rules.num_examples);
    job.set_batch_size(simulation_.setting.batch_size);
    job.set_epochs(rules.epochs);
    job.set_elastic(rules.elastic);
  }
  if (rules.rows) {
    v1::Table& table = *job.add_tables();
    table.set_name("rows");
    table.set_kind("embedding");
    table.set_row_elements(1);
    table.mutable_embedding()->set_distribution(v1::EmbeddingTable::DISTRIBUTION_CONSTANT);
    table.mutable_embedding()->mutable_optimizer()->set_name("SGD");
    (*table.mutable_embedding()->mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 1;
  }
  job.set_generation(generation_);
  job.set_wait_for_return(simulation_.setting.wait_for_return);
  request.set_seal_key(absl::StrCat("the servers' secret ", num_seal_keys_));
  job.set_ps_replication(rules.copies ? 1 : 0);
  if (generation_ > 0) *job.mutable_resumed() = newest_.progress;
  // One element on each server, the same on all.
  for (const net::Slice& slice : ps::Vectors({{absl::StrCat("v", shard), 1}}))
    *request.add_slices() = slice.ToProto();
  return request;
}

ps::ReceivedTables Chief::TablesOf(int server) const {
  if (!simulation_.rules().rows) return {};
  return newest_.tables.empty() ? StateOfNoRows() : newest_.tables[static_cast<size_t>(server)];
}

void Chief::Create(int shard) {
  if (shard == fleet_.size()) {
    DescribeAll([this] { CheckCreated(); });
    return;
  }
  if (newest_.values.empty()) newest_.values.assign(shards_.size(), 0);
  fleet_.Call<v1::CreateResponse>(
      shard, away(shard), kCall,
      [this, request = Request(shard), generation = generation_](ps::Server& server, auto reply) {
        server.Create(request, [this, generation, reply = std::move(reply)](auto response) mutable {
          if (response.ok()) histories_.Begin(generation, newest_);
          reply(std::move(response));
        });
      },
      IfLooking<absl::StatusOr<v1::CreateResponse>>([this, shard](auto response) {
        const bool dies =
            simulation_.setting.server_faults != ServerFaults::kNone && simulation_.Below(15) == 0;
        if (!response.ok() || dies) {
          End(dies ? absl::UnavailableError("it dies") : response.status());
        } else {
          Create(shard + 1);
        }
      }));
}

void Chief::CheckCreated() {
  for (const Shard& each : shards_) {
    if (each.described.job().generation() == generation_ && each.described.state() != v1::STATE_EMPTY)
      continue;
    End(absl::AbortedError("a server has lost what was created on it"));
    return;
  }
  Write();
}

void Chief::Write() {
  waiting_ = shards_.size();
  for (int s = 0; s < fleet_.size(); ++s) {
    fleet_.Call<double>(
        s, away(s), kCall,
        [this, s, layout = shards_[static_cast<size_t>(s)].described.layout(),
         value = newest_.values[static_cast<size_t>(s)],
         tables = TablesOf(s)](ps::Server& server, auto reply) {
          const auto job = server.JobForLayout(layout);
          if (!job.ok()) {
            reply(job.status());
            return;
          }
          ps::Shard& shard = (*job)->shard();
          const bool state = (*job)->job().has_resumed();
          auto values =
              std::make_unique<ps::Accumulator>(state ? shard.store().state_pool() : shard.store().pool());
          if (const auto added = values->Add(ps::ChunkAt(0), ps::Bytes({value})); !added.ok()) {
            reply(added);
            return;
          }
          auto written = [this, s, &server, layout, generation = (*job)->job().generation(),
                          reply = std::move(reply)](auto version) mutable {
            if (!version.ok()) {
              reply(version.status());
              return;
            }
            if (s == 0) {
              ready_ = generation;
              ready_at_ = simulation_.events.now();
            }
            server.OnInitialised(layout);
            reply(0.0);
          };
          if (state) {
            shard.WriteState(std::move(values), tables, std::move(written));
          } else {
            shard.Write(std::move(values), {}, std::move(written));
          }
        },
        IfLooking<absl::StatusOr<double>>([this](auto written) {
          if (written.ok() && --waiting_ > 0) return;
          written_ = written.ok();
          LookAgain(0.1);
        }));
  }
}

void Chief::TakeSnapshot() {
  marker_ = absl::StrCat("snapshot", ++num_markers_);
  PlaceMarker(0);
}

void Chief::PlaceMarker(int shard) {
  if (shard == (one_log() ? 1 : fleet_.size())) {
    ReadAll();
    return;
  }
  v1::PlaceMarkerRequest request;
  request.set_token(marker_);
  request.set_snapshot(true);
  fleet_.Call<v1::PlaceMarkerResponse>(
      shard, away(shard), kCall,
      [request](ps::Server& server, auto reply) { server.PlaceMarker(request, std::move(reply)); },
      IfLooking<absl::StatusOr<v1::PlaceMarkerResponse>>([this, shard](auto response) {
        if (!response.ok()) {
          LookAgain(1);
          return;
        }
        if (shard == 0) progress_ = response->progress();
        PlaceMarker(shard + 1);
      }));
}

void Chief::ReadAll() {
  waiting_ = shards_.size();
  for (int s = 0; s < fleet_.size(); ++s) {
    const Shard& shard = shards_[static_cast<size_t>(s)];
    fleet_.Call<Copy>(
        s, away(s), 6 * kCall,
        [layout = shard.described.layout(), marker = marker_](ps::Server& server, auto reply) {
          const auto job = server.JobForLayout(layout);
          if (!job.ok()) {
            reply(job.status());
            return;
          }
          (*job)->shard().Read(marker,
                               [reply = std::move(reply)](absl::StatusOr<ps::ReadResult> read) mutable {
                                 if (read.ok()) {
                                   reply(CopyOf(*read));
                                 } else {
                                   reply(read.status());
                                 }
                               });
        },
        IfLooking<absl::StatusOr<Copy>>([this, s](auto copy) {
          if (!copy.ok()) {
            LookAgain(1);
            return;
          }
          shards_[static_cast<size_t>(s)].value = copy->value;
          shards_[static_cast<size_t>(s)].tables = copy->tables;
          if (--waiting_ > 0) return;
          newest_.progress = progress_;
          newest_.values.clear();
          newest_.tables.clear();
          std::vector<std::vector<float>> rows;
          for (const Shard& read : shards_) {
            newest_.values.push_back(read.value);
            if (!simulation_.rules().rows) continue;
            newest_.tables.push_back(read.tables);
            rows.push_back(RowsIn(read.tables, static_cast<int>(rows.size()), fleet_.size()));
          }
          histories_.Of(shards_[0].described.job().generation())
              .Snapshot(newest_.progress, newest_.values, rows);
          LookAgain(simulation_.UpTo(10));
        }));
  }
}

}  // namespace cairn::simulation
