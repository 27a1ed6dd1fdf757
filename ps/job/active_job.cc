#include "ps/job/active_job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "common/net/grpc/call_limit.h"
#include "common/net/wire/final_version.h"
#include "common/net/wire/update_chunk.h"
#include "optim/store/optimizer_of.h"
#include "ps/job/job_check.h"
#include "ps/log/work_proto.h"

namespace cairn::ps {
namespace {

// Limit on the workers of an elastic job over its whole life, because each new name takes a number.
constexpr int kMaxElasticWorkers = 4096;

// The part of the means of tables in Replicator::Options::most_behind_bytes: a fraction of a second on a fast link.
constexpr int64_t kMaxTableBytesBehind = int64_t{256} << 20;

// The port to a sequencer in this process.
class LocalPort final : public SequencerPort {
 public:
  LocalPort(Sequencer& sequencer, int server) : sequencer_(sequencer), server_(server) {}
  void ReportStaged(const Gradient& gradient) override { sequencer_.OnStaged(server_, gradient); }
  void ReportSums(Sums sums) override { sequencer_.OnSums(server_, std::move(sums)); }
  void ReportExecuted(int64_t index) override { sequencer_.OnExecuted(server_, index); }
  void ReportWaiting(int64_t index) override { sequencer_.OnWaiting(server_, index); }

