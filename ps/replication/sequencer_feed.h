// Feeds the backup of a sequencer: sends the state of the sequencer on each stream of a replicator, and then
// every input.
#pragma once

#include <utility>

#include "ps/log/sequencer.h"
#include "ps/replication/replicator.h"

namespace cairn::ps {

class SequencerFeed final : public InputSink {
 public:
  // Both must outlive the feed. `with_entry`: the shard makes its updates so quickly that inputs wait for the
  // update that follows from them, to be sent in one frame with it.
  SequencerFeed(Sequencer& sequencer, Replicator& replicator, bool with_entry = false)
      : sequencer_(sequencer), replicator_(replicator), with_entry_(with_entry) {}

  void SendState();
  void Append(const SequencerInput& input) override;
  void WhenReceived(Callback then) override;
  void Flush() override { replicator_.Flush(); }

 private:
  Sequencer& sequencer_;
  Replicator& replicator_;
  const bool with_entry_;
};

}  // namespace cairn::ps
