// Workers of one process, each with its own thread, over links that stay in the process, or over this host's
// sockets.
#include <atomic>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/core/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/direct_sockets.h"
#include "worker/allreduce/direct_link.h"
#include "worker/allreduce/ring_exchange.h"

namespace cairn::allreduce {
namespace {

using testing::HasSubstr;

constexpr int64_t kSize = 10;

class Pipe;

// Where a worker is reached, while there is one.
struct Slot {
  Mutex mutex;
  RingHost* host = nullptr;
  std::set<Pipe*> pipes;                 // to it
  std::atomic<bool> lender_goes{false};  // while the next payload to it is read
};

class GoneLender final : public net::LentBytes {
 public:
  explicit GoneLender(size_t size) : size_(size) {}
  size_t size() const override { return size_; }
  absl::Status Read(size_t, absl::Span<char>) const override { return absl::UnavailableError("it has gone"); }

 private:
  const size_t size_;
};

// Frames one way, and Bye the other, by a thread of their own.
class Pipe {
 public:
  // With the slot's lock held.
  Pipe(Slot& slot, RingHandler& caller) : slot_(slot), caller_(caller) {
    slot_.pipes.insert(this);
    struct Back final : RingStream {
      explicit Back(Pipe* pipe_in) : pipe(pipe_in) {}
      void Send(const v1::RingHeader& header, net::FloatSpans, const std::shared_ptr<const void>&) override {
        MutexLock lock(mutex);
        if (pipe != nullptr) (void)pipe->caller_.OnFrame(header, {});
      }
      void End(const absl::Status& why) override {
        MutexLock lock(mutex);
        if (pipe != nullptr) pipe->End(why);
      }
      Mutex mutex;
      Pipe* pipe;
    };
    auto back = std::make_shared<Back>(this);
    detach_ = [back] {
      MutexLock lock(back->mutex);
      back->pipe = nullptr;
    };
    called_ = slot_.host->OnStream(back);
    thread_ = Thread("pipe", [this] { Run(); });
  }
  ~Pipe() {
    Stop();
    MutexLock lock(slot_.mutex);
    slot_.pipes.erase(this);
  }
  // Neither end is called any more.
  void Stop() {
    End(absl::UnavailableError("closed"));
    MutexLock lock(join_mutex_);
    thread_.Join();
    detach_();
  }

  void Send(const v1::RingHeader& header, net::FloatSpans payload) {
    Frame frame = {.header = header, .payload = {}};
    for (const auto& run : payload) frame.payload.insert(frame.payload.end(), run.begin(), run.end());
    MutexLock lock(mutex_);
    frames_.push_back(std::move(frame));
    changed_.NotifyAll();
  }
  void End(const absl::Status& why) {
    MutexLock lock(mutex_);
    if (why_.ok()) why_ = why;
    changed_.NotifyAll();
  }

 private:
  struct Frame {
    v1::RingHeader header;
    std::vector<float> payload;
  };

  void Run() {
    absl::Status why;
    for (;;) {
      Frame frame;
      {
        MutexLock lock(mutex_);
        while (frames_.empty() && why_.ok()) changed_.Wait(mutex_);
        why = why_;
        if (!why.ok()) break;
        frame = std::move(frames_.front());
        frames_.pop_front();
      }
      const absl::Span<const char> run(reinterpret_cast<const char*>(frame.payload.data()),
                                       frame.payload.size() * sizeof(float));
      const GoneLender gone(run.size());
      const bool lost = !run.empty() && slot_.lender_goes.exchange(false);
      why = called_->OnFrame(frame.header, run.empty() ? net::Payload()
                                           : lost      ? net::Payload(gone)
                                                       : net::Payload(&run, 1));
      if (!why.ok()) break;
    }
    called_->OnClosed(absl::UnavailableError("the pipe is broken"));
    caller_.OnClosed(why);
  }

