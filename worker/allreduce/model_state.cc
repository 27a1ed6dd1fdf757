#include "worker/allreduce/model_state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/core/status.h"
#include "optim/store/optimizer_of.h"
#include "optim/store/squares.h"

namespace cairn::allreduce {

absl::StatusOr<std::unique_ptr<ModelState>> ModelState::Create(Options options) {
  CAIRN_ASSIGN_OR_RETURN(auto optimizer, optim::MakeOptimizer(optim::OptimizerOf(options.job)));
  std::vector<net::Slice> slices = net::PlaceVariables(options.variables, {.servers = 1})[0];
  for (size_t v = 0; v < slices.size(); ++v) {  // one flat buffer, in the same order
    CAIRN_CHECK(slices[v].whole() && slices[v].offset == options.variables[v].offset);
  }
  return std::unique_ptr<ModelState>(
      new ModelState(std::move(options), std::move(optimizer), std::move(slices)));
}

ModelState::ModelState(Options options, std::unique_ptr<optim::Optimizer> optimizer,
                       std::vector<net::Slice> slices)
    : job_(std::move(options.job)),
      optimizer_(std::move(optimizer)),
      slot_names_(optimizer_->slot_names().begin(), optimizer_->slot_names().end()),
      store_(std::move(slices), optimizer_.get(), /*initial_version=*/0, std::numeric_limits<int64_t>::max(),
             options.thread_pool),
      values_(store_.current()) {
  // An update writes the buffer that nothing reads. The pool always returns the same two buffers.
  buffers_ = {values_.data->span(), store_.pool().Acquire()->span()};
}

absl::Status ModelState::Initialise(const std::string& run_id, client::StateSource& source) {
  run_id_ = run_id;
  CAIRN_ASSIGN_OR_RETURN(const auto resumed, source.Find(/*lost=*/false));
  const size_t slots = resumed.has_value() ? slot_names_.size() : 0;
  AlignedBuffer state(store_.state_pool().buffer_size());
  std::vector<absl::Span<float>> into;
  for (size_t part = 0; part < 1 + slots; ++part) {
    into.push_back(state.span().subspan(part * static_cast<size_t>(size()), static_cast<size_t>(size())));
  }
  CAIRN_RETURN_IF_ERROR(source.Load(absl::MakeSpan(slot_names_).subspan(0, slots), into));
  if (resumed.has_value()) {
    progress_ = *resumed;
    store_.Restore(resumed->version(), &state);
    if (resumed->has_learning_rate()) store_.SetLearningRate(resumed->learning_rate());
    values_ = store_.current();
  } else {
    WriteFrom(state);
  }
  has_values_ = true;
  return absl::OkStatus();
}

void ModelState::Describe(v1::RingState& mine) const {
  mine.set_run_id(run_id_);
  mine.set_trained(trained_);
  mine.set_has_values(has_values_);
  *mine.mutable_progress() = progress_;
  mine.mutable_progress()->set_version(version());
  if (const auto rate = store_.changed_learning_rate()) mine.mutable_progress()->set_learning_rate(*rate);
}

std::shared_ptr<const AlignedBuffer> ModelState::Pack() {
  auto state = store_.state_pool().Acquire();
  std::copy_n(values_.data->data(), size(), state->data());
  if (const auto slots = store_.CopySlotsBeyondBudget(); slots != nullptr) {
    std::copy_n(slots->data(), slots->size(), state->data() + size());
  }
  return state;
}

void ModelState::TakeOver(const v1::RingState& source, const AlignedBuffer* state) {
  run_id_ = source.run_id();
  progress_ = source.progress();
  if (state != nullptr) store_.Restore(progress_.version(), state);
  if (progress_.has_learning_rate()) store_.SetLearningRate(progress_.learning_rate());
  values_ = store_.current();
  has_values_ = trained_ = true;
}

absl::Status ModelState::Apply(const float* mean, int64_t examples, int64_t workers) {
  const optim::ContributedGradient gradient = {mean, mean == nullptr ? 0 : 1};
  optim::VariableStore::Mean update = {.gradients = {&gradient, 1}, .last = version() + 1 == final_version()};
  for (const optim::Norms norms : optimizer_->norms()) {
    CAIRN_ASSIGN_OR_RETURN(auto sums, store_.Measure(norms, update));
    update.known = optim::AddUp(std::move(sums));
  }
  CAIRN_RETURN_IF_ERROR(store_.ApplyMean(update));
  values_ = store_.current();
  v1::Counters& counters = *progress_.mutable_counters();
  counters.set_examples(counters.examples() + examples);
  counters.set_accepted(counters.accepted() + workers);
  if (counters.staleness_histogram().empty()) counters.add_staleness_histogram(0);
  counters.set_staleness_histogram(0, counters.staleness_histogram(0) + workers);
  return absl::OkStatus();
}

void ModelState::EndHere() {
  store_.EndHere();
  values_ = store_.current();
}

void ModelState::Write(absl::Span<const float> values) {
  AlignedBuffer all(size());
  std::copy(values.begin(), values.end(), all.data());
  WriteFrom(all);
}

void ModelState::WriteFrom(const AlignedBuffer& values) {
  const optim::VariableStore::Run everything = {0, size()};
  store_.Write(values, {&everything, 1});
  values_ = store_.current();
}

absl::StatusOr<client::TakenSnapshot> ModelState::TakeSnapshot() {
  v1::Job job = job_;
  job.set_run_id(run_id_);
  v1::Progress progress = progress_;
  progress.set_version(version());
  progress.clear_learning_rate();
  if (const auto rate = store_.changed_learning_rate()) progress.set_learning_rate(*rate);
  CAIRN_ASSIGN_OR_RETURN(auto slots, store_.CopySlots());
  return client::TakenSnapshot{
      .version = version(),
      .read = [job = std::move(job), progress = std::move(progress), values = values_,
               slots = std::move(slots), slices = store_.slices(), names = slot_names_](
                  const client::ReadLimit&, client::TableSink*) -> absl::StatusOr<client::Snapshot> {
        AlignedBuffer state(values.data->size() + (slots == nullptr ? 0 : slots->size()));
        std::copy_n(values.data->data(), values.data->size(), state.data());
        if (slots != nullptr) std::copy_n(slots->data(), slots->size(), state.data() + values.data->size());
        client::Snapshot snapshot = {.job = job, .progress = progress, .slots = names, .servers = {}};
        snapshot.servers.push_back({.slices = slices, .state = std::move(state)});
        return snapshot;
      }};
}

}  // namespace cairn::allreduce
