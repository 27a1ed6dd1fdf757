#include "worker/checkpoint/run_proto.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cairn::worker {
namespace {

constexpr size_t kMaxGroups = 65536;  // the most that a job may have

std::vector<GroupState> GroupsOf(const v1::Progress& progress) {
  std::vector<GroupState> groups;
  for (const v1::GroupSettings& settings : progress.groups()) {
    GroupState group;
    if (settings.has_learning_rate()) group.learning_rate = settings.learning_rate();
    group.untouched = settings.untouched();
    if (!settings.hyperparameters().empty()) {
      group.hyperparameters.emplace(settings.hyperparameters().begin(), settings.hyperparameters().end());
    }
    // The message is of a server, which may be broken.
    groups.insert(groups.end(), std::min<size_t>(std::max(settings.count(), 1u), kMaxGroups - groups.size()),
                  group);
  }
  const auto& untouched = progress.skipped_updates().untouched();
  auto group = groups.begin();
  for (int i = 0; i + 1 < untouched.size(); i += 2) {
    for (int64_t more = untouched[i + 1]; more > 0 && group != groups.end(); --more, ++group) {
      if (untouched[i] > 0) group->untouched_updates = untouched[i];
    }
  }
  return groups;
}

void SetGroups(const std::vector<GroupState>& groups, v1::Progress& progress) {
  v1::SkippedUpdates& skipped = *progress.mutable_skipped_updates();
  for (size_t i = 0; i < groups.size(); ++i) {
    const GroupState& group = groups[i];
    if (i > 0 && group == groups[i - 1]) {  // one entry for equal groups in a row
      v1::GroupSettings& last = *progress.mutable_groups()->rbegin();
      last.set_count(std::max(last.count(), 1u) + 1);
      ++*skipped.mutable_untouched()->rbegin();
      continue;
    }
    v1::GroupSettings& settings = *progress.add_groups();
    if (group.learning_rate.has_value()) settings.set_learning_rate(*group.learning_rate);
    settings.set_untouched(group.untouched);
    if (group.hyperparameters.has_value()) {
      settings.mutable_hyperparameters()->insert(group.hyperparameters->begin(),
                                                 group.hyperparameters->end());
    }
    skipped.add_untouched(group.untouched_updates.value_or(0));
    skipped.add_untouched(1);
  }
}

}  // namespace

RunState RunStateOf(const RunDescription& description) {
  const v1::Job& job = description.job;
  const v1::Progress& progress = description.progress;
  RunState run;
  run.global_step = progress.version();
  run.mode = description.mode;
  run.run_id = job.run_id();
  run.model_sha256 = job.model_sha256();
  run.optimizer = job.optimizer().name();
  run.hyperparameters = {job.optimizer().hyperparameters().begin(), job.optimizer().hyperparameters().end()};
  run.slots = description.slots;
  run.tables = description.tables;
  if (progress.has_learning_rate()) run.learning_rate = progress.learning_rate();
  if (progress.groups_size() > 0) run.groups = GroupsOf(progress);
  if (progress.skipped_updates().empty() > 0) run.empty_updates = progress.skipped_updates().empty();
  run.seed = job.seed();
  run.batch_size = job.batch_size();
  run.num_workers = job.workers_size();
  run.final_version = job.final_version() == 0 ? 0 : job.final_version() + progress.version_offset();
  run.epochs = job.epochs();
  if (job.training_set().examples() > 0) run.num_examples = job.training_set().examples();
  run.version_offset = progress.version_offset();
  run.positions = {progress.positions().begin(), progress.positions().end()};
  if (progress.has_data()) {
    const v1::DataPosition& data = progress.data();
    run.data = DataState{.num_examples = data.num_examples(),
                         .next = data.next(),
                         .open = {},
                         .missed = data.missed(),
                         .repeated = data.repeated()};
    for (const v1::DataPosition::Run& open : data.open()) {
      run.data->open.insert(run.data->open.end(), {open.begin(), open.count()});
    }
  }
  run.examples = progress.counters().examples();
  run.accepted = progress.counters().accepted();
  run.stale = progress.counters().stale();
  run.duplicate = progress.counters().duplicate();
  run.rejected = progress.counters().rejected();
  run.staleness_max = progress.counters().staleness_max();
  run.staleness_histogram = {progress.counters().staleness_histogram().begin(),
                             progress.counters().staleness_histogram().end()};
  run.saved_at = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  return run;
}

std::string LearningRateName(const v1::OptimizerConfig& optimizer) {
  return absl::StartsWithIgnoreCase(optimizer.name(), "torch.") ? "lr" : "learning_rate";
}

v1::Progress ProgressOf(const RunState& run, const v1::OptimizerConfig& optimizer) {
  v1::Progress progress;
  progress.set_version(run.global_step);
  const auto rate = optimizer.hyperparameters().find(LearningRateName(optimizer));
  const auto before = run.hyperparameters.find(LearningRateName(optimizer));
  const bool same_rate = rate != optimizer.hyperparameters().end() && before != run.hyperparameters.end() &&
                         rate->second == before->second;
  if (run.learning_rate.has_value() && same_rate && !optimizer.has_learning_rate_schedule()) {
    progress.set_learning_rate(*run.learning_rate);
  }
  if (run.groups.has_value()) SetGroups(*run.groups, progress);
  progress.mutable_skipped_updates()->set_empty(run.empty_updates.value_or(0));
  if (run.data.has_value()) {
    v1::DataPosition& data = *progress.mutable_data();
    data.set_num_examples(run.data->num_examples);
    data.set_next(run.data->next);
    data.set_missed(run.data->missed);
    data.set_repeated(run.data->repeated);
    for (size_t i = 0; i + 1 < run.data->open.size(); i += 2) {
      v1::DataPosition::Run& open = *data.add_open();
      open.set_begin(run.data->open[i]);
      open.set_count(run.data->open[i + 1]);
    }
  }
  progress.mutable_positions()->Add(run.positions.begin(), run.positions.end());
  v1::Counters& counters = *progress.mutable_counters();
  counters.set_examples(run.examples);
  counters.set_accepted(run.accepted);
  counters.set_stale(run.stale);
  counters.set_duplicate(run.duplicate);
  counters.set_rejected(run.rejected);
  counters.set_staleness_max(run.staleness_max);
  counters.mutable_staleness_histogram()->Add(run.staleness_histogram.begin(), run.staleness_histogram.end());
  return progress;
}

}  // namespace cairn::worker