  Slot& slot_;
  RingHandler& caller_;
  std::shared_ptr<RingHandler> called_;
  std::function<void()> detach_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Frame> frames_ ABSL_GUARDED_BY(mutex_);
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  Mutex join_mutex_;
  Thread thread_;
};

class InProcessPeer final : public RingPeer {
 public:
  explicit InProcessPeer(Slot& slot) : slot_(slot) {}
  absl::Status Greet(const v1::GreetRequest& request, v1::GreetResponse* response,
                     std::chrono::milliseconds) override {
    MutexLock lock(slot_.mutex);
    return slot_.host == nullptr ? absl::UnavailableError("connection refused")
                                 : slot_.host->OnGreet(request, response);
  }
  std::unique_ptr<RingStream> Open(const v1::GreetResponse&, RingHandler& handler) override {
    struct Stream final : RingStream {
      void Send(const v1::RingHeader& header, net::FloatSpans payload,
                const std::shared_ptr<const void>&) override {
        if (pipe != nullptr) pipe->Send(header, payload);
      }
      void End(const absl::Status& why) override {
        if (pipe != nullptr) pipe->End(why);
      }
      std::unique_ptr<Pipe> pipe;
    };
    auto stream = std::make_unique<Stream>();
    MutexLock lock(slot_.mutex);
    if (slot_.host != nullptr) {
      stream->pipe = std::make_unique<Pipe>(slot_, handler);
    } else {
      handler.OnClosed(absl::UnavailableError("connection refused"));
    }
    return stream;
  }

 private:
  Slot& slot_;
};

class Workers {
 public:
  explicit Workers(int count, int64_t final_version, const std::string& optimizer = "SGD",
                   std::map<std::string, double> hyperparameters = {{"learning_rate", 0.5},
                                                                    {"momentum", 0.5}},
                   std::optional<net::Transport> transport = {})
      : transport_(transport),
        slots_(static_cast<size_t>(count)),
        exchanges_(static_cast<size_t>(count)),
        services_(static_cast<size_t>(count)) {
    job_.set_mode(v1::MODE_SYNC);
    job_.set_final_version(final_version);
    job_.set_lease_seconds(600);
    job_.mutable_optimizer()->set_name(optimizer);
    for (const auto& [name, value] : hyperparameters)
      (*job_.mutable_optimizer()->mutable_hyperparameters())[name] = value;
    for (int worker = 0; worker < count; ++worker) job_.add_workers(absl::StrCat("worker/", worker));
    for (int worker = 0; worker < count; ++worker) Start(worker, job_);
  }
  ~Workers() {
    for (int worker = 0; worker < count(); ++worker) Kill(worker);
  }

  int count() const { return static_cast<int>(slots_.size()); }
  RingExchange& operator[](int worker) { return *exchanges_[static_cast<size_t>(worker)]; }
  const v1::Job& job() const { return job_; }

  void Start(int worker, const v1::Job& job) {
    std::vector<std::string> names;
    for (int i = 0; i < count(); ++i) names.push_back(absl::StrCat("worker/", i, " at host", i, ":1"));
    std::unique_ptr<RingPeer> right;
    if (count() > 1)
      right = std::make_unique<InProcessPeer>(slots_[static_cast<size_t>(worker + 1) % slots_.size()]);
    net::DirectListeners listeners;
    if (transport_.has_value()) {
      listeners = test::Listeners();
      right = MakeDirectPeer(std::move(right), "127.0.0.1:1", *transport_, [this](const std::string& how) {
        MutexLock lock(said_mutex_);
        said_.insert(how);
      });
    }
    auto created = RingExchange::Create({.worker = worker,
                                         .task = absl::StrCat("worker/", worker),
                                         .names = names,
                                         .incarnation = ++incarnations_,
                                         .direct = listeners.address(),
                                         .job = job,
                                         .variables = {{"w", Shape({7}), 0}, {"b", Shape({3}), 7}}},
                                        std::move(right));
    ASSERT_TRUE(created.ok()) << created.status();
    exchanges_[static_cast<size_t>(worker)] = *std::move(created);
    if (listeners.any()) {
      services_[static_cast<size_t>(worker)] =
          std::make_unique<DirectRingService>((*this)[worker].host(), std::move(listeners), incarnations_);
    }
    Slot& slot = slots_[static_cast<size_t>(worker)];
    MutexLock lock(slot.mutex);
    slot.host = &(*this)[worker].host();
  }
  void Kill(int worker) {
    if (RingExchange* exchange = exchanges_[static_cast<size_t>(worker)].get(); exchange != nullptr) {
      exchange->Leave(v1::LEAVE_REASON_STOPPED, "killed");
    }
    Slot& slot = slots_[static_cast<size_t>(worker)];
    {
      MutexLock lock(slot.mutex);
      slot.host = nullptr;
      for (Pipe* pipe : slot.pipes) pipe->Stop();
    }
    services_[static_cast<size_t>(worker)].reset();
    graveyard_.push_back(std::move(exchanges_[static_cast<size_t>(worker)]));
  }

