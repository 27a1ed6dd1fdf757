#include "ps/job/job_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "common/memory/server_memory.h"
#include "common/net/wire/final_version.h"
#include "common/net/wire/row_frame.h"
#include "ps/log/follow_proto.h"

namespace cairn::ps {
namespace {

// One year: small enough that arithmetic on time points does not overflow.
constexpr double kLongestLeaseSeconds = 31'536'000;
constexpr int64_t kMaxVersionOffset = int64_t{1} << 60;
constexpr int kMaxWorkItemsAhead = 64;

// Checks the position at which a job resumes, so that later sums do not overflow.
absl::Status CheckResumed(const v1::Progress& resumed) {
  constexpr int64_t kMax = int64_t{1} << 62;
  const auto fits = [](int64_t count) { return count >= 0 && count <= kMax; };
  if (!fits(resumed.version())) {
    return absl::InvalidArgumentError(absl::StrCat("job: cannot resume at version ", resumed.version()));
  }
  for (int worker = 0; worker < resumed.positions_size(); ++worker) {
    if (fits(resumed.positions(worker))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("job: cannot resume with worker ", worker, " at position ", resumed.positions(worker)));
  }
  if (!fits(resumed.data().next())) {
    return absl::InvalidArgumentError(absl::StrCat("job: cannot resume at example ", resumed.data().next()));
  }
  for (const v1::DataPosition::Run& run : resumed.data().open()) {
    if (fits(run.begin()) && fits(run.count()) && run.count() <= resumed.data().next()) continue;
    return absl::InvalidArgumentError(absl::StrCat("job: cannot resume with ", run.count(),
                                                   " unfinished examples from example ", run.begin(), " on"));
  }
  if (!resumed.has_learning_rate() ||
      (std::isfinite(resumed.learning_rate()) && resumed.learning_rate() >= 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("job: cannot resume with a learning rate of ", resumed.learning_rate()));
}

double ValueBytes(const Shard::Options& shard) {
  double bytes = 0;
  for (const net::Slice& slice : shard.slices) bytes += static_cast<double>(slice.elements()) * sizeof(float);
  return bytes;
}

int NumSlots(const Shard::Options& shard) {
  return shard.optimizer == nullptr ? 0 : static_cast<int>(shard.optimizer->slot_names().size());
}

MemoryNeeds NeedsOf(const v1::Job& job, const Shard::Options& shard, double table_bytes) {
  MemoryNeeds needs =
      MemoryNeedsOf(ValueBytes(shard), NumSlots(shard), std::max(job.workers_size(), job.max_workers()),
                    job.ps_replication() > 0, job.wire() != v1::ENCODING_FLOAT32);
  needs.tables = table_bytes;
  return needs;
}

}  // namespace

absl::Status CheckJob(const v1::Job& job) {
  if (job.mode() == v1::MODE_VARIABLES) return absl::OkStatus();
  if (job.mode() != v1::MODE_SYNC && job.mode() != v1::MODE_ASYNC && job.mode() != v1::MODE_SSP) {
    return absl::InvalidArgumentError(absl::StrCat("job: unknown mode ", static_cast<int>(job.mode())));
  }
  if (job.workers().empty()) return absl::InvalidArgumentError("job: no workers");
  if (job.servers().empty()) return absl::InvalidArgumentError("job: no servers");
  if (job.elastic() && !job.dynamic_sharding()) {
    return absl::InvalidArgumentError("job: an elastic job needs dynamic sharding");
  }
  if (job.dynamic_sharding() && job.replicas_to_aggregate() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("job: with dynamic sharding a round takes all gradients, not the first ",
                     job.replicas_to_aggregate()));
  }
  if (job.min_workers() < 0 || job.max_workers() < 0 ||
      (job.max_workers() > 0 && job.max_workers() < job.min_workers())) {
    return absl::InvalidArgumentError(absl::StrCat("job: invalid range of workers: ", job.min_workers(),
                                                   " to ", Counted(job.max_workers(), "worker")));
  }
  if (job.work_items_ahead() < 0 || job.work_items_ahead() > kMaxWorkItemsAhead) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job: ", job.work_items_ahead(), " work items ahead, must be in [0, ", kMaxWorkItemsAhead, "]"));
  }
  if (job.ps_replication() != 0 && (job.ps_replication() != 1 || job.servers_size() < 2)) {
    return absl::InvalidArgumentError(absl::StrCat("job: cannot keep ", job.ps_replication(),
                                                   " backups of each shard on ", job.servers_size(),
                                                   " servers"));
  }
  if (job.generation() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("job: invalid generation ", job.generation()));
  }
  if (job.variable_groups_size() > kMaxGroups) {
    return absl::InvalidArgumentError(absl::StrCat("job: ", job.variable_groups_size(),
                                                   " groups of variables, must be at most ", kMaxGroups));
  }
  CAIRN_RETURN_IF_ERROR(Annotate(CheckGroups(FromProto(job.resumed().groups())), "job"));
  const auto resumed_groups = static_cast<int>(FromProto(job.resumed().groups()).size());
  if (resumed_groups != 0 && resumed_groups != job.variable_groups_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job: the checkpoint has settings of ", resumed_groups, " groups of variables, and the job has ",
        job.variable_groups_size(), ": resume with the same groups"));
  }
  CAIRN_RETURN_IF_ERROR(Annotate(FromProto(job.resumed().skipped_updates()).status(), "job"));
  CAIRN_RETURN_IF_ERROR(CheckResumed(job.resumed()));
  if (job.resumed().version_offset() > job.resumed().version() ||
      job.resumed().version_offset() < -kMaxVersionOffset ||
      (job.final_version() > 0 && net::FinalVersionOf(job) < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job: cannot resume at version ", job.resumed().version(), ", offset ",
        job.resumed().version_offset(), ", final version ", job.final_version(), " (without the offset)"));
  }
  if (!(job.lease_seconds() > 0 && job.lease_seconds() <= kLongestLeaseSeconds)) {
    return absl::InvalidArgumentError(absl::StrCat("job: lease of ", job.lease_seconds(),
                                                   " s, must be above 0 and at most ", kLongestLeaseSeconds));
  }
  return absl::OkStatus();
}

