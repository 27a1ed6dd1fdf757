#include "tests/fuzz/server_script.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/net/wire/frame.h"
#include "ps/log/follow_proto.h"
#include "ps/rpc/received_decision.h"
#include "tests/fuzz/fuzz.h"

namespace cairn::fuzz {
namespace {

// Servers refuse jobs that do not fit the machine's memory; this test uses a lower limit.
constexpr int64_t kMaxElements = 1 << 16;
constexpr int32_t kMaxSeconds = 100'000;
constexpr int64_t kMemoryLimit = int64_t{256} << 20;

// The follower's port to its leader. The script plays the leader, so the port does nothing.
class NowherePort final : public ps::SequencerPort {
 public:
  void ReportStaged(const ps::Gradient&) override {}
  void ReportSums(ps::Sums) override {}
  void ReportExecuted(int64_t) override {}
  void ReportWaiting(int64_t) override {}
};

// A stream to a server that does not exist.
class NowhereStream final : public ps::ReplicationStream {
 public:
  void Send(std::vector<ps::NumberedItem>) override {}
};

template <typename Request>
bool TooLarge(const Request& request) {
  int64_t elements = 0;
  for (const v1::VariableSlice& proto : request.slices()) {
    const auto slice = net::Slice::FromProto(proto);
    if (!slice.ok()) return false;  // to be refused
    FUZZ_CHECK(slice->elements() >= 0);
    elements += slice->elements();
    if (elements > kMaxElements) return true;
  }
  return false;
}

}  // namespace

v1::CreateRequest SmallJob(v1::Mode mode, int servers) {
  v1::CreateRequest create;
  v1::Job& job = *create.mutable_job();
  job.set_run_id("run");
  job.set_mode(mode);
  job.add_workers("worker/0");
  for (int i = 0; i < servers; ++i) job.add_servers("host:1");
  job.set_lease_seconds(30);
  job.mutable_optimizer()->set_name("SGD");
  v1::VariableSlice& slice = *create.add_slices();
  slice.set_name("a");
  slice.add_shape(2);
  slice.set_row_end(2);
  return create;
}

class ServerPlayer::Sink final : public ps::SessionSink {
 public:
  void Send(const v1::ServerHeader&, net::FloatSpans payload, const std::shared_ptr<const void>&) override {
    float sum = 0;  // touches what is sent
    for (const auto& run : payload) {
      for (const float value : run) sum += value;
    }
    last_sum_ = sum;
  }

