// A backup that takes the inputs of a sequencer has the same state, whatever the inputs are.
#include "ps/log/sequencer_state.h"

#include <deque>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "ps/log/sequencer.h"

namespace cairn::ps {
namespace {

using testing::HasSubstr;

// Keeps the inputs as messages.
class RecordingInputs final : public InputSink {
 public:
  void Flush() override {}
  void Append(const SequencerInput& input) override { inputs.push_back(ToProto(input)); }
  void WhenReceived(Callback then) override { then(absl::OkStatus()); }
  std::deque<v1::SequencerInput> inputs;
};

class QuietSink final : public LogSink {
 public:
  void Append(const LogEntry&) override {}
  void Flush() override {}
  void End(const absl::Status&) override {}
};

struct Case {
  PolicyConfig policy;
  std::vector<optim::Norms> norms{};
};

PolicyConfig WithData(PolicyConfig config, bool elsewhere) {
  config.data =
      DynamicAssignment{.queue = {.num_examples = 40, .batch_size = 3, .epochs = 2}, .elsewhere = elsewhere};
  return config;
}

constexpr int kWorkers = 3, kServers = 2;
const PolicyConfig kSync = {.mode = "sync", .most_workers = kWorkers, .expected_workers = 2};
const PolicyConfig kAsync = {.mode = "async", .most_workers = kWorkers};
const PolicyConfig kSsp = {
    .mode = "ssp", .most_workers = kWorkers, .expected_workers = 2, .max_staleness = 1};

class ReplicatedInputs : public testing::TestWithParam<Case> {
 protected:
  ReplicatedInputs() : primary_(Make()) {
    primary_->ReplicateTo(&sink_, /*own_server=*/0);
    EXPECT_EQ(primary_->Subscribe(0, 1, std::make_shared<QuietSink>()), absl::OkStatus());
  }
  std::unique_ptr<Sequencer> Make() const {
    return std::make_unique<Sequencer>(MakePolicy(GetParam().policy).value(), kServers, GetParam().norms,
                                       Progress(), kWorkers);
  }
  static v1::SequencerState StateOf(Sequencer& sequencer) {
    v1::SequencerState saved;
    sequencer.Capture([&saved](const SequencerState& state) { saved = state.Save(); });
    return saved;
  }
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  SequencerInput DrawPush(int worker) {
    Gradient gradient = {.key = {worker, 1 + random_() % 3, 1 + steps_[worker] / 2},
                         .base_version = std::max<int64_t>(0, primary_->version() - Draw(2)),
                         .examples = 3};
    if (const auto work = primary_->WorkOf(worker); work.has_value() && !work->work_items.empty()) {
      gradient.examples = work->work_items[0].count;
      gradient.position = work->work_items[0].epoch * 40 + work->work_items[0].first;
    }
    if (worker == kChief && Draw(2) == 0) {
      gradient.groups = {{.learning_rate = static_cast<float>(Draw(9))}, {.untouched = Draw(2) == 0}};
    }
    ++steps_[worker];
    return PushStaged{Draw(kServers), gradient};
  }
  SequencerInput DrawInput() {
    const int worker = Draw(kWorkers);
    switch (Draw(12)) {
      case 0:
        return WorkerJoined{worker, 1 + random_() % 3};
      case 1:
        return Draw(4) == 0 ? SequencerInput(WorkerLeft{worker, 1 + random_() % 3}) : DrawPush(worker);
      case 2:
        return MarkerPlaced{{.token = absl::StrCat(random_()), .snapshot = Draw(2) == 1}};
      case 3:
        return ConfigChanged{1 + random_() % 3, Draw(9), {.learning_rate = 0.5f, .end = Draw(50) == 0}};
      case 4:
        return EntriesExecuted{Draw(kServers), Draw(99)};
      case 5:
      case 6:
        if (const int64_t last = StateOf(*primary_).next_index() - 1; last > 0) {
          return SumsReported{Draw(kServers), {.index = last, .slices = {{"a", 0, {{.gradient = 2}}}}}};
        }
        [[fallthrough]];
      default:
        return DrawPush(worker);
    }
  }

