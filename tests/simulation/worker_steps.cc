// The steps of a simulated worker, from its join to its end: pull, compute, push, repeat.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/row_frame.h"
#include "ps/log/work_proto.h"
#include "tests/simulation/table_rows.h"
#include "tests/simulation/workers.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::simulation {
namespace {

constexpr double kReadLimit = 60;

std::vector<float> RowsOf(const ps::AnsweredRows& rows) {
  const absl::Span<const float> elements = rows.tables.at(0).elements->span();
  return {elements.begin(), elements.end()};
}
// Seconds between the checks of a worker that awaits the end, as in client/job_end.cc.
constexpr double kLookForEnd = 2;

}  // namespace

void Workers::Pull(int w) {
  Worker& worker = At(w);
  const int64_t pull = ++worker.pulls;
  worker.versions.assign(static_cast<size_t>(num_servers()), -1);
  if (!one_log()) {
    for (int s = 0; s < num_servers(); ++s) ReadFrom(w, s, pull);
    return;
  }
  v1::PlaceMarkerRequest request;
  request.set_token(absl::StrCat(w, "#", worker.life, ".", pull));
  fleet_.Call<v1::PlaceMarkerResponse>(
      0, away(w, 0), kCall,
      [request](ps::Server& server, auto reply) { server.PlaceMarker(request, std::move(reply)); },
      As<absl::StatusOr<v1::PlaceMarkerResponse>>(
          w, [this, w, pull](absl::StatusOr<v1::PlaceMarkerResponse> response) {
            if (At(w).pulls != pull) return;
            if (response.ok()) {
              for (int s = 0; s < num_servers(); ++s) ReadFrom(w, s, pull);
            } else {
              ++At(w).pulls;  // this one is given up
              Persist(w, response.status(), [this, w] { Pull(w); });
            }
          }));
}

void Workers::ReadFrom(int w, int s, int64_t pull) {
  const std::string marker = one_log() ? absl::StrCat(w, "#", At(w).life, ".", pull) : std::string();
  fleet_.Call<Read>(
      s, away(w, s), kReadLimit,
      [this, s, marker, layout = At(w).layouts[static_cast<size_t>(s)]](ps::Server& server, auto reply) {
        const auto job = server.JobForLayout(layout);
        if (!job.ok()) {
          reply(job.status());
          return;
        }
        (*job)->shard().Read(marker,
                             [this, s, shard = &(*job)->shard(), generation = (*job)->job().generation(),
                              reply = std::move(reply)](absl::StatusOr<ps::ReadResult> read) mutable {
                               if (!read.ok()) {
                                 if (simulation_.setting.server_faults == ServerFaults::kNone) {
                                   histories_.newest().Violation(
                                       absl::StrCat("a read on ps/", s, " fails: ", read.status().message()));
                                 }
                                 reply(read.status());
                                 return;
                               }
                               const float value = read->values.data->data()[0];
                               if (one_log() && !fleet_.dying())
                                 histories_.Of(generation).Read(s, read->values.version, value);
                               if (rules().rows) ReadRowsOf(*shard, s, generation);
                               reply(Read{read->values.version, read->finished, value});
                             });
      },
      As<absl::StatusOr<Read>>(w, [this, w, s, pull](absl::StatusOr<Read> read) {
        if (At(w).pulls != pull) return;
        if (read.ok()) {
          OnRead(w, s, pull, *read);
        } else {
          ++At(w).pulls;  // this one is given up
          Persist(w, read.status(), [this, w] { Pull(w); });
        }
      }));
}

void Workers::ReadRowsOf(ps::Shard& shard, int s, int64_t generation) {
  shard.ReadRows(RowsToRead(shard, s), [this, s, generation](absl::StatusOr<ps::AnsweredRows> rows) {
    if (rows.ok() && !fleet_.dying()) histories_.Of(generation).ReadRows(s, rows->version, RowsOf(*rows));
  });
}

std::shared_ptr<const ps::WantedRows> Workers::RowsToRead(ps::Shard& shard, int s) const {
  const std::vector<int64_t> ids = RowIds(s, num_servers());
  const absl::Span<const char> bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t));
  v1::Rows rows;
  rows.set_table(1);
  rows.set_count(static_cast<int64_t>(ids.size()));
  auto wanted = std::make_shared<ps::WantedRows>(shard.tables().size(), shard.store().budget());
  CAIRN_CHECK(wanted->Add(rows, net::Payload(&bytes, 1)).ok());
  return wanted;
}

void Workers::AddRows(ps::OpenPush& push, int s, const ps::PushKey& key, float value) const {
  const std::vector<int64_t> all = RowIds(s, num_servers());
  const int64_t ids[] = {all[0], all[RowOf(key)]};
  const float gradients[] = {value, value};
  const absl::Span<const char> runs[] = {{reinterpret_cast<const char*>(ids), sizeof(ids)},
                                         {reinterpret_cast<const char*>(gradients), sizeof(gradients)}};
  v1::Rows rows;
  rows.set_table(1);
  rows.set_count(2);
  auto received = net::ReceivedRows::Of(rows, net::Payload(runs), /*row_elements=*/1);
  CAIRN_CHECK(received.ok() && push.AddRows(1, *std::move(received)).ok());
}