  // Whoever sends `worker` something goes while it is read.
  void LoseSenderTo(int worker) { slots_[static_cast<size_t>(worker)].lender_goes = true; }

  // How the links say that they go.
  std::set<std::string> said() {
    MutexLock lock(said_mutex_);
    return said_;
  }

  // body(worker), each in a thread of its own.
  void Each(const std::function<void(int)>& body) {
    std::vector<Thread> threads;
    for (int worker = 0; worker < count(); ++worker)
      threads.emplace_back("worker", [&body, worker] { body(worker); });
  }

 private:
  const std::optional<net::Transport> transport_;  // none: pipes
  Mutex said_mutex_;
  std::set<std::string> said_ ABSL_GUARDED_BY(said_mutex_);
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<RingExchange>> graveyard_;  // outlive what still calls them
  std::vector<std::unique_ptr<RingExchange>> exchanges_;
  std::vector<std::unique_ptr<DirectRingService>> services_;
  v1::Job job_;
  uint64_t incarnations_ = 0;
};

std::vector<float> First() {
  std::vector<float> values;
  for (int i = 0; i < kSize; ++i) values.push_back(static_cast<float>(8 * i));
  return values;
}

// A gradient of worker `worker` at `parameters`: exact for a few steps.
std::vector<float> GradientAt(absl::Span<const float> parameters, int worker) {
  std::vector<float> gradient;
  for (const float value : parameters) gradient.push_back(value * 0.25f + static_cast<float>(worker));
  return gradient;
}

absl::Status Step(RingExchange& exchange, int worker, int64_t examples = 4) {
  const std::vector<float> gradient = GradientAt(exchange.parameters(), worker);
  exchange.BeginStep(gradient, examples, 0);
  exchange.Announce(1);
  exchange.Announce(0);
  return exchange.FinishStep().status();
}

// Joins, and trains to the end, as often as somebody is lost.
absl::Status Train(RingExchange& exchange, int worker) {
  absl::Status status = exchange.Join();
  while (!exchange.finished()) {
    if (absl::IsAborted(status)) {
      status = exchange.Join();
    } else if (!status.ok()) {
      return status;
    } else {
      status = Step(exchange, worker);
    }
  }
  exchange.Leave(v1::LEAVE_REASON_FINISHED, "");
  return worker == 0 ? exchange.Finish() : exchange.AwaitEnd();
}

void InitialiseChief(Workers& workers) {
  v1::Job job = workers.job();
  job.set_run_id("run");
  client::FirstValues first(First());
  ASSERT_TRUE(workers[0].Initialise(job, first).ok());
}

// What momentum SGD makes of the means.
std::vector<float> Expected(int workers, int steps) {
  std::vector<float> values = First(), momentum(kSize);
  for (int step = 0; step < steps; ++step) {
    std::vector<float> mean(kSize);
    for (int worker = 0; worker < workers; ++worker) {
      const std::vector<float> gradient = GradientAt(values, worker);
      for (size_t i = 0; i < kSize; ++i) mean[i] += gradient[i];
    }
    for (size_t i = 0; i < kSize; ++i) {
      momentum[i] = 0.5f * momentum[i] - 0.5f * (mean[i] / static_cast<float>(workers));
      values[i] += momentum[i];
    }
  }
  return values;
}

TEST(RingExchange, AllWorkersEndWithTheOptimizersValues) {
  for (const int count : {1, 2, 4}) {
    SCOPED_TRACE(count);
    Workers workers(count, /*final_version=*/4);
    InitialiseChief(workers);
    workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
    for (int worker = 0; worker < count; ++worker) {
      EXPECT_THAT(workers[worker].parameters(), testing::Pointwise(testing::FloatEq(), Expected(count, 4)));
      EXPECT_EQ(workers[worker].version(), 4);
      EXPECT_EQ(workers[worker].ServerCounters()->examples(), 4 * 4 * count);
    }
  }
}

TEST(RingExchange, OverSocketsOfTheirOwnTheValuesAreTheSame) {
  for (const auto transport : {net::Transport::kShm, net::Transport::kUnix, net::Transport::kTcp}) {
    SCOPED_TRACE(net::InWords(transport));
    Workers workers(3, /*final_version=*/4, "SGD", {{"learning_rate", 0.5}, {"momentum", 0.5}}, transport);
    InitialiseChief(workers);
    workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
    EXPECT_THAT(workers.said(), testing::ElementsAre(net::InWords(transport)));
    for (int worker = 0; worker < 3; ++worker) {
      EXPECT_THAT(workers[worker].parameters(), testing::Pointwise(testing::FloatEq(), Expected(3, 4)));
    }
  }
}

// Three steps of all, then `lost` is another process, without values; then all train to the end, which is
// step 6.
void LoseAndTrain(Workers& workers, int lost) {
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(Step(workers[worker], worker).ok());
  });
  workers.Each([&](int worker) {
    if (worker == lost) {
      workers.Kill(lost);
      workers.Start(lost, workers.job());
    } else {
      const absl::Status status = Step(workers[worker], worker);
      EXPECT_TRUE(absl::IsAborted(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("worker/", lost, " at host", lost, ":1")));
    }
    EXPECT_TRUE(Train(workers[worker], worker).ok());
  });
  for (int worker = 0; worker < workers.count(); ++worker) {
    EXPECT_THAT(workers[worker].parameters(),
                testing::Pointwise(testing::FloatEq(), Expected(workers.count(), 6)));
  }
}

