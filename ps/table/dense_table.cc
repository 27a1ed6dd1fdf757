#include "ps/table/dense_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/update_chunk.h"
#include "ps/table/accumulator.h"

namespace cairn::ps {
namespace {

class DensePush final : public TablePush {
 public:
  // `speculative`: receives the elements for a speculative update; may be null.
  DensePush(const PushRequest& request, optim::BufferPool& pool, SpeculativeUpdate* speculative)
      : gradient_(request.gradient),
        wants_early_(request.send_values != nullptr),
        accumulator_(pool, Accumulator::Borrowed::kKept),
        speculative_(speculative) {}
  ~DensePush() override {
    if (speculative_ != nullptr) speculative_->Abandon(gradient_.key);
  }

  absl::Status AddChunk(const v1::Chunk& chunk, net::Payload payload) override {
    if (!has_elements()) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(accumulator_.Add(chunk, payload));
    if (speculative_ != nullptr) {
      const auto [begin, end] = accumulator_.last();
      speculative_->Arrived(gradient_.key, accumulator_.elements(), begin, end);
    }
    return absl::OkStatus();
  }
  absl::Status AddRows(net::ReceivedRows) override {
    return absl::InvalidArgumentError("the gradients of variables are pushed in chunks, not in rows");
  }
  absl::Span<float> DestinationFor(const v1::Chunk& chunk, int64_t count) override {
    return has_elements() ? accumulator_.DestinationFor(chunk, count) : absl::Span<float>();
  }
  absl::Status CheckComplete() const override {
    if (!has_elements() || accumulator_.complete()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(Describe(gradient_.key), ": ", accumulator_.received(),
                                                   " of ", accumulator_.size(), " elements received"));
  }
  std::shared_ptr<const TableGradient> Take() override { return accumulator_.Take().gradient(); }
  void Keep() override { speculative_ = nullptr; }
  bool MaySendEarly() const override { return speculative_ != nullptr && wants_early_; }

 private:
  // Chunks of a push without examples are not stored.
  bool has_elements() const { return gradient_.examples != 0; }

  const Gradient gradient_;
  const bool wants_early_;
  Accumulator accumulator_;
  SpeculativeUpdate* speculative_;
};

std::unique_ptr<SpeculativeUpdate> MakeSpeculative(const DenseTable::Options& options,
                                                   optim::VariableStore& store) {
  if (!options.speculative_updates || store.size() < net::kMinSpeculativeUpdate) return nullptr;
  return std::make_unique<SpeculativeUpdate>(store, options.thread_pool, options.trace);
}

}  // namespace

DenseTable::DenseTable(std::vector<net::Slice> slices, const optim::Optimizer* optimizer,
                       const Options& options)
    : store_(std::move(slices), optimizer, options.initial_version, options.memory_limit,
             options.thread_pool),
      speculative_(MakeSpeculative(options, store_)) {}

std::unique_ptr<TablePush> DenseTable::BeginPush(const PushRequest& request) {
  SpeculativeUpdate* speculative = speculative_.get();
  if (speculative != nullptr && !speculative->Begin(request.gradient, request.send_values, request.allow)) {
    speculative = nullptr;
  }
  return std::make_unique<DensePush>(request, store_.pool(), speculative);
}

absl::StatusOr<TableRows> DenseTable::ReadRows(absl::Span<const int64_t>) const {
  return absl::InvalidArgumentError("variables are read by ranges of elements, not by rows");
}

absl::StatusOr<std::vector<optim::ContributedGradient>> DenseTable::GradientsOf(
    const TableUpdate& update) const {
  std::vector<optim::ContributedGradient> gradients;
  if (update.mean != nullptr) {
    const AlignedBuffer* const mean = update.mean->get();
    gradients.emplace_back(mean == nullptr ? nullptr : mean->data(), mean == nullptr ? 0 : 1);
    return gradients;
  }
  gradients.reserve(update.contributions.size());
  for (const TableUpdate::Contribution& contribution : update.contributions) {
    const Gradient& gradient = *contribution.gradient;
    const GradientView data = GradientView::Of(contribution.data);
    if (data.none() && gradient.examples != 0 && store_.size() > 0) {
      return absl::InternalError(absl::StrCat("version ", update.version, " uses the ",
                                              Describe(gradient.key), ", computed from ", gradient.examples,
                                              " examples, but this server received none of its elements"));
    }
    gradients.emplace_back(data.runs(), gradient.examples);  // the update keeps the data alive
  }
  return gradients;
}

optim::VariableStore::Mean DenseTable::MeanOf(const TableUpdate& update,
                                              absl::Span<const optim::ContributedGradient> gradients) {
  return {.gradients = gradients,
          .last = update.last,
          .rate_divisor = update.rate_divisor,
          .known = *update.known};
}

absl::StatusOr<TableMean> DenseTable::Mean(const TableUpdate& update) {
  CAIRN_ASSIGN_OR_RETURN(const auto gradients, GradientsOf(update));
  int counted = 0;
  GradientView only;
  for (const TableUpdate::Contribution& contribution : update.contributions) {
    if (contribution.gradient->examples == 0) continue;
    ++counted;
    only = GradientView::Of(contribution.data);
  }
  // A gradient in the client's memory is copied, because the mean may be used after its push has been
  // answered.
  if (counted <= 1 && (only.none() || only.buffer() != nullptr)) return only.buffer();
  std::shared_ptr<AlignedBuffer> mean = store_.pool().Acquire();
  WriteMean(gradients, 0, store_.size(), mean->data());
  return mean;
}

absl::StatusOr<std::vector<optim::SliceSquares>> DenseTable::Measure(optim::Norms norms,
                                                                     const TableUpdate& update) {
  CAIRN_ASSIGN_OR_RETURN(const auto gradients, GradientsOf(update));
  return store_.Measure(norms, MeanOf(update, gradients));
}

absl::Status DenseTable::Apply(const TableUpdate& update) {
  CAIRN_ASSIGN_OR_RETURN(const auto gradients, GradientsOf(update));
  return store_.ApplyMean(MeanOf(update, gradients));
}

absl::StatusOr<TableState> DenseTable::Save(bool beyond_budget) {
  TableState state = {store_.current().data};
  std::shared_ptr<const AlignedBuffer> slots;
  if (beyond_budget) {
    slots = store_.CopySlotsBeyondBudget();
  } else {
    CAIRN_ASSIGN_OR_RETURN(slots, store_.CopySlots());
  }
  if (slots != nullptr) state.push_back(std::move(slots));
  return state;
}

absl::Status DenseTable::CheckState(const TableState& state) const {
  int64_t size = 0;
  for (const auto& buffer : state) size += buffer->size();
  if (size == store_.state_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a replicated state has ", size, " values, expected ", store_.state_size()));
}

void DenseTable::Restore(int64_t version, TableState state) {
  if (state.size() > 1) {
    std::shared_ptr<AlignedBuffer> whole = store_.state_pool().Acquire();
    float* next = whole->data();
    for (const auto& buffer : state) next = std::copy_n(buffer->data(), buffer->size(), next);
    state = {std::move(whole)};
  }
  store_.Restore(version, state.empty() ? nullptr : state[0].get());
}

}  // namespace cairn::ps