void Workers::OnRead(int w, int s, int64_t /*pull*/, const Read& read) {
  Worker& worker = At(w);
  worker.versions[static_cast<size_t>(s)] = read.version;
  for (const int64_t version : worker.versions) {
    if (version < 0) return;
    if (one_log() && version != worker.versions[0]) {
      histories_.Of(worker.generation)
          .Violation(absl::StrCat("worker ", w, " reads versions ", version, " and ", worker.versions[0],
                                  " at one marker"));
    }
  }
  ++worker.pulls;
  if (read.finished) {
    Leave(w);
  } else {
    Proceed(w);
  }
}

void Workers::Proceed(int w) {
  if (!handed_out()) {
    Compute(w);
  } else if (At(w).work.over()) {
    Leave(w);
  } else if (At(w).work.work_items().empty()) {
    AwaitWork(w);
  } else {
    Compute(w);
  }
}

void Workers::AwaitWork(int w) {
  v1::WaitRequest request;
  request.set_condition(v1::CONDITION_WORK);
  request.set_worker(w);
  request.set_wait_seconds(1);
  fleet_.Call<v1::WaitResponse>(
      0, away(w, 0), kCall,
      [request](ps::Server& server, auto reply) { server.Wait(request, std::move(reply)); },
      As<absl::StatusOr<v1::WaitResponse>>(w, [this, w](absl::StatusOr<v1::WaitResponse> response) {
        if (response.ok() && response->holds()) {
          At(w).work = response->work();
          Proceed(w);
          return;
        }
        if (response.ok()) {
          Later(w, 0.5, [this, w] { AwaitWork(w); });
        } else {
          Persist(w, response.status(), [this, w] { AwaitWork(w); });
        }
      }));
}

void Workers::Compute(int w) {
  Later(w, simulation_.UpTo(simulation_.setting.computing), [this, w] {
    Worker& worker = At(w);
    worker.gradient.key = {.worker = w, .incarnation = worker.incarnation, .step = ++worker.step};
    if (handed_out()) {
      const v1::WorkItem& work_item = worker.work.work_items(0);
      worker.gradient.examples = work_item.count();
      worker.gradient.position = work_item.epoch() * rules().num_examples + work_item.first();
    } else {
      worker.gradient.examples = simulation_.Below(8) == 0 ? 0 : 1 + simulation_.Below(4);
      worker.gradient.position = ++worker.position;
    }
    worker.value = static_cast<float>(simulation_.Below(17)) - 8;
    worker.answers.assign(static_cast<size_t>(num_servers()), std::nullopt);
    worker.pushing = true;
    for (int s = 0; s < num_servers(); ++s) Push(w, s);
  });
}

void Workers::Push(int w, int s) {
  Worker& worker = At(w);
  const auto index = static_cast<size_t>(s);
  ps::Gradient gradient = worker.gradient;
  gradient.base_version = worker.versions[index];
  worker.up_way[index].Send(
      simulation_.events, simulation_.random, simulation_.setting.longest_delay,
      [this, w, s, gradient, value = worker.value, life = worker.life, generation = worker.generation] {
        TakePush(w, s, gradient, value, life, generation);
      },
      [this, w, s] { return fleet_.AwakeAt(fleet_.ProcessOf(s, away(w, s))); });
}

