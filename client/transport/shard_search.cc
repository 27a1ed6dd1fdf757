#include "client/transport/shard_search.h"

#include <utility>
#include <vector>

namespace cairn::client {

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

namespace {

ShardSearch::Known KnownOf(const v1::ConnectResponse& response) {
  return {.incarnation = response.incarnation(),
          .generation = response.job().generation(),
          .epoch = response.epoch(),
          .epoch_seal = response.epoch_seal()};
}

absl::Status ShardIsLost() {
  return absl::AbortedError("the variables of this shard are lost");
}

}  // namespace

bool ShardSearch::Known::IsBefore(const Known& other) const {
  return incarnation == other.incarnation &&
         std::pair(generation, epoch) < std::pair(other.generation, other.epoch);
}

ShardSearch::Known ShardSearch::Found::known() const {
  return response.state() == v1::STATE_BACKUP ? Known() : KnownOf(response);
}

std::optional<ShardSearch::Question> ShardSearch::question() const {
  const bool first = options_.away, other = !options_.away;
  switch (step_) {
    case Step::kFirst:
      return Question{.away = first, .brief = options_.has_backup && options_.only_known};
    case Step::kOther:
    case Step::kOtherAgain:
      return Question{.away = other, .brief = true};
    case Step::kFirstAgain:
      return Question{.away = first, .brief = true};
    case Step::kPromoteOther:
      return Question{.call = Question::Call::kPromote, .away = other, .brief = true};
    case Step::kPromoteFirst:
      return Question{.call = Question::Call::kPromote, .away = first, .brief = true};
    case Step::kOver:
      break;
  }
  return std::nullopt;
}

void ShardSearch::OnConnected(absl::StatusOr<v1::ConnectResponse> response) {
  const bool at_first = step_ == Step::kFirst || step_ == Step::kFirstAgain;
  auto& answer = at_first ? first_ : other_;
  answer = std::move(response);
  if (Serves(answer)) {
    Finish(Found{.response = *answer, .away = at_first == options_.away});
    return;
  }
  const bool promoted = step_ == Step::kFirstAgain || step_ == Step::kOtherAgain;
  if (promoted && IsOfEarlierGeneration(answer)) {
    Finish(ShardIsLost());
    return;
  }
  switch (step_) {
    case Step::kFirst: {
      const absl::Status& status = first_.status();
      const bool elsewhere = status.ok() || IsTransient(status) || absl::IsNotFound(status);
      if (options_.has_backup && elsewhere) {
        step_ = Step::kOther;
      } else {
        FinishUnserved();
      }
      return;
    }
    case Step::kOther:
      if (HasBackup(other_)) {
        step_ = Step::kPromoteOther;
        return;
      }
      break;
    case Step::kFirstAgain:
      FinishUnserved();
      return;
    default:
      break;
  }
  TryFirstBackup();
}

void ShardSearch::OnPromoted(const absl::Status& status) {
  const bool at_first = step_ == Step::kPromoteFirst;
  if (status.ok()) {
    step_ = at_first ? Step::kFirstAgain : Step::kOtherAgain;
  } else if (at_first) {
    if (!IsOfEarlierGeneration(first_)) first_refusal_ = status;
    FinishUnserved();
  } else {
    if (!IsOfEarlierGeneration(other_)) other_refusal_ = status;
    TryFirstBackup();
  }
}

bool ShardSearch::Serves(const absl::StatusOr<v1::ConnectResponse>& response) const {
  if (!response.ok() || response->state() == v1::STATE_BACKUP) return false;
  if (!options_.only_known) return response->state() != v1::STATE_EMPTY;
  const Known answering = KnownOf(*response);
  return answering.incarnation == options_.known.incarnation && !answering.IsBefore(options_.known);
}

bool ShardSearch::HasBackup(const absl::StatusOr<v1::ConnectResponse>& response) const {
  if (!response.ok() || response->state() != v1::STATE_BACKUP) return false;
  return !options_.only_known || response->incarnation() == options_.known.incarnation;
}

bool ShardSearch::IsOfEarlierGeneration(const absl::StatusOr<v1::ConnectResponse>& response) const {
  return options_.only_known && response.ok() && response->job().generation() < options_.known.generation;
}

void ShardSearch::TryFirstBackup() {
  if (HasBackup(first_)) {
    step_ = Step::kPromoteFirst;
  } else {
    FinishUnserved();
  }
}

void ShardSearch::Finish(absl::StatusOr<Found> result) {
  step_ = Step::kOver;
  result_ = std::move(result);
}

void ShardSearch::FinishUnserved() {
  const absl::Status& first = first_.status();
  if (!first.ok() && !IsTransient(first) && !absl::IsNotFound(first)) return Finish(first);
  // The shard is lost only if every host has answered that it neither serves it nor can be promoted.
  std::vector<absl::Status> answers = {first};
  if (options_.has_backup) answers.insert(answers.end(), {other_.status(), first_refusal_, other_refusal_});
  for (const absl::Status& answer : answers) {
    if (IsTransient(answer)) return Finish(answer);
  }
  if (options_.only_known) return Finish(ShardIsLost());
  const auto& home = options_.away ? other_ : first_;
  if (!home.ok()) return Finish(home.status());
  Finish(Found{.response = *home, .away = false});
}

}  // namespace cairn::client
