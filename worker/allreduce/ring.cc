#include "worker/allreduce/ring.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "optim/apply.h"

namespace cairn::allreduce {
namespace {

// The largest number of examples for the weighted mean (optim/apply.h).
constexpr int64_t kMaxExamples = std::numeric_limits<uint32_t>::max();

}  // namespace

Ring::Ring(Options options, SendToRight send)
    : options_(std::move(options)),
      plan_(options_.plan),
      send_(std::move(send)),
      means_(options_.worker, plan_.workers, options_.version, send_),
      step_(options_.version) {
  for (Round& round : rounds_) {
    round.sums = std::make_shared<AlignedBuffer>(plan_.workers > 1 ? plan_.size : 0);
    round.frames = std::make_shared<const std::shared_ptr<AlignedBuffer>>(round.sums);
  }
  Reset(rounds_[static_cast<size_t>((step_ + 1) % 2)], step_ + 1);
  Reset(rounds_[static_cast<size_t>(step_ % 2)], step_);
}

void Ring::Reset(Round& round, int64_t step) const {
  round.step = step;
  round.begun = round.end = round.weighed = false;
  round.gradients = {};
  round.records.assign(static_cast<size_t>(plan_.workers), std::nullopt);
  round.num_records = 0;
  round.unannounced.assign(static_cast<size_t>(plan_.buckets()), 0);
  round.states.assign(plan_.chunks.size(), State::kNothing);
  round.left = static_cast<size_t>(std::count_if(plan_.chunks.begin(), plan_.chunks.end(),
                                                 [](const Chunk& chunk) { return chunk.size() > 0; }));
}

void Ring::Begin(int64_t examples, absl::Span<const float> gradients, bool end,
                 std::optional<float> learning_rate, bool done) {
  CAIRN_CHECK(examples == 0 || static_cast<int64_t>(gradients.size()) == plan_.size);
  v1::RingHeader header;
  v1::StepRecord& record = *header.mutable_record();
  record.set_worker(options_.worker);
  record.set_examples(examples);
  record.set_end(end);
  record.set_done(done);
  if (learning_rate.has_value()) record.set_learning_rate(*learning_rate);
  Round* begun;
  {
    MutexLock lock(mutex_);
    record.set_step(++step_);
    means_.BeginStep(step_, examples);
    // All workers have begun this step or wait for this worker, so no frame of the next step has arrived.
    Reset(round(step_ + 1), step_ + 1);
    begun = &round(step_);
    begun->begun = true;
    begun->gradients = gradients;
    if (examples > 0) {
      const auto& begins = options_.variable_begins;
      for (size_t v = 0; v + 1 < begins.size(); ++v) {
        for (int b = 0; b < plan_.buckets(); ++b) {
          const bool overlaps = begins[v] < plan_.bucket_end(b) && begins[v + 1] > plan_.bucket_begin(b);
          begun->unannounced[static_cast<size_t>(b)] += overlaps ? 1 : 0;
        }
      }
    }
    begun->records[static_cast<size_t>(options_.worker)] = record;
    ++begun->num_records;
    Weigh(*begun);
    changed_.NotifyAll();
  }
  if (plan_.workers > 1) send_(header, {}, nullptr);
  Advance(*begun, 0, plan_.chunks.size());
}

void Ring::Announce(int variable) {
  const int64_t begin = options_.variable_begins[static_cast<size_t>(variable)];
  const int64_t end = options_.variable_begins[static_cast<size_t>(variable) + 1];
  std::vector<size_t> ready;
  Round* now;
  {
    MutexLock lock(mutex_);
    now = &round(step_);
    for (int b = 0; b < plan_.buckets(); ++b) {
      if (begin >= plan_.bucket_end(b) || end <= plan_.bucket_begin(b)) continue;
      int& unannounced = now->unannounced[static_cast<size_t>(b)];
      if (unannounced > 0 && --unannounced == 0) ready.push_back(static_cast<size_t>(b));
    }
  }
  const auto workers = static_cast<size_t>(plan_.workers);
  for (const size_t bucket : ready) Advance(*now, bucket * workers, workers);
}

absl::Status Ring::CheckStep(int64_t step, const char* what) const {
  const bool next = step == step_ + 1;
  const bool now = step == step_ && step > options_.version;
  if (now || next) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ring: ", what, " of step ", step, " arrived during step ", step_));
}

absl::Status Ring::OnRecord(const v1::StepRecord& record) {
  const int worker = record.worker();
  if (worker < 0 || worker >= plan_.workers || worker == options_.worker) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring: invalid record of worker ", worker, " of ", plan_.workers));
  }
  if (record.examples() < 0 || record.examples() > kMaxExamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring: a gradient cannot come from ", record.examples(), " examples"));
  }
  if (record.has_learning_rate() && !(std::isfinite(record.learning_rate()) && record.learning_rate() >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("ring: invalid learning rate ", record.learning_rate()));
  }
  {
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(CheckStep(record.step(), "a record"));
    if (round(record.step()).records[static_cast<size_t>(worker)].has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("ring: a second record of worker ", worker, " for step ", record.step()));
    }
  }
  // The record is passed on before this worker can continue, so that frames of a step come before frames of
  // the next step.
  if (right() != worker) {
    v1::RingHeader header;
    *header.mutable_record() = record;
    send_(header, {}, nullptr);
  }
  Round* now;
  {
    MutexLock lock(mutex_);
    now = &round(record.step());
    now->records[static_cast<size_t>(worker)] = record;
    ++now->num_records;
    Weigh(*now);
    changed_.NotifyAll();
    if (!now->weighed) return absl::OkStatus();
  }
  Advance(*now, 0, plan_.chunks.size());
  return absl::OkStatus();
}