absl::Status CheckDescriptions(absl::Span<const net::Slice> slices) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  size_t bytes = 0;
  for (const net::Slice& slice : slices) {
    bytes += slice.name.size() + static_cast<size_t>(slice.shape.rank()) * sizeof(int64_t);
  }
  if (bytes <= kMaxBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the names and shapes of ", slices.size(),
                                                   " variables take ", bytes, " bytes, at most ", kMaxBytes));
}

absl::StatusOr<std::vector<int>> GroupsOf(const v1::Job& job, absl::Span<const net::Slice> slices) {
  std::map<std::string, int> groups;
  for (int group = 0; group < job.variable_groups_size(); ++group) {
    for (const std::string& variable : job.variable_groups(group).variables()) {
      if (groups.emplace(variable, group).second) continue;
      return absl::InvalidArgumentError(absl::StrCat("job: variable '", variable, "' is in two groups"));
    }
  }
  std::vector<int> of_slice;
  for (const net::Slice& slice : slices) {
    const auto found = groups.find(slice.name);
    of_slice.push_back(found == groups.end() ? -1 : found->second);
  }
  return of_slice;
}

absl::Status CheckNorms(const Shard::Options& shard) {
  if (shard.optimizer->norms().empty()) return absl::OkStatus();
  for (const net::Slice& slice : shard.slices) {
    if (slice.whole_bands() || slice.moving_average_momentum.has_value()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "job: optimizer ", shard.optimizer->name(), " takes norms, and '", slice.name, "' is split at rows ",
        slice.row_begin, " and ", slice.row_end, ", not at multiples of ", net::RowsPerBand(slice.shape)));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> TableBytes(const v1::Job& job, const TableFactory* factory) {
  double bytes = 0;
  std::set<absl::string_view> names;
  for (const v1::Table& table : job.tables()) {
    const std::string what = absl::StrCat("job: table '", table.name(), "'");
    if (table.name().empty()) return absl::InvalidArgumentError("job: a table has no name");
    if (!names.insert(table.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(what, " is declared twice"));
    }
    if (table.row_elements() < 1 || table.row_elements() > net::kMaxRowElements) {
      return absl::InvalidArgumentError(absl::StrCat(what, " has rows of ", table.row_elements(),
                                                     " elements, must have 1 to ", net::kMaxRowElements));
    }
    if (factory == nullptr || job.mode() == v1::MODE_VARIABLES) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": ",
                                                     factory == nullptr
                                                         ? "this server stores variables only"
                                                         : "a job that trains nothing has no tables"));
    }
    const absl::StatusOr<double> needed = factory->BytesOf(table, job);
    if (!needed.ok()) return Annotate(needed.status(), what);
    bytes += *needed;
  }
  return bytes;
}

absl::Status CheckMemory(const v1::Job& job, const Shard::Options& shard, double table_bytes) {
  return cairn::CheckMemory(
      {.needs = NeedsOf(job, shard, table_bytes),
       .limit = shard.memory_limit,
       .optimizer = shard.optimizer != nullptr ? std::string(shard.optimizer->name()) : "",
       .num_slots = NumSlots(shard),
       .num_workers = std::max(job.workers_size(), job.max_workers()),
       .replicated = job.ps_replication() > 0,
       .tables = !job.tables().empty()});
}

bool UpdatesSpeculatively(const v1::Job& job, const Shard::Options& shard, double table_bytes) {
  const bool of_all = job.replicas_to_aggregate() == 0 || job.replicas_to_aggregate() >= job.workers_size();
  // A speculative update publishes the variables before other tables are updated.
  if (job.mode() != v1::MODE_SYNC || !of_all || shard.optimizer == nullptr ||
      !shard.optimizer->norms().empty() || !job.tables().empty()) {
    return false;
  }
  // A norm needs the whole variable, whose parts would have been sent before.
  if (std::any_of(shard.slices.begin(), shard.slices.end(), [](const net::Slice& slice) {
        return slice.constraint.has_value() && slice.constraint->takes_norms();
      })) {
    return false;
  }
  const double speculative_bytes = (1.0 + NumSlots(shard)) * ValueBytes(shard);
  return NeedsOf(job, shard, table_bytes).total() + speculative_bytes <=
         static_cast<double>(shard.memory_limit);
}

}  // namespace cairn::ps
