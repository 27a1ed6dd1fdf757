#include "ps/active_job.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// The sequencer is in this process.
class LocalPort final : public SequencerPort {
 public:
  LocalPort(Sequencer& sequencer, int server) : sequencer_(sequencer), server_(server) {}
  void ReportStaged(const Gradient& gradient) override { sequencer_.OnStaged(server_, gradient); }
  void ReportExecuted(int64_t index) override { sequencer_.OnExecuted(server_, index); }

 private:
  Sequencer& sequencer_;
  const int server_;
};

absl::Status CheckJob(const v1::Job& job) {
  if (job.mode() == v1::MODE_VARIABLES) return absl::OkStatus();
  if (job.mode() != v1::MODE_SYNC && job.mode() != v1::MODE_ASYNC) {
    return absl::InvalidArgumentError(absl::StrCat("job: unknown mode ", static_cast<int>(job.mode())));
  }
  if (job.workers().empty()) return absl::InvalidArgumentError("job: no workers");
  if (job.servers().empty()) return absl::InvalidArgumentError("job: no servers");
  if (!(job.lease_seconds() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("job: lease of ", job.lease_seconds(), " s"));
  }
  return absl::OkStatus();
}

OptimizerConfig OptimizerOf(const v1::Job& job) {
  const v1::OptimizerConfig& proto = job.optimizer();
  OptimizerConfig config = {
      .name = proto.name(),
      .hyperparameters = {proto.hyperparameters().begin(), proto.hyperparameters().end()}};
  if (proto.has_learning_rate_schedule()) {
    const v1::LearningRateSchedule& schedule = proto.learning_rate_schedule();
    config.schedule = {.name = schedule.name(),
                       .numbers = {schedule.numbers().begin(), schedule.numbers().end()},
                       .boundaries = {schedule.boundaries().begin(), schedule.boundaries().end()},
                       .values = {schedule.values().begin(), schedule.values().end()}};
  }
  return config;
}

// A server takes norms of what it holds itself.
absl::Status CheckNorms(const v1::Job& job, const Shard::Options& shard) {
  const Optimizer& optimizer = *shard.optimizer;
  if (optimizer.norms() == Norms::kNone) return absl::OkStatus();
  if (optimizer.norms() == Norms::kGlobal && job.servers_size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("job: global_clipnorm needs the norm of all variables' gradients, and each of ",
                     job.servers_size(), " servers knows its own alone: use one server, or clipnorm"));
  }
  for (const net::Slice& slice : shard.slices) {
    if (slice.whole() || slice.moving_average_momentum.has_value()) continue;
    return absl::InvalidArgumentError(absl::StrCat("job: optimizer ", optimizer.name(),
                                                   " needs norms of whole variables, and '", slice.name,
                                                   "' is split over servers"));
  }
  return absl::OkStatus();
}

PolicyConfig PolicyOf(const v1::Job& job) {
  PolicyConfig config;
  config.mode = job.mode() == v1::MODE_SYNC ? "sync" : "async";
  config.expected_workers = job.workers_size();
  config.replicas_to_aggregate = job.replicas_to_aggregate();
  if (job.has_max_staleness()) config.max_staleness = job.max_staleness();
  if (job.final_version() > 0) config.final_version = job.final_version();
  return config;
}

// A chief's mistake, or a stranger's bytes, must not make the server ask for memory that there is not.
absl::Status CheckMemory(const Shard::Options& shard) {
  double elements = 0;
  for (const net::Slice& slice : shard.slices) elements += static_cast<double>(slice.elements());
  const double copies =
      2.0 + (shard.optimizer == nullptr ? 0.0 : static_cast<double>(shard.optimizer->slot_names().size()));
  const double needed = elements * copies * sizeof(float);
  const double there =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("the variables need %.1f GiB with their slots, and this machine has %.1f GiB",
                      needed / 0x1p30, there / 0x1p30));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ActiveJob>> ActiveJob::Create(const v1::Job& job,
                                                             std::vector<net::Slice> slices, uint64_t layout,
                                                             int server,
                                                             const LeaderConnector& connect_to_leader) {
  CAIRN_RETURN_IF_ERROR(CheckJob(job));
  std::shared_ptr<ActiveJob> active(new ActiveJob(job, layout));
  Shard::Options shard = {
      .slices = std::move(slices), .optimizer = nullptr, .final_version = job.final_version()};
  CAIRN_RETURN_IF_ERROR(CheckMemory(shard));
  if (job.mode() == v1::MODE_VARIABLES) {
    active->shard_ = std::make_shared<Shard>(std::move(shard));
    return active;
  }

  CAIRN_ASSIGN_OR_RETURN(shard.optimizer, MakeOptimizer(OptimizerOf(job)));
  CAIRN_RETURN_IF_ERROR(CheckNorms(job, shard));
  CAIRN_RETURN_IF_ERROR(CheckMemory(shard));
  active->shard_ = std::make_shared<Shard>(std::move(shard));
  const bool sequences_itself = job.mode() == v1::MODE_ASYNC;
  if (sequences_itself || server == 0) {
    CAIRN_ASSIGN_OR_RETURN(auto policy, MakePolicy(PolicyOf(job)));
    active->sequencer_ =
        std::make_unique<Sequencer>(std::move(policy), sequences_itself ? 1 : job.servers_size());
    active->port_ = std::make_unique<LocalPort>(*active->sequencer_, 0);
    active->shard_->ConnectTo(active->port_.get());
    CAIRN_CHECK(active->sequencer_->Subscribe(0, 1, active->shard_));
  } else {
    active->port_ = connect_to_leader(job, active->shard_);
    active->shard_->ConnectTo(active->port_.get());
  }
  return active;
}

ActiveJob::~ActiveJob() {
  port_.reset();  // ends the link to a leader before what it calls goes away
}

}  // namespace cairn::ps
