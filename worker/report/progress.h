// Keras' progress line: on a terminal, one line per epoch that is redrawn in place; otherwise, one line per
// epoch. With --log_format json, a JSON object per event.
//
// Owned by WorkerTask and used by Chief; one thread. Writes only to the given file descriptor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/core/clock.h"

namespace cairn::worker {

// Metric names and values in the order shown: {"accuracy", 0.98}, {"loss", 0.06}.
using ShownMetrics = std::vector<std::pair<std::string, double>>;

class Progress {
 public:
  struct Options {
    int fd = 1;
    bool terminal = false;  // `fd` is a terminal: redraw the line, and show a bar
    // Returns the terminal's width. It is called before each redraw, since a line that wraps could not be
    // overwritten by the next redraw. If `columns` is null or returns 0, the width is unknown, and lines may
    // have any width.
    std::function<int()> columns{};
    // On a terminal: use Keras' colors. Without colors, the unfilled rest of the bar is a thin line.
    bool color = true;
    bool json = false;          // --log_format json: print events instead of the bar and lines
    int64_t display_every = 0;  // without a terminal: also a line every N steps; 0: never
  };
  // `clock` must outlive the object.
  Progress(const Options& options, const Clock& clock);

  // Prints "Epoch 1/5". `steps`: the number of this worker's batches in the epoch.
  void StartEpoch(int64_t epoch, int64_t epochs, int64_t steps);
  // `step` steps of the epoch are done. Draws at most every 50 ms, and calls `metrics` only when it draws.
  void Update(int64_t step, absl::FunctionRef<ShownMetrics()> metrics);
  // Prints the last line of an epoch, with the time since StartEpoch(). On a terminal:
  //   938/938 ━━━━━━━━━━━━━━━━━━━━ 12s 13ms/step - accuracy: 0.9512 - loss: 0.1570 - val_accuracy: ...
  // otherwise:
  //   938/938 - 12s - 13ms/step - accuracy: 0.9512 - ...
  void EndEpoch(const ShownMetrics& metrics);
  // Prints a separate line, between epochs.
  void Say(const std::string& text);

  // The state of the whole cluster in this epoch. On a terminal, the cluster's examples per second are shown
  // after the time per step. At the end of the epoch, a line reports the stale and refused gradients, if
  // there were any.
  struct Cluster {
    double examples_per_second = 0;
    int64_t stale = 0, refused = 0;
  };
  void SetCluster(const Cluster& cluster) { cluster_ = cluster; }
  // Whether the line is redrawn. If so, SetCluster() should be called regularly.
  bool redraws() const { return options_.terminal && !options_.json; }

 private:
  void DrawBar(const ShownMetrics& metrics, bool last);
  // The maximum width of a redrawn line, in terminal columns.
  int64_t WidthLimit() const;
  void PrintLine(const ShownMetrics& metrics);
  void PrintEvent(const char* event, const ShownMetrics& metrics);
  // Seconds per step. The epoch's first step, which includes warm-up, is left out as soon as there are other
  // steps.
  double SecondsPerStep() const;
  void Write(const std::string& text);

  const Options options_;
  const Clock& clock_;
  // State of the current epoch.
  int64_t epoch_ = 0;
  int64_t steps_ = 0;
  Cluster cluster_;
  int64_t step_ = 0;
  TimePoint start_;
  TimePoint after_first_step_;
  int64_t first_step_ = 0;  // the step count at after_first_step_; 0 until then
  TimePoint next_draw_;
  int64_t drawn_width_ = 0;  // width of the line on the terminal, in columns
};

}  // namespace cairn::worker
