// The three sides of an exchange without servers: they record their calls, and fail those that a test scripts.
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/training/exchange.h"

namespace cairn::client {

// The calls of a test in order, and their results.
class Script {
 public:
  // The next call of this name fails with `failure`. Failures of one name are used in order.
  void Fail(const std::string& call, absl::Status failure) { failures_[call].push_back(std::move(failure)); }
  // Records the call and returns its result.
  absl::Status Call(const std::string& call) {
    absl::StrAppend(&calls_, calls_.empty() ? "" : " ", call);
    std::deque<absl::Status>& failures = failures_[call];
    if (failures.empty()) return absl::OkStatus();
    absl::Status failure = std::move(failures.front());
    failures.pop_front();
    return failure;
  }
  // The calls since the last call of this function: "ready join pull".
  std::string Calls() { return std::exchange(calls_, ""); }

 private:
  std::string calls_;
  std::map<std::string, std::deque<absl::Status>> failures_;
};

class ScriptedMembership final : public Membership {
 public:
  explicit ScriptedMembership(Script& script) : script_(script) {}

  StartingPoint start_at;
  bool reconnects = true;  // after ABORTED
  std::string run_id;      // of the job that was declared

  absl::Status Initialise(const v1::Job& job, StateSource&) override {
    run_id = job.run_id();
    return script_.Call("initialise");
  }
  absl::Status WaitReady(const v1::Job&) override { return script_.Call("ready"); }
  absl::Status Join() override { return script_.Call("join"); }
  StartingPoint start() const override { return start_at; }
  absl::Status Reconnect() override { return script_.Call("reconnect"); }
  bool CanReconnectAfter(const absl::Status& failure) const override {
    return reconnects && absl::IsAborted(failure);
  }
  void Interrupt(absl::Status reason) override {
    (void)script_.Call(absl::StrCat("interrupt:", reason.message()));
  }
  void Leave(v1::LeaveReason reason, const std::string& message) override {
    (void)script_.Call(
        absl::StrCat("leave:", v1::LeaveReason_Name(reason), message.empty() ? "" : ":", message));
  }
  absl::Status AwaitEnd() override { return script_.Call("await-end"); }

 private:
  Script& script_;
};

class ScriptedSteps final : public StepExchange, private Step {
 public:
  explicit ScriptedSteps(Script& script) : script_(script) {}

  int64_t at = 0;             // version()
  int64_t final_version = 0;  // 0: none
  v1::Work assigned;
  v1::Work next;  // AwaitWork() assigns it

  absl::Span<const float> parameters() const override { return {}; }
  std::array<absl::Span<const float>, 2> parameter_buffers() const override { return {}; }
  int64_t version() const override { return at; }
  bool finished() const override { return final_version > 0 && at >= final_version; }
  const v1::Work& work() const override { return assigned; }
  Step& BeginStep(absl::Span<const float>, int64_t, int64_t) override { return *this; }
  Step& BeginStepOnDevice(absl::Span<float>, absl::Span<float>, int64_t) override { return *this; }
  absl::Status AwaitWork() override {
    assigned = next;
    return script_.Call("await-work");
  }
  absl::Status Pull() override { return script_.Call("pull"); }

 private:
  void Announce(int) override {}
  absl::StatusOr<StepResult> Finish() override { return StepResult(); }

  Script& script_;
};

class ScriptedControl final : public JobControl {
 public:
  // Snapshots have the version of `steps`.
  ScriptedControl(Script& script, const StepExchange& steps) : script_(script), steps_(steps) {}

  absl::StatusOr<float> LearningRate() override { return 0.0f; }
  absl::Status SetLearningRate(float) override { return absl::OkStatus(); }
  absl::Status EndTraining() override { return script_.Call("end-training"); }
  absl::Status Write(absl::Span<const float>, const TableOpener&) override { return absl::OkStatus(); }
  absl::StatusOr<TakenSnapshot> TakeSnapshot(const StopCheck&) override {
    if (absl::Status failure = script_.Call("snapshot"); !failure.ok()) return failure;
    return TakenSnapshot{.version = steps_.version(), .read = nullptr};
  }
  absl::Status CheckSnapshotMayBeRetried(const absl::Status& failure) override {
    return absl::IsUnavailable(failure) ? absl::OkStatus() : failure;
  }
  absl::Status WaitForOthers(Duration) override { return script_.Call("others"); }
  absl::Status Finish() override { return script_.Call("finish"); }
  absl::StatusOr<v1::Counters> ServerCounters() override { return v1::Counters(); }
  absl::StatusOr<v1::DataPosition> UsedData() override { return v1::DataPosition(); }

 private:
  Script& script_;
  const StepExchange& steps_;
};

}  // namespace cairn::client
