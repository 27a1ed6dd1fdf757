#include "ps/replication/sequencer_feed.h"

namespace cairn::ps {
namespace {

constexpr auto kSequencer = Replicator::Component::kSequencer;

}  // namespace

void SequencerFeed::SendState() {
  sequencer_.Capture([this](const SequencerState& state) {
    ReplicationItem item;
    *item.body.mutable_sequencer() = state.Save();
    replicator_.SendState(kSequencer, std::move(item));
  });
}

void SequencerFeed::Append(const SequencerInput& input) {
  if (!replicator_.wants(kSequencer)) return;
  ReplicationItem item;
  *item.body.mutable_input() = ToProto(input);
  replicator_.Send(kSequencer, std::move(item));
}

void SequencerFeed::WhenReceived(Callback then) {
  replicator_.WhenReplicated(std::move(then), /*send=*/!with_entry_);
}

}  // namespace cairn::ps
