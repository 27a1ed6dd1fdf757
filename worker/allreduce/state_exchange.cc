#include "worker/allreduce/state_exchange.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"

namespace cairn::allreduce {

StateExchange::StateExchange(Options options)
    : options_(std::move(options)), states_(options_.names.size()) {}

std::shared_ptr<Ring> StateExchange::Reset() {
  std::shared_ptr<Ring> ring = this->ring();
  states_.assign(states_.size(), std::nullopt);
  agreement_.reset();
  values_.reset();
  received_ = 0;
  return ring;
}

absl::Status StateExchange::Check(const v1::RingState& state) const {
  const int worker = state.worker();
  const v1::Progress& progress = state.progress();
  constexpr int64_t kMaxVersionOffset = int64_t{1} << 60;
  const int64_t offset = progress.version_offset();
  if (worker < 0 || worker >= workers() || worker == options_.worker || progress.version() < 0 ||
      offset > progress.version() || offset < -kMaxVersionOffset ||
      progress.version() - offset > options_.final_version) {
    return absl::InvalidArgumentError(absl::StrCat("ring: invalid state of worker ", worker, " of ",
                                                   workers(), " at version ", progress.version(), ", offset ",
                                                   offset, ", final version ", options_.final_version));
  }
  if (progress.has_learning_rate() &&
      !(std::isfinite(progress.learning_rate()) && progress.learning_rate() >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("ring: invalid learning rate ", progress.learning_rate()));
  }
  return absl::OkStatus();
}

absl::Status StateExchange::Add(int64_t ring_epoch, const v1::RingState& state) {
  states_[static_cast<size_t>(state.worker())] = state;
  std::vector<v1::RingState> states;
  for (const auto& one : states_) {
    if (!one.has_value()) return absl::OkStatus();
    states.push_back(*one);
  }
  CAIRN_ASSIGN_OR_RETURN(Agreement agreement, Agree(std::move(states), options_.names));
  return CatchOutOfMemory("the sums of gradients, and the state of another worker", [&]() -> absl::Status {
    Accept(std::move(agreement), ring_epoch);
    return absl::OkStatus();
  });
}

void StateExchange::Accept(Agreement agreement, int64_t ring_epoch) {
  agreement.ring_epoch = ring_epoch;
  // If the devices sum the gradients, only the records go round the ring.
  const bool by_devices = !agreement.library.empty();
  agreement.ring = std::make_shared<Ring>(
      Ring::Options{.worker = options_.worker,
                    .version = agreement.states[static_cast<size_t>(agreement.source)].progress().version(),
                    .plan = by_devices ? ChunkPlan::Make(0, workers()) : options_.plan,
                    .variable_begins = options_.variable_begins},
      [this, ring_epoch](const v1::RingHeader& header, net::FloatSpans payload,
                         const std::shared_ptr<const void>& owner) {
        options_.send(ring_epoch, header, payload, owner);
      });
  if (agreement.passes && agreement.source != options_.worker && options_.state_size > 0) {
    values_ = std::make_shared<AlignedBuffer>(options_.state_size);
  }
  agreement_ = std::move(agreement);
}

std::string StateExchange::Missing() const {
  std::vector<std::string> missing;
  for (int worker = 0; worker < workers(); ++worker) {
    if (!Has(worker)) missing.push_back(options_.names[static_cast<size_t>(worker)]);
  }
  return absl::StrJoin(missing, ", ");
}

std::string StateExchange::InStep() const {
  if (!agreement_.has_value()) return " while the ring was being formed";
  return absl::StrCat(" in step ", agreement_->ring->step());
}

std::string StateExchange::Received() const {
  return absl::StrCat(received_, " of ", values_ == nullptr ? 0 : values_->size());
}

absl::Status StateExchange::CheckValues(const v1::StateChunk& chunk, int64_t bytes) {
  constexpr int64_t kMaxElements = int64_t{1} << 38;
  const bool awaited = agreement_.has_value() && agreement_->passes && agreement_->source != options_.worker;
  if (awaited && values_ == nullptr && chunk.total() > 0 && chunk.total() <= kMaxElements) {
    CAIRN_RETURN_IF_ERROR(CatchOutOfMemory("the values of another worker", [&] {
      values_ = std::make_shared<AlignedBuffer>(chunk.total());
      return absl::OkStatus();
    }));
  }
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  if (values_ != nullptr && chunk.offset() == received_ && count > 0 &&
      bytes % static_cast<int64_t>(sizeof(float)) == 0 && count <= values_->size() - received_) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("ring: ", bytes, " bytes of values at ", chunk.offset(),
                                                 ", after ", received_, " of ",
                                                 values_ == nullptr ? 0 : values_->size(), " elements"));
}

}  // namespace cairn::allreduce
