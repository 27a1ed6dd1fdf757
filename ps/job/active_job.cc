#include "ps/job/active_job.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "common/memory/memory_size.h"
#include "common/memory/out_of_memory.h"
#include "common/net/grpc/call_limit.h"
#include "common/net/wire/final_version.h"
#include "optim/store/optimizer_of.h"
#include "ps/log/work_proto.h"

namespace cairn::ps {
namespace {

// One year: small enough that arithmetic on time points does not overflow.
constexpr double kLongestLeaseSeconds = 31'536'000;
constexpr int64_t kMaxVersionOffset = int64_t{1} << 60;
// Limit on the workers of an elastic job over its whole life, because each new name takes a number.
constexpr int kMaxElasticWorkers = 4096;

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

// Names and shapes do not count against --memory_limit, which covers the values only.
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

absl::Status CheckJob(const v1::Job& job) {
  if (job.mode() == v1::MODE_VARIABLES) return absl::OkStatus();
  if (ModeNameOf(job.mode()).empty()) {
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
  if (job.ps_replication() != 0 && (job.ps_replication() != 1 || job.servers_size() < 2)) {
    return absl::InvalidArgumentError(absl::StrCat("job: cannot keep ", job.ps_replication(),
                                                   " backups of each shard on ", job.servers_size(),
                                                   " servers"));
  }
  if (job.generation() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("job: invalid generation ", job.generation()));
  }
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

// Slices must not divide a band, because the sum over a divided band depends on where it is divided.
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
                .epochs = job.final_version() > 0 ? 0 : job.epochs()},
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

double ValueBytes(const Shard::Options& shard) {
  double bytes = 0;
  for (const net::Slice& slice : shard.slices) bytes += static_cast<double>(slice.elements()) * sizeof(float);
  return bytes;
}

int NumSlots(const Shard::Options& shard) {
  return shard.optimizer == nullptr ? 0 : static_cast<int>(shard.optimizer->slot_names().size());
}

MemoryNeeds NeedsOf(const v1::Job& job, const Shard::Options& shard) {
  const double value_bytes = ValueBytes(shard);
  MemoryNeeds needs =
      MemoryNeedsOf(value_bytes, NumSlots(shard), std::max(job.workers_size(), job.max_workers()),
                    job.ps_replication() > 0);
  // Encoded copies of the current version and, for slow receivers, of the previous one: 16 bits per
  // element each.
  if (job.wire() != v1::ENCODING_FLOAT32) needs.values += value_bytes;
  return needs;
}

// Whether the job's updates are speculative: its rounds take all workers, its optimizer needs no norms, and
// the memory has room for a version that may be discarded.
bool UpdatesSpeculatively(const v1::Job& job, const Shard::Options& shard) {
  const bool of_all = job.replicas_to_aggregate() == 0 || job.replicas_to_aggregate() >= job.workers_size();
  if (job.mode() != v1::MODE_SYNC || !of_all || shard.optimizer == nullptr ||
      !shard.optimizer->norms().empty()) {
    return false;
  }
  const double speculative_bytes = (1.0 + NumSlots(shard)) * ValueBytes(shard);
  return NeedsOf(job, shard).total() + speculative_bytes <= static_cast<double>(shard.memory_limit);
}

// A mistake of the chief, or a malicious request, must not make the server allocate more memory than
// there is.
absl::Status CheckMemory(const v1::Job& job, const Shard::Options& shard) {
  const MemoryNeeds needs = NeedsOf(job, shard);
  if (needs.total() <= static_cast<double>(shard.memory_limit)) return absl::OkStatus();
  const bool trains = shard.optimizer != nullptr;
  const int num_slots = NumSlots(shard);
  const bool replicated = job.ps_replication() > 0;
  return absl::ResourceExhaustedError(absl::StrCat(
      "the job needs ", InGiB(needs.total()), " and may take ",
      InGiB(static_cast<double>(shard.memory_limit)),
      replicated ? " (half of --memory_limit: the other half is for the backup of another shard)"
                 : " (--memory_limit)",
      ": two versions of the values ", InGiB(needs.values), ", ", Counted(num_slots, "slot"),
      trains ? absl::StrCat(" of ", shard.optimizer->name()) : "", " ", InGiB(needs.slots),
      ", a gradient of each of ", Counted(std::max(job.workers_size(), job.max_workers()), "worker"),
      " and one that arrives ", InGiB(needs.gradients), ", a snapshot ", InGiB(needs.snapshot),
      replicated ? absl::StrCat(", data for the backup ", InGiB(needs.replication)) : ""));
}

}  // namespace

MemoryNeeds MemoryNeedsOf(double value_bytes, int num_slots, int num_workers, bool replicated) {
  return {.values = 2 * value_bytes,
          .slots = num_slots * value_bytes,
          .gradients = (num_workers + 1.0) * value_bytes,
          .snapshot = (1.0 + num_slots) * value_bytes,
          .replication = replicated ? (3.0 + num_slots) * value_bytes : 0};
}

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
  shard.thread_pool = host.thread_pool;
  shard.faults = host.faults;
  shard.metrics = host.metrics;
  shard.trace = host.trace;
  shard.server = host.index;
  shard.most_workers = active->most_workers();
  if (job.mode() == v1::MODE_VARIABLES) {
    CAIRN_RETURN_IF_ERROR(CheckMemory(job, shard));
    active->shard_ = std::make_shared<Shard>(std::move(shard));
    return active;
  }

  CAIRN_ASSIGN_OR_RETURN(shard.optimizer, optim::MakeOptimizer(optim::OptimizerOf(job)));
  CAIRN_RETURN_IF_ERROR(CheckNorms(shard));
  CAIRN_RETURN_IF_ERROR(CheckMemory(job, shard));
  shard.speculative_updates = UpdatesSpeculatively(job, shard);
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
            host_.capture_members(*replicator_);
            shard_feed_->SendState();
          },
      .most_behind_bytes = 2 * shard_->store().pool().buffer_bytes(),
      .allocating = net::TimeForBytes(shard_->store().pool().buffer_bytes()),
      .clock = host_.backups_clock});
  shard_feed_ = std::make_unique<ShardFeed>(*shard_, *replicator_);
  shard_->SendEffectsTo(shard_feed_.get());
  if (sequencer_ == nullptr) return;
  sequencer_feed_ = std::make_unique<SequencerFeed>(*sequencer_, *replicator_);
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
  port_.reset();  // closes the connection to the sequencer before the objects that it calls are destroyed
}

}  // namespace cairn::ps