 private:
  volatile float last_sum_ = 0;
};

class ServerPlayer::Log final : public ps::LogSink {
 public:
  void Append(const ps::LogEntry& entry) override {
    // A decision of the leader reads as itself after a round trip.
    const v1::Decision decision = ps::ToProto(entry);
    const auto again = ps::FromProto(decision);
    FUZZ_CHECK(again.ok() && again->index == entry.index);
  }
  void Flush() override {}
  void End(const absl::Status&) override {}
};

ServerPlayer::ServerPlayer(int index, int host_index, const ps::TableFactory* tables)
    : server_({.index = index,
               .host_index = host_index,
               .incarnation = 1,
               .connect_to_leader =
                   [this](const v1::Job&, std::shared_ptr<ps::Shard> shard, int64_t) {
                     follower_shard_ = std::move(shard);
                     return std::make_unique<NowherePort>();
                   },
               .connect_to_backup =
                   host_index < 0
                       ? ps::BackupDialer()
                       : [](const std::string&, int,
                            ps::ReplicationStreamHandler&) { return std::make_unique<NowhereStream>(); },
               .replicates_by_calls = true,
               .memory_limit = kMemoryLimit,
               .tables = tables},
              clock_),
      sink_(std::make_shared<Sink>()) {
  static const bool quiet = [] {
    spdlog::set_level(spdlog::level::off);
    return true;
  }();
  static_cast<void>(quiet);
  NewSession();
}

ServerPlayer::~ServerPlayer() {
  server_.Shutdown();
  FUZZ_CHECK(calls_ == answers_);
}

void ServerPlayer::NewSession() {
  session_ = std::make_unique<ps::Session>(server_, sink_);
}

template <typename Request, typename Response>
void ServerPlayer::Call(void (ps::Server::*method)(const Request&, ps::Reply<Response>),
                        const Request& request) {
  ++calls_;
  (server_.*method)(request, [this](absl::StatusOr<Response> response) {
    ++answers_;
    FUZZ_CHECK(response.ok() || !response.status().message().empty());
  });
}

void ServerPlayer::MakeReady(const v1::CreateRequest& request) {
  uint64_t layout = 0;
  int64_t elements = 0;
  for (const v1::VariableSlice& slice : request.slices())
    elements += net::Slice::FromProto(slice)->elements();
  server_.Create(request, [&](absl::StatusOr<v1::CreateResponse> response) {
    FUZZ_CHECK(response.ok());
    layout = response->layout();
  });
  v1::ClientHeader header;
  header.set_request_id(1);
  header.mutable_write()->set_layout(layout);
  header.mutable_write()->set_initialise(true);
  FUZZ_CHECK(session_->OnFrame(header, {}).ok());
  header.mutable_chunk();
  const std::string values(static_cast<size_t>(elements) * sizeof(float), '\0');
  const absl::Span<const char> run(values);
  FUZZ_CHECK(session_->OnFrame(header, {&run, 1}).ok());
  header.mutable_end();
  FUZZ_CHECK(session_->OnFrame(header, {}).ok());
  FUZZ_CHECK(server_.ready());
  Call(&ps::Server::Join, v1::JoinRequest());
}

void ServerPlayer::Play(const Script& script) {
  for (const Step& step : script.steps()) {
    PlayStep(step);
    server_.Tick();
  }
}

void ServerPlayer::PlayStep(const Step& step) {
  switch (step.what_case()) {
    case Step::kConnect:
      return Call(&ps::Server::Connect, step.connect());
    case Step::kCreate:
      return Create(step.create());
    case Step::kWait:
      return Call(&ps::Server::Wait, step.wait());
    case Step::kJoin:
      return Call(&ps::Server::Join, step.join());
    case Step::kHeartbeat:
      return Call(&ps::Server::Heartbeat, step.heartbeat());
    case Step::kBatchMean:
      return Call(&ps::Server::BatchMean, step.batch_mean());
    case Step::kLeave:
      return Call(&ps::Server::Leave, step.leave());
    case Step::kMarker:
      return Call(&ps::Server::PlaceMarker, step.marker());
    case Step::kConfigChange:
      return Call(&ps::Server::ChangeConfig, step.config_change());
    case Step::kFinish:
      return Call(&ps::Server::Finish, step.finish());
    case Step::kFrame: {
      const std::string& payload = step.frame().payload();
      // In two runs, as gRPC would cut it anywhere.
      const absl::Span<const char> whole(payload),
          runs[] = {whole.first(payload.size() / 3), whole.subspan(payload.size() / 3)};
      const net::Payload pieces = payload.empty() ? net::Payload() : net::Payload(runs);
      if (!session_->OnFrame(step.frame().header(), pieces).ok()) NewSession();
      return;
    }
    case Step::kFollower:
      return OnFollowerMessage(step.follower());
    case Step::kDecision:
      return OnDecision(step.decision());
    case Step::kSeconds:
      clock_.Advance(std::chrono::seconds(std::clamp(step.seconds(), 0, kMaxSeconds)));
      return;
    case Step::WHAT_NOT_SET:
      return;
  }
}

bool ServerPlayer::IsTooLarge(const v1::ReplicationOrigin& origin) {
  return TooLarge(origin);
}

void ServerPlayer::Create(const v1::CreateRequest& request) {
  if (!TooLarge(request)) Call(&ps::Server::Create, request);
}

// As ps/rpc/follow.cc does.
void ServerPlayer::OnFollowerMessage(const v1::FollowerMessage& message) {
  if (message.has_subscribe()) {
    auto job = server_.JobToFollow(message.subscribe().run_id(), message.subscribe().generation());
    if (!job.ok() || (*job)->job().servers_size() < 2) return;
    followed_ = *std::move(job);
    log_ = std::make_shared<Log>();
    (void)followed_->sequencer()->Subscribe(1, message.subscribe().next_index(), log_);
  } else if (followed_ == nullptr) {
    return;
  } else if (message.has_staged()) {
    const auto gradient = ps::FromProto(message.staged());
    if (gradient.ok()) followed_->sequencer()->OnStaged(1, *gradient);
  } else if (message.has_sums()) {
    auto sums = ps::FromProto(message.sums());
    if (sums.ok()) followed_->sequencer()->OnSums(1, *std::move(sums));
  } else if (message.has_waiting()) {
    followed_->sequencer()->OnWaiting(1, message.waiting());
  } else {
    followed_->sequencer()->OnExecuted(1, message.executed());
  }
}

void ServerPlayer::OnDecision(const v1::Decision& decision) {
  if (follower_shard_ == nullptr || !ps::Follow(decision, *follower_shard_).ok()) return;
  follower_shard_->Flush();
}

}  // namespace cairn::fuzz