 private:
  Sequencer& sequencer_;
  const int server_;
};

// The value of PolicyConfig::mode; empty if nothing is trained.
std::string ModeNameOf(v1::Mode mode) {
  switch (mode) {
    case v1::MODE_SYNC:
      return "sync";
    case v1::MODE_ASYNC:
      return "async";
    case v1::MODE_SSP:
      return "ssp";
    default:
      return "";
  }
}

PolicyConfig PolicyOf(const v1::Job& job, int server, int most_workers) {
  PolicyConfig config;
  config.mode = ModeNameOf(job.mode());
  config.most_workers = most_workers;
  config.expected_workers = job.workers_size();
  config.replicas_to_aggregate = job.replicas_to_aggregate();
  if (job.has_max_staleness()) config.max_staleness = job.max_staleness();
  if (job.final_version() > 0) config.final_version = net::FinalVersionOf(job);
  config.initial_version = job.resumed().version();
  for (int worker = 0; worker < job.resumed().positions_size(); ++worker) {
    config.initial_clocks[worker] = job.resumed().positions(worker);
  }
  if (!job.dynamic_sharding()) return config;
  config.data = DynamicAssignment{
      .queue = {.num_examples = job.num_examples(),
                .batch_size = std::min(job.batch_size(), std::max<int64_t>(1, job.num_examples())),
                // A job with a fixed number of steps may repeat the epochs without limit.
                .epochs = job.final_version() > 0 ? 0 : job.epochs(),
                .items_ahead = std::max(1, job.work_items_ahead())},
      .resumed = FromProto(job.resumed().data()),
      .min_workers = std::max(1, job.min_workers()),
      .elastic = job.elastic(),
      .elsewhere = server > 0};
  return config;
}

Progress ProgressOf(const v1::Progress& proto) {
  Progress progress = {.version = proto.version()};
  progress.counters.accepted = proto.counters().accepted();
  progress.counters.examples = proto.counters().examples();
  progress.counters.stale = proto.counters().stale();
  progress.counters.staleness_max = proto.counters().staleness_max();
  auto& histogram = progress.counters.staleness_histogram;
  const int given = std::min<int>(proto.counters().staleness_histogram_size(), histogram.size());
  for (int i = 0; i < given; ++i) histogram[static_cast<size_t>(i)] = proto.counters().staleness_histogram(i);
  for (int worker = 0; worker < proto.positions_size(); ++worker) {
    progress.positions[worker] = proto.positions(worker);
  }
  return progress;
}

// With dynamic sharding: whether all epochs are done.
bool IsDone(const v1::Job& job) {
  const v1::DataPosition& data = job.resumed().data();
  return job.final_version() == 0 && job.num_examples() > 0 && data.open().empty() &&
         data.next() / job.num_examples() >= job.epochs();
}

}  // namespace

ActiveJob::ActiveJob(v1::Job job, uint64_t layout, Host host)
    : job_(std::move(job)),
      layout_(layout),
      host_(std::move(host)),
      members_(job_, {.server = absl::StrCat("ps/", host_.index),
                      .most_workers = most_workers(),
                      .seal_key = host_.seal_key}) {}

int ActiveJob::most_workers() const {
  return job_.elastic() ? kMaxElasticWorkers : job_.workers_size();
}

absl::StatusOr<std::shared_ptr<ActiveJob>> ActiveJob::Create(const v1::Job& job,
                                                             std::vector<net::Slice> slices, uint64_t layout,
                                                             const Host& host) {
  CAIRN_ASSIGN_OR_RETURN(auto active, MakeWithinMemory(job, std::move(slices), layout, host));
  if (job.mode() == v1::MODE_VARIABLES) return active;
  active->MakeReplicator(host.epoch);
  CAIRN_RETURN_IF_ERROR(active->Serve(/*first_index=*/1, host.epoch));
  return active;
}

absl::StatusOr<std::shared_ptr<ActiveJob>> ActiveJob::CreateCopy(const v1::Job& job,
                                                                 std::vector<net::Slice> slices,
                                                                 uint64_t layout, const Host& host) {
  if (job.mode() == v1::MODE_VARIABLES || job.ps_replication() == 0) {
    return absl::InvalidArgumentError("job: its shards have no backups");
  }
  return MakeWithinMemory(job, std::move(slices), layout, host);
}

absl::StatusOr<std::shared_ptr<ActiveJob>> ActiveJob::MakeWithinMemory(const v1::Job& job,
                                                                       std::vector<net::Slice> slices,
                                                                       uint64_t layout, const Host& host) {
  return CatchOutOfMemory("the variables of the job",
                          [&] { return Make(job, std::move(slices), layout, host); });
}

absl::StatusOr<std::shared_ptr<ActiveJob>> ActiveJob::Make(const v1::Job& job, std::vector<net::Slice> slices,
                                                           uint64_t layout, const Host& host) {
  CAIRN_RETURN_IF_ERROR(CheckJob(job));
  CAIRN_RETURN_IF_ERROR(CheckDescriptions(slices));
  if (job.ps_replication() > 0 && host.connect_to_backup == nullptr) {
    return absl::InvalidArgumentError("job: this server does not support replication");
  }
  CAIRN_ASSIGN_OR_RETURN(const double table_bytes, TableBytes(job, host.tables));
  std::shared_ptr<ActiveJob> active(new ActiveJob(job, layout, host));
  Shard::Options shard = {
      .slices = std::move(slices),
      .optimizer = nullptr,
      .final_version = net::FinalVersionOf(job),
      .staleness_aware_learning_rate = job.staleness_aware_learning_rate(),
      .initial_version = job.resumed().version(),
      .memory_limit = job.ps_replication() > 0 ? host.memory_limit / 2 : host.memory_limit};
  if (job.dynamic_sharding() && IsDone(job))
    shard.final_version = std::max<int64_t>(1, shard.initial_version);
  if (job.resumed().has_learning_rate()) shard.learning_rate = job.resumed().learning_rate();
  CAIRN_ASSIGN_OR_RETURN(shard.group_of_slice, GroupsOf(job, shard.slices));
  shard.groups = FromProto(job.resumed().groups());
  CAIRN_ASSIGN_OR_RETURN(shard.skipped, FromProto(job.resumed().skipped_updates()));
  shard.skip_empty_updates = job.skip_empty_updates();
  shard.thread_pool = host.thread_pool;
  shard.faults = host.faults;
  shard.metrics = host.metrics;
  shard.trace = host.trace;
  shard.server = host.index;
  shard.most_workers = active->most_workers();
  if (job.mode() == v1::MODE_VARIABLES) {
    CAIRN_RETURN_IF_ERROR(CheckMemory(job, shard, table_bytes));
    active->shard_ = std::make_shared<Shard>(std::move(shard));
    return active;
  }

  CAIRN_ASSIGN_OR_RETURN(shard.optimizer, optim::MakeOptimizer(optim::OptimizerOf(job)));
  CAIRN_RETURN_IF_ERROR(CheckNorms(shard));
  CAIRN_RETURN_IF_ERROR(Annotate(optim::CheckGroupSettings(*shard.optimizer, shard.groups), "job"));
  CAIRN_RETURN_IF_ERROR(CheckMemory(job, shard, table_bytes));
  shard.speculative_updates = UpdatesSpeculatively(job, shard, table_bytes);
  shard.make_tables = [&job, &host](const std::shared_ptr<optim::MemoryBudget>& budget) {
    std::vector<std::unique_ptr<Table>> tables;
    for (const v1::Table& table : job.tables())
      tables.push_back(host.tables->Make(table, job, host.index, budget));
    return tables;
  };
  // Norms span all servers, so all servers make an update together, even for an asynchronous push.
  const std::vector<optim::Norms> norms(shard.optimizer->norms().begin(), shard.optimizer->norms().end());
  const bool sequences_itself = job.mode() == v1::MODE_ASYNC && norms.empty();
  shard.leader = sequences_itself ? host.index : 0;
  active->shard_ = std::make_shared<Shard>(std::move(shard));
  if (sequences_itself || host.index == 0) {
    CAIRN_ASSIGN_OR_RETURN(auto policy, MakePolicy(PolicyOf(job, host.index, active->most_workers())));
    active->sequencer_ =
        std::make_unique<Sequencer>(std::move(policy), sequences_itself ? 1 : job.servers_size(), norms,
                                    ProgressOf(job.resumed()), active->most_workers());
  }
  return active;
}

absl::Status ActiveJob::Serve(int64_t first_index, int64_t epoch) {
  if (sequencer_ != nullptr) {  // this server is the sequencer's server 0
    port_ = std::make_unique<LocalPort>(*sequencer_, 0);
    shard_->ConnectTo(port_.get());
    if (const absl::Status status = sequencer_->Subscribe(0, first_index, shard_, epoch); !status.ok()) {
      return absl::InternalError(
          absl::StrCat("the log of ps/", host_.index, " and its shard do not match: ", status.message()));
    }
  } else {
    port_ = host_.connect_to_leader(job_, shard_, epoch);
    shard_->ConnectTo(port_.get());
  }
  // Reports the sums that a backup measured before its promotion.
  if (auto sums = shard_->UnansweredSums()) port_->ReportSums(*std::move(sums));
  return absl::OkStatus();
}

void ActiveJob::MakeReplicator(int64_t epoch) {
  if (job_.ps_replication() == 0) return;
  v1::ReplicationOrigin origin;
  *origin.mutable_job() = job_;
  for (const net::Slice& slice : shard_->store().slices()) *origin.add_slices() = slice.ToProto();
  origin.set_layout(layout_);
  origin.set_incarnation(host_.incarnation);
  origin.set_epoch(epoch);
  origin.set_seal_key(host_.seal_key);
  replicator_ = std::make_unique<Replicator>(Replicator::Options{
      .shard = absl::StrCat("ps/", host_.index),
      .backup = backup_name(),
      .origin = std::move(origin),
      .dial =
          [this, address = job_.servers(other_host_index())](ReplicationStreamHandler& handler) {
            return host_.connect_to_backup(address, host_.index, handler);
          },
      .capture =
          [this] {
            if (sequencer_feed_ != nullptr) {
              sequencer_feed_->SendState();
            } else {
              replicator_->SendState(Replicator::Component::kSequencer, ReplicationItem());
            }
            members_.Capture();
            shard_feed_->SendState();
          },
      .most_behind_bytes =
          2 * shard_->store().pool().buffer_bytes() +
          (job_.tables().empty() ? 0 : std::min(kMaxTableBytesBehind, host_.memory_limit / 16)),
      .allocating = net::TimeForBytes(shard_->store().pool().buffer_bytes()),
      .clock = host_.backups_clock});
  shard_feed_ = std::make_unique<ShardFeed>(*shard_, *replicator_);
  shard_->SendEffectsTo(shard_feed_.get());
  members_.ReplicateTo(replicator_.get());
  if (sequencer_ == nullptr) return;
  sequencer_feed_ = std::make_unique<SequencerFeed>(
      *sequencer_, *replicator_,
      /*with_entry=*/shard_->store().size() <= net::kUpdateChunk && job_.tables().empty());
  sequencer_->ReplicateTo(sequencer_feed_.get(), /*own_server=*/0);
}

int ActiveJob::other_host_index() const {
  return host_.host_index == host_.index ? (host_.index + 1) % job_.servers_size() : host_.index;
}

std::string ActiveJob::backup_name() const {
  return absl::StrCat("ps/", other_host_index(), " at ", job_.servers(other_host_index()));
}

absl::Status ActiveJob::Promote(int64_t epoch) {
  shard_->AwaitMissingPushes();
  MakeReplicator(epoch);
  CAIRN_RETURN_IF_ERROR(Serve(shard_->next_index(), epoch));
  StartReplicating();
  return absl::OkStatus();
}

void ActiveJob::StartReplicating() {
  if (replicator_ != nullptr) replicator_->Start();
}

std::string ActiveJob::ReasonToDrop() {
  if (replicator_ == nullptr) return "";
  if (std::string fenced = replicator_->fenced(); !fenced.empty()) return fenced;
  std::vector<PushKey> dead;
  for (const PushKey& key : shard_->Missing()) {
    if (!members_.IsLive(key.worker, key.incarnation)) dead.push_back(key);
  }
  if (dead.empty()) return "";
  // A worker may have sent its push and left in the meantime. A push that is still missing will not come.
  const std::vector<PushKey> missing = shard_->Missing();
  std::vector<std::string> gone;
  for (const PushKey& key : dead) {
    if (std::find(missing.begin(), missing.end(), key) != missing.end()) {
      gone.push_back(members_.NameOf(key.worker));
    }
  }
  if (gone.empty()) return "";
  return absl::StrCat("an update needs gradients of ", absl::StrJoin(gone, ", "), ", lost with ps/",
                      host_.index);
}

void ActiveJob::ReportWaiting() {
  if (const int64_t index = shard_->WaitsAt(); index > 0) port_->ReportWaiting(index);
}

void ActiveJob::QuitReplicating() {
  if (replicator_ != nullptr) replicator_->Quit();
}

void ActiveJob::StopReplicating() {
  if (replicator_ != nullptr) replicator_->Stop();
}

ActiveJob::~ActiveJob() {
  StopReplicating();
  if (SpeculativeUpdate* const speculative =
          shard_ == nullptr ? nullptr : shard_->tables().dense().speculative()) {
    speculative->Drop();  // waits for the chunks in progress, whose means go to the replicator
  }
  port_.reset();  // closes the connection to the sequencer before the objects that it calls are destroyed
}

}  // namespace cairn::ps