// Acts as a session does with a complete push.
void Workers::TakePush(int w, int s, const ps::Gradient& gradient, float value, int64_t life,
                       int64_t generation) {
  const auto answer = [=, this](absl::StatusOr<Worker::Answer> told) {
    if (fleet_.dying()) return;
    At(w).down_way[static_cast<size_t>(s)].Send(
        simulation_.events, simulation_.random, simulation_.setting.longest_delay,
        [=, this] {
          Act(w, life, [=, this] {
            if (told.ok()) {
              OnAnswer(w, s, gradient.key.step, *told);
            } else {
              Recover(w, s, told.status());
            }
          });
        },
        [] { return 0.0; });
  };
  ps::Server* const server = fleet_.At(s, away(w, s));
  if (server == nullptr) {
    answer(absl::UnavailableError("the stream broke: the shard is not there"));
    return;
  }
  const auto job = server->JobForLayout(At(w).layouts[static_cast<size_t>(s)]);
  if (!job.ok() || !server->ready()) {
    answer(job.ok() ? absl::AbortedError("no job is ready") : job.status());
    return;
  }
  ++At(w).pushes[static_cast<size_t>(s)];
  const int64_t here = (*job)->job().generation();
  Checker& checker = histories_.Of(here);
  ps::Shard& shard = (*job)->shard();
  auto push = shard.BeginPush({.gradient = gradient, .read_values = true});
  if (gradient.examples > 0) (void)push->AddChunk(ps::ChunkAt(0), ps::Bytes({value}));
  if (rules().rows) {
    if (gradient.examples > 0 && !push->repeats()) AddRows(*push, s, gradient.key, value);
    push->Want(RowsToRead(shard, s));
  }
  const int64_t arrival = checker.Arrived(s, gradient, value);
  checker.ComputedIn(gradient.key, generation, here);
  std::weak_ptr<ps::ActiveJob> hands_out;
  if ((*job)->hands_out_data()) hands_out = *job;
  shard.FinishPush(std::move(push), [=, this, &checker](absl::StatusOr<ps::PushResult> result) {
    if (!result.ok()) {
      checker.Lost(arrival);
      if (simulation_.setting.server_faults == ServerFaults::kNone) {
        checker.Violation(absl::StrCat("a push on ps/", s, " fails: ", result.status().message()));
      }
      answer(result.status());
      return;
    }
    if (fleet_.dying()) {
      checker.Lost(arrival);
      return;
    }
    Worker::Answer told = {.result = *result, .value = {}, .work = {}};
    told.result.values.data.reset();
    if (!result->rows.none()) checker.ReadRows(s, result->rows.version, RowsOf(result->rows));
    told.result.rows = {};
    if (result->values.data != nullptr) told.value = result->values.data->data()[0];
    checker.Answered(arrival, *result, told.value);
    const auto assigned = hands_out.lock();
    if (assigned == nullptr) {
      answer(std::move(told));
      return;
    }
    told.work = ps::ToProto(*assigned->sequencer()->WorkOf(w));
    if (assigned->replicator() == nullptr) {
      answer(std::move(told));
    } else {
      assigned->replicator()->WhenReplicated([answer, told](const absl::Status& lost) {
        answer(lost.ok() ? absl::StatusOr<Worker::Answer>(told) : lost);
      });
    }
  });
}

void Workers::OnAnswer(int w, int s, int64_t step, const Worker::Answer& answer) {
  Worker& worker = At(w);
  if (!worker.pushing || worker.step != step) return;
  worker.answers[static_cast<size_t>(s)] = answer;
  for (const auto& each : worker.answers) {
    if (!each.has_value()) return;
  }
  worker.pushing = false;
  worker.work = worker.answers[0]->work;
  bool pull = false, rejected = false, finished = false;
  for (size_t i = 0; i < worker.answers.size(); ++i) {
    const Worker::Answer& each = *worker.answers[i];
    rejected |= each.result.outcome == v1::OUTCOME_REJECTED;
    finished |= each.result.finished || each.result.outcome == v1::OUTCOME_FINISHED;
    pull |= !each.value.has_value();
    pull |= one_log() && each.result.version != worker.answers[0]->result.version;
    worker.versions[i] = each.result.version;
  }
  if (rejected) {
    Later(w, Delay(), [this, w] { Rejoin(w); });
  } else if (finished ||
             (--worker.steps_left <= 0 && !handed_out() && !simulation_.setting.wait_for_return)) {
    Leave(w);
  } else if (pull) {
    Pull(w);
  } else {
    Proceed(w);
  }
}

void Workers::Leave(int w) {
  const uint64_t incarnation = At(w).incarnation;
  const std::vector<Known> known = At(w).known;
  Die(w);
  for (int s = 0; s < num_servers(); ++s) {
    v1::LeaveRequest request;
    request.set_worker(w);
    request.set_incarnation(incarnation);
    request.set_reason(v1::LEAVE_REASON_FINISHED);
    fleet_.Call<v1::LeaveResponse>(
        s, known[static_cast<size_t>(s)].away, kCall,
        [this, w, s, request](ps::Server& server, auto reply) {
          Checker& checker = histories_.OfIncarnation(request.incarnation());
          if (s == 0 && checker.LiveIncarnation(w) == request.incarnation()) checker.Left(w);
          server.Leave(request, std::move(reply));
        },
        [](const auto&) {});
  }
  if (simulation_.setting.server_faults != ServerFaults::kNone) {
    v1::Job job;
    job.set_wait_for_return(simulation_.setting.wait_for_return);
    AwaitEnd(w, client::Silence(client::SilenceLimit(job), simulation_.clock.Now()));
  }
}

void Workers::AwaitEnd(int w, client::Silence silence) {
  Later(w, kLookForEnd, [this, w, silence] {
    auto left = std::make_shared<int>(num_servers());
    auto answered = std::make_shared<bool>(false);
    for (int s = 0; s < num_servers(); ++s) {
      Describe(simulation_, fleet_, s, At(w).known[static_cast<size_t>(s)],
               As<absl::StatusOr<Found>>(w, [=, this](absl::StatusOr<Found> found) {
                 if (*left < 0) return;
                 if (absl::IsAborted(found.status())) {
                   *left = -1;
                   Rejoin(w);
                   return;
                 }
                 if (found.ok()) {
                   Learn(w, s, *found);
                   *answered = true;
                 }
                 client::Silence since = silence;
                 if (--*left == 0 && !since.IsTheEnd(*answered, simulation_.clock.Now())) AwaitEnd(w, since);
               }));
    }
  });
}

}  // namespace cairn::simulation