void Ring::Weigh(Round& round) {
  if (round.num_records < plan_.workers) return;
  int64_t divisor = 0, total = 0;
  for (const auto& record : round.records) {
    round.end = round.end || record->end();
    divisor = std::gcd(divisor, record->examples());
    total += record->examples();
  }
  if (round.end || total == 0) return;
  round.weight =
      static_cast<float>(round.records[static_cast<size_t>(options_.worker)]->examples() / divisor);
  round.total = static_cast<float>(total / divisor);
  round.weighed = true;
}

absl::Status Ring::OnGradient(const v1::GradientChunk& chunk, net::Payload payload) {
  const auto index = static_cast<size_t>(chunk.index());
  if (chunk.index() < 0 || index >= plan_.chunks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring: chunk ", chunk.index(), ", but the number of chunks is ", plan_.chunks.size()));
  }
  const Chunk& place = plan_.chunks[index];
  const int64_t bytes = net::PayloadBytes(payload);
  if (place.size() == 0 || bytes != place.size() * static_cast<int64_t>(sizeof(float))) {
    return absl::InvalidArgumentError(absl::StrCat("ring: chunk ", index, " has ", bytes,
                                                   " bytes instead of those of ", place.size(), " elements"));
  }
  const int before = Before(place);
  const State wanted = chunk.mean() ? State::kSummed : State::kNothing;
  Round* now;
  {
    MutexLock lock(mutex_);
    CAIRN_RETURN_IF_ERROR(CheckStep(chunk.step(), "a gradient"));
    now = &round(chunk.step());
    // The owner of a chunk begins its sum and receives no partial sum. The worker that completes the sum
    // makes the mean and receives no mean.
    const bool from_here = chunk.mean() ? before == plan_.workers - 1 : before == 0;
    if (from_here || now->states[index] != wanted) {
      return absl::InvalidArgumentError(absl::StrCat("ring: chunk ", index, " of step ", chunk.step(), ", ",
                                                     chunk.mean() ? "the mean" : "a sum",
                                                     ", which is not expected now"));
    }
  }
  // In this state no other thread uses the memory of the chunk.
  CAIRN_RETURN_IF_ERROR(net::CopyPayload(payload, now->sums->data() + place.begin));
  if (!chunk.mean()) {
    {
      MutexLock lock(mutex_);
      now->states[index] = State::kArrived;
    }
    Advance(*now, index, 1);
    return absl::OkStatus();
  }
  // The left neighbour of the chunk's owner has made the mean, and does not need it.
  if ((right() + 1) % plan_.workers != place.owner) SendChunk(*now, index, /*mean=*/true);
  MutexLock lock(mutex_);
  now->states[index] = State::kMean;
  if (--now->left == 0) changed_.NotifyAll();
  return absl::OkStatus();
}

void Ring::Advance(Round& round, size_t first, size_t count) {
  for (size_t i = first; i < first + count; ++i) {
    const Chunk& chunk = plan_.chunks[i];
    if (chunk.size() == 0) continue;
    {
      MutexLock lock(mutex_);
      const State wanted = Before(chunk) == 0 ? State::kNothing : State::kArrived;
      if (!round.begun || !round.weighed || round.unannounced[static_cast<size_t>(chunk.bucket)] > 0 ||
          round.states[i] != wanted) {
        continue;
      }
      round.states[i] = State::kAdding;
    }
    Add(round, i);
  }
}

