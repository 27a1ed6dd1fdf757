#include "ps/sequencer.h"

#include <algorithm>
#include <utility>

namespace cairn::ps {
namespace {

// The last server first: ps/0's own shard executes in this thread, the others only send.
void FlushAll(absl::Span<const std::shared_ptr<LogSink>> sinks) {
  for (auto sink = sinks.rbegin(); sink != sinks.rend(); ++sink) (*sink)->Flush();
}

}  // namespace

Sequencer::Sequencer(std::unique_ptr<UpdatePolicy> policy, int num_servers)
    : policy_(std::move(policy)), servers_(static_cast<size_t>(num_servers)) {}

void Sequencer::Join(int worker, uint64_t incarnation) {
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    Worker& known = workers_[worker];
    if (incarnation <= known.incarnation) return;  // overtaken by a later life
    DropPartials(worker, Refuse::Reason::kOldIncarnation);
    known = {.incarnation = incarnation, .member = true, .last_step = 0};
    Decide(policy_->OnJoin(worker, incarnation));
    sinks = Sinks();
  }
  FlushAll(sinks);
}

void Sequencer::Leave(int worker, uint64_t incarnation) {
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    Worker& known = workers_[worker];
    if (incarnation < known.incarnation) return;
    known.member = false;
    DropPartials(worker, Refuse::Reason::kNotAMember);
    Decide(policy_->OnLeave(worker, incarnation));
    sinks = Sinks();
  }
  FlushAll(sinks);
}

void Sequencer::WriteMark(const std::string& token) {
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    Append(Mark{token});
    sinks = Sinks();
  }
  FlushAll(sinks);
}

bool Sequencer::Subscribe(int server, int64_t next_index, std::shared_ptr<LogSink> sink) {
  {
    MutexLock lock(mutex_);
    const int64_t first = log_.empty() ? next_index_ : log_.front().index;
    if (ended_ || next_index < first || next_index > next_index_) return false;
    for (const LogEntry& entry : log_) {
      if (entry.index >= next_index) sink->Append(entry);
    }
    servers_[static_cast<size_t>(server)].sink = sink;
  }
  sink->Flush();
  return true;
}

void Sequencer::Unsubscribe(int server, const LogSink* sink) {
  std::shared_ptr<LogSink> gone;  // released outside the lock
  MutexLock lock(mutex_);
  auto& subscribed = servers_[static_cast<size_t>(server)].sink;
  if (subscribed.get() == sink) gone = std::move(subscribed);
}

void Sequencer::End() {
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    sinks = Sinks();
    for (Server& server : servers_) server.sink = nullptr;
  }
  for (const auto& sink : sinks) sink->End();
}

void Sequencer::OnStaged(int server, const Gradient& gradient) {
  std::vector<std::shared_ptr<LogSink>> sinks;
  {
    MutexLock lock(mutex_);
    Worker& worker = workers_[gradient.key.worker];
    if (gradient.key.incarnation != worker.incarnation || !worker.member) {
      const bool old = gradient.key.incarnation < worker.incarnation;
      Append(Refuse{.key = gradient.key,
                    .reason = old ? Refuse::Reason::kOldIncarnation : Refuse::Reason::kNotAMember,
                    .staleness = 0});
    } else if (gradient.key.step <= worker.last_step) {
      return;  // repeated by a server that reconnected: its decision is in the log
    } else {
      Partial& partial = partials_[gradient.key];
      partial.gradient = gradient;
      partial.servers.insert(server);
      if (partial.servers.size() < servers_.size()) return;
      worker.last_step = gradient.key.step;
      partials_.erase(gradient.key);
      Decide(policy_->OnGradient(gradient));
    }
    sinks = Sinks();
  }
  FlushAll(sinks);
}

void Sequencer::OnExecuted(int server, int64_t index) {
  MutexLock lock(mutex_);
  int64_t& executed = servers_[static_cast<size_t>(server)].executed;
  executed = std::max(executed, index);
  int64_t all = executed;
  for (const Server& other : servers_) all = std::min(all, other.executed);
  while (!log_.empty() && log_.front().index <= all) log_.pop_front();
}

int64_t Sequencer::version() const {
  MutexLock lock(mutex_);
  return policy_->version();
}

UpdateCounters Sequencer::counters() const {
  MutexLock lock(mutex_);
  return policy_->counters();
}

std::vector<int> Sequencer::WaitingFor() const {
  MutexLock lock(mutex_);
  return policy_->WaitingFor();
}

std::vector<int> Sequencer::UnreachedServers() const {
  MutexLock lock(mutex_);
  std::vector<int> unreached;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i].sink == nullptr) unreached.push_back(static_cast<int>(i));
  }
  return unreached;
}

void Sequencer::Decide(std::vector<Decision> decisions) {
  for (Decision& decision : decisions) {
    Append(std::visit([](auto& what) { return std::variant<Apply, Refuse, Mark>(std::move(what)); }, decision));
  }
}

void Sequencer::Append(std::variant<Apply, Refuse, Mark> what) {
  log_.push_back({next_index_++, std::move(what)});
  for (Server& server : servers_) {
    if (server.sink != nullptr) server.sink->Append(log_.back());
  }
}

void Sequencer::DropPartials(int worker, Refuse::Reason reason) {
  for (auto it = partials_.begin(); it != partials_.end();) {
    if (it->first.worker == worker) {
      Append(Refuse{.key = it->first, .reason = reason, .staleness = 0});
      it = partials_.erase(it);
    } else {
      ++it;
    }
  }
}

std::vector<std::shared_ptr<LogSink>> Sequencer::Sinks() const {
  std::vector<std::shared_ptr<LogSink>> sinks;
  for (const Server& server : servers_) {
    if (server.sink != nullptr) sinks.push_back(server.sink);
  }
  return sinks;
}

}  // namespace cairn::ps
