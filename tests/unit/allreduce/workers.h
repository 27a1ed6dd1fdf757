// Workers in one process, each with its own thread, connected by links within the process or by this host's
// sockets.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/core/mutex.h"
#include "common/core/status.h"
#include "common/system/thread.h"
#include "gtest/gtest.h"
#include "tests/support/data_sockets.h"
#include "worker/allreduce/ring_exchange.h"
#include "worker/peer/data_link.h"

namespace cairn::allreduce {

inline constexpr int64_t kSize = 10;

class Pipe;

// The address of a worker, while it exists.
struct Slot {
  Mutex mutex;
  RingHost* host = nullptr;
  std::set<Pipe*> pipes;                // to this worker
  std::atomic<bool> owner_goes{false};  // while the next payload to it is being read
};

class GoneOwner final : public net::BorrowedBytes {
 public:
  explicit GoneOwner(size_t size) : size_(size) {}
  size_t size() const override { return size_; }
  absl::Status Scatter(size_t, absl::Span<const absl::Span<char>>) const override {
    return absl::UnavailableError("it has gone");
  }

 private:
  const size_t size_;
};

// Carries frames in one direction, and Bye in the other, on a thread of its own.
class Pipe {
 public:
  // The caller holds the slot's lock.
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
  // Calls neither end any more.
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
      const GoneOwner gone(run.size());
      const bool lost = !run.empty() && slot_.owner_goes.exchange(false);
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

// The device of a worker that can sum with others'; null: the worker has none.
using DeviceOf = std::function<kernels::PeerDevice*(int worker)>;

class Workers {
 public:
  explicit Workers(int count, int64_t final_version, const std::string& optimizer = "SGD",
                   std::map<std::string, double> hyperparameters = {{"learning_rate", 0.5},
                                                                    {"momentum", 0.5}},
                   std::optional<net::Transport> transport = {}, DeviceOf device = {},
                   std::vector<net::VariableInfo> variables = {{"w", Shape({7}), 0}, {"b", Shape({3}), 7}})
      : transport_(transport),
        device_(std::move(device)),
        variables_(std::move(variables)),
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
    net::DataListeners listeners;
    if (transport_.has_value()) {
      listeners = test::Listeners();
      right = MakeDataPeer(std::move(right), "127.0.0.1:1", *transport_, [this](const std::string& how) {
        MutexLock lock(said_mutex_);
        said_.insert(how);
      });
    }
    auto created = RingExchange::Create({.worker = worker,
                                         .task = absl::StrCat("worker/", worker),
                                         .names = names,
                                         .incarnation = ++incarnations_,
                                         .data_endpoint = listeners.address(),
                                         .job = job,
                                         .variables = variables_,
                                         .device = device_ ? device_(worker) : nullptr,
                                         .links_notice = Duration::zero()},
                                        std::move(right));
    ASSERT_TRUE(created.ok()) << created.status();
    exchanges_[static_cast<size_t>(worker)] = *std::move(created);
    if (listeners.any()) {
      services_[static_cast<size_t>(worker)] =
          std::make_unique<DataRingService>((*this)[worker].host(), std::move(listeners), incarnations_);
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

  // The next sender to `worker` ends while its payload is being read.
  void LoseSenderTo(int worker) { slots_[static_cast<size_t>(worker)].owner_goes = true; }

  // The status with which links report that they ended.
  std::set<std::string> said() {
    MutexLock lock(said_mutex_);
    return said_;
  }

  // Calls body(worker) for each worker, in a thread of its own.
  void Each(const std::function<void(int)>& body) {
    std::vector<Thread> threads;
    for (int worker = 0; worker < count(); ++worker)
      threads.emplace_back("worker", [&body, worker] { body(worker); });
  }

 private:
  const std::optional<net::Transport> transport_;  // none: pipes
  const DeviceOf device_;
  const std::vector<net::VariableInfo> variables_;
  Mutex said_mutex_;
  std::set<std::string> said_ ABSL_GUARDED_BY(said_mutex_);
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<RingExchange>> graveyard_;  // outlive threads that still call them
  std::vector<std::unique_ptr<RingExchange>> exchanges_;
  std::vector<std::unique_ptr<DataRingService>> services_;
  v1::Job job_;
  uint64_t incarnations_ = 0;
};

inline std::vector<float> First() {
  std::vector<float> values;
  for (int i = 0; i < kSize; ++i) values.push_back(static_cast<float>(8 * i));
  return values;
}

// The gradient of a worker at `parameters`; exact for a few steps.
inline std::vector<float> GradientAt(absl::Span<const float> parameters, int worker) {
  std::vector<float> gradient;
  for (const float value : parameters) gradient.push_back(value * 0.25f + static_cast<float>(worker));
  return gradient;
}

inline absl::Status Step(RingExchange& exchange, int worker, int64_t examples = 4) {
  RingSteps& steps = exchange.steps();
  std::vector<float> gradient = GradientAt(steps.parameters(), worker), mean(gradient.size());
  const bool on_device = steps.adds_up_on_device();
  if (on_device && examples == 0) std::fill(gradient.begin(), gradient.end(), 0.0f);
  client::Step& step = on_device
                           ? steps.BeginStepOnDevice(absl::MakeSpan(gradient), absl::MakeSpan(mean), examples)
                           : steps.BeginStep(gradient, examples, 0);
  step.Announce(1);
  step.Announce(0);
  return step.Finish().status();
}

// Joins and trains to the end, and joins again whenever a worker is lost.
inline absl::Status Train(RingExchange& exchange, int worker) {
  absl::Status status = exchange.Join();
  while (!exchange.steps().finished()) {
    if (absl::IsAborted(status)) {
      status = exchange.Join();
    } else if (!status.ok()) {
      return status;
    } else {
      status = Step(exchange, worker);
    }
  }
  exchange.Leave(v1::LEAVE_REASON_FINISHED, "");
  return worker == 0 ? exchange.control().Finish() : exchange.AwaitEnd();
}

inline void InitialiseChief(Workers& workers, std::vector<float> values = First()) {
  v1::Job job = workers.job();
  job.set_run_id("run");
  client::FirstValues first(std::move(values));
  ASSERT_TRUE(workers[0].Initialise(job, first).ok());
}

// The values that momentum SGD computes from the means.
inline std::vector<float> Expected(int workers, int steps) {
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

}  // namespace cairn::allreduce
