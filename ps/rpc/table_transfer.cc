#include "ps/rpc/table_transfer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

// The number of elements in all buffers.
int64_t SizeOf(const TableState& state) {
  int64_t size = 0;
  for (const auto& buffer : state) size += buffer->size();
  return size;
}

}  // namespace

absl::StatusOr<std::shared_ptr<WrittenTables>> WrittenTables::For(const v1::WriteBegin& begin, ActiveJob& job,
                                                                  std::shared_ptr<WrittenTables> before) {
  if (before == nullptr || before->layout_ != begin.layout()) {
    before.reset(new WrittenTables());
    before->layout_ = begin.layout();
    for (const int64_t size : begin.table_states()) {
      CAIRN_ASSIGN_OR_RETURN(before->states_.emplace_back(),
                             ReceivedState::Create(size, job.shard().store().budget()));
    }
  }
  const auto same = [](const std::unique_ptr<ReceivedState>& state, int64_t size) {
    return state->size() == size;
  };
  if (std::equal(before->states_.begin(), before->states_.end(), begin.table_states().begin(),
                 begin.table_states().end(), same)) {
    return before;
  }
  return absl::InvalidArgumentError("the states of tables have other sizes than in the write before");
}

absl::Status AddTo(WrittenTables* tables, const v1::Chunk& chunk, net::Payload payload) {
  const size_t num_tables = tables == nullptr ? 0 : tables->states_.size();
  if (chunk.table() < 1 || static_cast<size_t>(chunk.table()) > num_tables) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of table ", chunk.table(), ", whose state is not being written"));
  }
  return tables->states_[static_cast<size_t>(chunk.table()) - 1]->Add(chunk, payload);
}

absl::StatusOr<ReceivedTables> WrittenTables::Take() {
  ReceivedTables tables;
  for (const auto& state : states_) {
    if (!state->complete()) {
      return absl::InvalidArgumentError(absl::StrCat("state of table ", tables.size() + 1, ": ",
                                                     state->received(), " of ", state->size(),
                                                     " elements received"));
    }
    tables.push_back(state->Take());
  }
  return tables;
}

void KeptTables::Keep(std::vector<TableState> states, v1::Done& done) {
  for (const TableState& table : states) done.add_table_states(SizeOf(table));
  MutexLock lock(mutex_);
  states_ = std::move(states);
}

int64_t KeptTables::Read(const v1::ReadBegin& begin, Answer answer) {
  MutexLock lock(mutex_);
  if (begin.table() < 1 || static_cast<size_t>(begin.table()) > states_.size()) {
    answer.SendFailure(absl::InvalidArgumentError(
        absl::StrCat("cannot read the state of table ", begin.table(),
                     ": this stream has read a snapshot of ", states_.size(), " tables")));
    return 0;
  }
  const TableState& state = states_[static_cast<size_t>(begin.table()) - 1];
  const int64_t size = SizeOf(state);
  if (begin.offset() < 0 || begin.count() < 1 || begin.offset() > size ||
      begin.count() > size - begin.offset()) {
    answer.SendFailure(absl::InvalidArgumentError(absl::StrCat("cannot read ", begin.count(), " elements at ",
                                                               begin.offset(), " of the state of table ",
                                                               begin.table(), ": it has ", size)));
    return 0;
  }
  const int64_t bytes =
      answer.SendTable(begin.table(), state, begin.offset(), begin.offset() + begin.count());
  v1::Done done;
  done.set_has_values(true);
  answer.SendDone(std::move(done));
  return bytes;
}

}  // namespace cairn::ps