TEST(RingExchange, OverThisHostsSocketsOneThatIsLostComesBack) {
  Workers workers(3, /*final_version=*/6, "SGD", {{"learning_rate", 0.5}, {"momentum", 0.5}},
                  net::Transport::kShm);
  InitialiseChief(workers);
  LoseAndTrain(workers, 1);
}

TEST(RingExchange, NormsAreOfTheWholeMean) {
  Workers workers(3, 3, "SGD", {{"learning_rate", 1}, {"global_clipnorm", 0.5}});
  InitialiseChief(workers);
  workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
  double moved = 0;
  for (size_t i = 0; i < kSize; ++i) {
    const double change = workers[0].parameters()[i] - First()[i];
    moved += change * change;
    for (int worker = 1; worker < 3; ++worker)
      EXPECT_EQ(workers[worker].parameters()[i], workers[0].parameters()[i]);
  }
  EXPECT_NEAR(std::sqrt(moved), 1.5, 0.05);  // three steps of length 0.5, nearly one way
}

TEST(RingExchange, OneThatIsLostGetsTheOthersValuesAndNothingIsComputedTwice) {
  Workers workers(3, /*final_version=*/6);
  InitialiseChief(workers);
  LoseAndTrain(workers, 1);
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_EQ(workers[worker].ServerCounters()->examples(), 6 * 3 * 4);
}

TEST(RingExchange, ASenderThatGoesWhileWhatItLentIsReadIsLost) {
  Workers workers(3, /*final_version=*/6);
  InitialiseChief(workers);
  workers.LoseSenderTo(1);
  workers.Each([&](int worker) { EXPECT_EQ(Train(workers[worker], worker), absl::OkStatus()); });
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_THAT(workers[worker].parameters(), testing::Pointwise(testing::FloatEq(), Expected(3, 6)));
}

TEST(RingExchange, ALostChiefGetsTheOthersValuesTooAndBeginsNothingAnew) {
  Workers workers(2, /*final_version=*/4);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(Step(workers[worker], worker).ok());
  });
  workers.Kill(0);
  workers.Start(0, workers.job());
  InitialiseChief(workers);
  workers.Each([&](int worker) { EXPECT_TRUE(Train(workers[worker], worker).ok()); });
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_THAT(workers[worker].parameters(), testing::Pointwise(testing::FloatEq(), Expected(2, 4)));
  }
}

TEST(RingExchange, TheChiefEndsTrainingForAll) {
  Workers workers(3, /*final_version=*/100);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    ASSERT_TRUE(Step(workers[worker], worker).ok());
    if (worker == 0) {
      EXPECT_TRUE(workers[0].EndTraining().ok());
    } else {
      EXPECT_TRUE(Step(workers[worker], worker).ok());
    }
    EXPECT_TRUE(workers[worker].finished());
    EXPECT_TRUE((worker == 0 ? workers[worker].Finish() : workers[worker].AwaitEnd()).ok());
  });
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(workers[worker].version(), 1);
}

