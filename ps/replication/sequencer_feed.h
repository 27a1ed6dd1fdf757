// Feeds the backup of a sequencer: sends the state of the sequencer on each stream of a replicator, and then
// every input.
#pragma once

#include <utility>

#include "ps/log/sequencer.h"
#include "ps/replication/replicator.h"

namespace cairn::ps {

class SequencerFeed final : public InputSink {
 public:
  // Both must outlive the feed.
  SequencerFeed(Sequencer& sequencer, Replicator& replicator)
      : sequencer_(sequencer), replicator_(replicator) {}

  void SendState();
  void Append(const SequencerInput& input) override;
  void WhenReceived(Callback then) override { replicator_.WhenReplicated(std::move(then)); }

 private:
  Sequencer& sequencer_;
  Replicator& replicator_;
};

}  // namespace cairn::ps
