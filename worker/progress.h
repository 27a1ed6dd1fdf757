// Keras' progress line: on a terminal one line per epoch that redraws itself, elsewhere a line per epoch.
//
// Owned by the chief's trainer; one thread. Writes to the given file descriptor and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/core/clock.h"

namespace cairn::worker {

// Metric names and values in the order shown: {"accuracy", 0.98}, {"loss", 0.06}.
using ShownMetrics = std::vector<std::pair<std::string, double>>;

class Progress {
 public:
  struct Options {
    int fd = 1;
    bool terminal = false;      // redraw, with a bar
    int64_t display_every = 0;  // not on a terminal: a line every so many steps too; 0 is never
  };
  Progress(const Options& options, const Clock& clock);

  // "Epoch 1/5". `steps` is the epoch's length as this worker sees it.
  void StartEpoch(int64_t epoch, int64_t epochs, int64_t steps);
  // `step` steps of the epoch are done. Draws at most every 50 ms.
  void Update(int64_t step, const ShownMetrics& metrics);
  // "938/938 ━━━━━━━━━━━━━━━━━━━━ 12s 13ms/step - accuracy: 0.9512 - loss: 0.1570 - val_accuracy: ..."
  void EndEpoch(const ShownMetrics& metrics);

 private:
  void Write(const std::string& text);
};

}  // namespace cairn::worker