TEST(RingExchange, OneThatFailedEndsAll) {
  Workers workers(3, /*final_version=*/100);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    if (worker == 2) {
      ASSERT_TRUE(workers[2].Join().ok());
      workers[2].Leave(v1::LEAVE_REASON_FAILED, "the loss is nan");
      return;
    }
    const absl::Status status = Train(workers[worker], worker);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kFailure) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker/2 at host2:1 failed: the loss is nan"));
    workers[worker].Leave(v1::LEAVE_REASON_FAILED, "");
  });
}

TEST(RingExchange, AMeanThatIsNotFiniteIsNamedOnAll) {
  Workers workers(2, /*final_version=*/100);
  InitialiseChief(workers);
  workers.Each([&](int worker) {
    ASSERT_TRUE(workers[worker].Join().ok());
    std::vector<float> gradient(kSize, worker == 1 ? INFINITY : 0.0f);
    workers[worker].BeginStep(gradient, 1, 0);
    workers[worker].Announce(0), workers[worker].Announce(1);
    const absl::Status status = workers[worker].FinishStep().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the gradient of 'w' is not finite in the update to version 1"));
  });
}

TEST(RingExchange, AnotherJobIsRefusedWithWhatDiffers) {
  Workers workers(2, /*final_version=*/4);
  v1::Job other = workers.job();
  other.set_batch_size(7);
  workers.Kill(1);
  workers.Start(1, other);
  InitialiseChief(workers);
  const absl::Status status = workers[0].Join();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker/1 at host1:1: it trains another job than the "
                                                       "caller: batch size: 7 here, 0 with the caller"));
}

TEST(RingExchange, AStateThatMakesNoSenseIsRefused) {
  struct NoStream final : RingStream {
    void Send(const v1::RingHeader&, net::FloatSpans, const std::shared_ptr<const void>&) override {}
    void End(const absl::Status&) override {}
  };
  struct Case {
    int worker;
    int64_t version;
    float learning_rate;
    std::string said;
  };
  const Case cases[] = {{2, 0, 1, "a state of worker 2 of 2"},
                        {1, 0, 1, "a state of worker 1 of 2"},
                        {0, -1, 1, "at version -1 of 4"},
                        {0, std::numeric_limits<int64_t>::max(), 1, "at version 9223372036854775807 of 4"},
                        {0, 4, NAN, "a learning rate of nan"},
                        {0, 4, -1, "a learning rate of -1"}};
  for (const Case& row : cases) {
    SCOPED_TRACE(row.said);
    Workers workers(2, /*final_version=*/4);
    const std::shared_ptr<RingHandler> handler = workers[1].host().OnStream(std::make_shared<NoStream>());
    v1::RingHeader header;
    header.mutable_hello()->set_worker(0);
    header.mutable_hello()->set_formation(1);
    ASSERT_TRUE(handler->OnFrame(header, {}).ok());
    header.mutable_state()->set_worker(row.worker);
    header.mutable_state()->mutable_progress()->set_version(row.version);
    header.mutable_state()->mutable_progress()->set_learning_rate(row.learning_rate);
    const absl::Status status = handler->OnFrame(header, {});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.said));
    handler->OnClosed(status);
  }
}

TEST(RingExchange, AnUnknownOptimizerIsRefusedAtOnce) {
  v1::Job job;
  job.mutable_optimizer()->set_name("nonsense");
  const auto created =
      RingExchange::Create({.task = "worker/0", .names = {"worker/0"}, .job = job, .variables = {}}, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(created.status())) << created.status();
}

TEST(RingExchange, ASnapshotIsOfTheVersionThatItWasTakenAt) {
  Workers workers(1, /*final_version=*/4);
  InitialiseChief(workers);
  ASSERT_TRUE(workers[0].Join().ok());
  ASSERT_TRUE(Step(workers[0], 0).ok());
  const auto taken = workers[0].TakeSnapshot();
  ASSERT_TRUE(taken.ok());
  const std::vector<float> values(workers[0].parameters().begin(), workers[0].parameters().end());
  ASSERT_TRUE(Step(workers[0], 0).ok());
  const auto snapshot = taken->read(std::chrono::seconds(1));
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->progress.version(), 1);
  EXPECT_EQ(snapshot->job.run_id(), "run");
  EXPECT_THAT(snapshot->slots, testing::ElementsAre("momentum"));
  ASSERT_EQ(snapshot->servers.size(), 1u);
  EXPECT_THAT(snapshot->servers[0].state.span().subspan(0, kSize), testing::ElementsAreArray(values));
}

}  // namespace
}  // namespace cairn::allreduce