  RecordingInputs sink_;
  const std::unique_ptr<Sequencer> primary_;
  std::mt19937_64 random_{7};
  std::map<int, int64_t> steps_;
};
INSTANTIATE_TEST_SUITE_P(Of, ReplicatedInputs,
                         testing::Values(Case{kSync},
                                         Case{kSync, {optim::Norms::kGradient, optim::Norms::kLayer}},
                                         Case{kAsync}, Case{kAsync, {optim::Norms::kGradient}}, Case{kSsp},
                                         Case{WithData(kSync, false)}, Case{WithData(kAsync, true)},
                                         Case{WithData(kSsp, false)}));

TEST_P(ReplicatedInputs, MakeABackupWithTheSameState) {
  std::unique_ptr<Sequencer> backup = Make();
  for (int64_t i = 0; i < 3000; ++i) {
    primary_->Step(DrawInput()).IgnoreError();  // refused inputs have no effect
    for (; !sink_.inputs.empty(); sink_.inputs.pop_front()) {
      const absl::StatusOr<SequencerInput> input = FromProto(sink_.inputs.front());
      ASSERT_EQ(input.status(), absl::OkStatus());
      ASSERT_EQ(backup->Step(*input), absl::OkStatus()) << sink_.inputs.front().DebugString();
    }
    if (i % 50 != 0) continue;
    const v1::SequencerState state = StateOf(*primary_);
    ASSERT_TRUE(google::protobuf::util::MessageDifferencer::Equals(StateOf(*backup), state)) << i;
    if (i % 500 != 0) continue;
    backup = Make();  // a new backup starts from the state
    ASSERT_EQ(backup->Load(state), absl::OkStatus());
  }
  EXPECT_GT(primary_->version(), 0);
}

// An input that is refused, and therefore not replicated.
class RefusedInput : public testing::Test {
 protected:
  RefusedInput() { sequencer_.ReplicateTo(&sink_, /*own_server=*/0); }
  absl::Status Refused(SequencerInput input) {
    const absl::Status status = sequencer_.Step(std::move(input));
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(sink_.inputs.empty());
    return status;
  }

  RecordingInputs sink_;
  Sequencer sequencer_{MakePolicy(kSync).value(), kServers, {}, Progress(), kWorkers};
};

TEST_F(RefusedInput, NamesAServerOrWorkerThatTheJobLacks) {
  EXPECT_THAT(std::string(Refused(EntriesExecuted{kServers, 1}).message()),
              HasSubstr("ps/2, but the number of servers is 2"));
  EXPECT_THAT(std::string(Refused(WorkerJoined{kWorkers, 1}).message()),
              HasSubstr("worker 3, but the number of workers is 3"));
  EXPECT_EQ(Refused(PushStaged{-1, {}}).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RefusedInput, ComesFromAnotherProcessThanTheChief) {
  EXPECT_EQ(Refused(ConfigChanged{1, 1, {}}).code(), absl::StatusCode::kAborted);
}

TEST_F(RefusedInput, FindsTheLogFull) {
  for (size_t i = 0; i < Sequencer::kMaxUnexecuted; ++i) {
    ASSERT_EQ(sequencer_.Step(MarkerPlaced{{.token = "m"}}), absl::OkStatus());
  }
  sink_.inputs.clear();
  EXPECT_EQ(Refused(MarkerPlaced{{.token = "m"}}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Refused(PushStaged{0, {.key = {0, 1, 1}}}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(SequencerInputs, AReportBeyondWhatTheServerWasSentIsReplicatedUpToThere) {
  RecordingInputs sink;
  Sequencer sequencer(MakePolicy(kSync).value(), kServers);
  sequencer.ReplicateTo(&sink, /*own_server=*/0);
  ASSERT_EQ(sequencer.Subscribe(1, 1, std::make_shared<QuietSink>()), absl::OkStatus());
  ASSERT_EQ(sequencer.Step(MarkerPlaced{{.token = "m"}}), absl::OkStatus());
  sequencer.OnExecuted(1, 99);
  EXPECT_EQ(sink.inputs.back().executed().index(), 1);
}

}  // namespace
}  // namespace cairn::ps