void Ring::Add(Round& round, size_t index) {
  const Chunk& chunk = plan_.chunks[index];
  const int before = Before(chunk);
  const bool whole = before == plan_.workers - 1;
  if (plan_.workers > 1) {
    float* const sum = round.sums->data() + chunk.begin;
    if (before == 0) std::fill_n(sum, chunk.size(), 0.0f);
    const float divisor = whole ? round.total : 1;
    if (round.weight > 0) {
      optim::AddTerm(round.gradients.data() + chunk.begin, round.weight, divisor, chunk.size(), sum);
    } else if (whole) {
      std::transform(sum, sum + chunk.size(), sum, [divisor](float value) { return value / divisor; });
    }
    // The state changes only after the frame is sent. Otherwise Await() might return earlier, and frames of
    // the next step might be sent before this frame.
    if (whole) SendChunk(round, index, /*mean=*/true);
  }
  {
    MutexLock lock(mutex_);
    round.states[index] = whole ? State::kMean : State::kSummed;
    if (whole && --round.left == 0) changed_.NotifyAll();
  }
  if (!whole) SendChunk(round, index, /*mean=*/false);
}

void Ring::SendChunk(const Round& round, size_t index, bool mean) const {
  const Chunk& chunk = plan_.chunks[index];
  v1::RingHeader header;
  header.mutable_gradient()->set_step(round.step);
  header.mutable_gradient()->set_index(static_cast<int>(index));
  header.mutable_gradient()->set_mean(mean);
  const absl::Span<const float> values(round.sums->data() + chunk.begin, static_cast<size_t>(chunk.size()));
  send_(header, {&values, 1}, round.frames);
}

bool Ring::Done(const Round& round) const {
  if (round.num_records < plan_.workers) return false;
  return !round.weighed || round.left == 0;
}

absl::StatusOr<Ring::Step> Ring::Await(TimePoint deadline) {
  MutexLock lock(mutex_);
  const Round& now = round(step_);
  while (failure_.ok() && !Done(now)) {
    if (changed_.WaitUntil(mutex_, deadline) || Done(now) || !failure_.ok()) continue;
    std::vector<int> missing;
    for (int worker = 0; worker < plan_.workers; ++worker) {
      if (!now.records[static_cast<size_t>(worker)].has_value()) missing.push_back(worker);
    }
    return absl::DeadlineExceededError(
        missing.empty()
            ? absl::StrCat("step ", step_, ": ", now.left, " of ", now.states.size(),
                           " chunks of the mean have not arrived")
            : absl::StrCat("step ", step_, " lacks the workers at positions ", absl::StrJoin(missing, ", ")));
  }
  if (!Done(now)) return failure_;
  return ResultOf(now);
}

Ring::Step Ring::ResultOf(const Round& round) const {
  Step step = {.records = {}, .end = round.end, .done = true};
  for (const auto& record : round.records) {
    step.records.push_back(*record);
    step.examples += record->examples();
    step.done = step.done && record->done();
  }
  if (!round.weighed) return step;
  step.weight = round.weight;
  step.total = round.total;
  step.mean = plan_.workers > 1 ? round.sums->data() : round.gradients.data();
  if (plan_.workers > 1) step.memory = round.sums;
  return step;
}

bool Ring::HasSent() const {
  MutexLock lock(mutex_);
  const bool sent = rounds_[static_cast<size_t>(step_ % 2)].frames.use_count() == 1;
  std::atomic_thread_fence(std::memory_order_acquire);  // what read the frames has happened before
  return sent;
}

std::optional<Ring::Step> Ring::Ended() const {
  CAIRN_CHECK(plan_.chunks.empty());
  MutexLock lock(mutex_);
  const Round& now = rounds_[static_cast<size_t>(step_ % 2)];
  if (!Done(now)) return std::nullopt;
  return ResultOf(now);
}

absl::Status Ring::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

absl::Status Ring::AwaitFailure(TimePoint deadline) const {
  MutexLock lock(mutex_);
  while (failure_.ok() && changed_.WaitUntil(mutex_, deadline)) continue;
  return failure_;
}

int64_t Ring::step() const {
  MutexLock lock(mutex_);
  return step_;
}

void Ring::Fail(absl::Status reason) {
  means_.Fail(reason);
  MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = std::move(reason);
  changed_.NotifyAll();
}

}  // namespace cairn::allreduce
