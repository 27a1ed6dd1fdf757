#include "tests/support/in_process_follow.h"

#include <chrono>
#include <utility>
#include <variant>

#include "common/system/thread.h"
#include "ps/log/follow_proto.h"
#include "ps/rpc/received_decision.h"

namespace cairn::test {

// One subscription, until it breaks. The sequencer writes the log into it.
class FollowStream final : public ps::LogSink {
 public:
  struct Executed {
    int64_t index;
  };
  struct Waiting {
    int64_t index;
  };

  void Append(const ps::LogEntry& entry) override { log.Push(ps::ToProto(entry)); }
  void Flush() override {}
  void End(const absl::Status&) override { Close(); }
  void Close() {
    log.Close();
    reports.Close();
  }

  Pipe<v1::Decision> log;
  using Report = std::variant<ps::Gradient, v1::Sums, Executed, Waiting>;
  Pipe<Report> reports;
};

void FollowBreaker::Break() {
  std::shared_ptr<FollowStream> stream;
  {
    MutexLock lock(mutex_);
    stream = stream_.lock();
  }
  if (stream != nullptr) stream->Close();
}

class FollowLink final : public ps::SequencerPort {
 public:
  FollowLink(std::vector<const ServerSlot*> leaders, int index, const v1::Job& job,
             std::shared_ptr<ps::Shard> shard, int64_t epoch, DelayOptions delay, FollowBreaker& breaker)
      : leaders_(std::move(leaders)),
        index_(index),
        epoch_(epoch),
        run_id_(job.run_id()),
        generation_(job.generation()),
        shard_(std::move(shard)),
        delay_(delay),
        breaker_(breaker) {
    thread_ = Thread("follow", [this] { Run(); });
  }
  ~FollowLink() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      if (stream_ != nullptr) stream_->Close();
      changed_.NotifyAll();
    }
    thread_.Join();
  }

  void ReportStaged(const ps::Gradient& gradient) override { Report(gradient); }
  void ReportSums(ps::Sums sums) override { Report(ps::ToProto(sums)); }
  void ReportExecuted(int64_t index) override { Report(FollowStream::Executed{index}); }
  void ReportWaiting(int64_t index) override { Report(FollowStream::Waiting{index}); }

 private:
  void Report(FollowStream::Report what) {
    MutexLock lock(mutex_);
    if (stream_ != nullptr)
      stream_->reports.Push(std::move(what));  // else it is sent again after the next subscription
  }

  void Run() {
    for (uint64_t attempt = 0;; ++attempt) {
      const std::shared_ptr<ps::Server> server = leaders_[attempt % leaders_.size()]->Get();
      if (server != nullptr) {
        if (auto job = server->JobToFollow(run_id_, generation_); job.ok()) Follow(**job, attempt);
      }
      MutexLock lock(mutex_);
      if (!stopping_)
        changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(2));
      if (stopping_) return;
    }
  }

  void Follow(ps::ActiveJob& job, uint64_t attempt) {
    ps::Sequencer& sequencer = *job.sequencer();
    const auto stream = std::make_shared<FollowStream>();
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      stream_ = stream;
    }
    {
      MutexLock lock(breaker_.mutex_);
      breaker_.stream_ = stream;
    }
    Thread reports("follow-reports", [&] {
      Delay delay(delay_.seed, 2 * attempt, delay_.longest);
      while (auto what = stream->reports.Pop()) {
        delay.Wait();
        if (const auto* gradient = std::get_if<ps::Gradient>(&*what)) {
          sequencer.OnStaged(index_, *gradient);
        } else if (const auto* sums = std::get_if<v1::Sums>(&*what)) {
          if (breaker_.lose_sums_) {
            ++breaker_.lost_sums_;
          } else {
            sequencer.OnSums(index_, ps::FromProto(*sums).value());
          }
        } else if (const auto* waiting = std::get_if<FollowStream::Waiting>(&*what)) {
          sequencer.OnWaiting(index_, waiting->index);
        } else {
          sequencer.OnExecuted(index_, std::get<FollowStream::Executed>(*what).index);
        }
      }
    });
    if (sequencer.Subscribe(index_, shard_->next_index(), stream, epoch_).ok()) {
      for (const ps::Gradient& gradient : shard_->StagedGradients()) ReportStaged(gradient);
      if (auto sums = shard_->UnansweredSums()) ReportSums(*std::move(sums));
      Delay delay(delay_.seed, 2 * attempt + 1, delay_.longest);
      while (auto decision = stream->log.Pop()) {
        delay.Wait();
        if (!ps::Follow(*decision, *shard_).ok()) break;
        shard_->Flush();
      }
    }
    stream->Close();
    reports.Join();
    sequencer.Unsubscribe(index_, stream.get());
    MutexLock lock(mutex_);
    stream_ = nullptr;
  }

  const std::vector<const ServerSlot*> leaders_;
  const int index_;
  const int64_t epoch_;
  const std::string run_id_;
  const int64_t generation_;
  const std::shared_ptr<ps::Shard> shard_;
  const DelayOptions delay_;
  FollowBreaker& breaker_;

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<FollowStream> stream_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

std::unique_ptr<ps::SequencerPort> FollowInProcess(std::vector<const ServerSlot*> leaders, int index,
                                                   const v1::Job& job, std::shared_ptr<ps::Shard> shard,
                                                   int64_t epoch, DelayOptions delay,
                                                   FollowBreaker& breaker) {
  return std::make_unique<FollowLink>(std::move(leaders), index, job, std::move(shard), epoch, delay,
                                      breaker);
}

}  // namespace cairn::test
