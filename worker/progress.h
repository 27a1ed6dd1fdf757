// Keras' progress line: on a terminal one line per epoch that redraws itself, elsewhere a line per epoch; or
// a JSON object for each thing that happens.
//
// Owned by the chief's trainer; one thread. Writes to the given file descriptor and nothing else.
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
    bool terminal = false;  // redraw, with a bar
    // On a terminal: its width now, asked before each redraw; 0 or null: unknown, lines may have any width. A
    // line that does not fit would be left behind by the next one.
    std::function<int()> columns{};
    bool color = true;          // on a terminal, in Keras' colors; without, what is left of the bar is thin
    bool json = false;          // --log_format json: neither bar nor line
    int64_t display_every = 0;  // not on a terminal: a line every so many steps too; 0 is never
  };
  // `clock` outlives it.
  Progress(const Options& options, const Clock& clock);

  // "Epoch 1/5". `steps` is the epoch's length as this worker sees it.
  void StartEpoch(int64_t epoch, int64_t epochs, int64_t steps);
  // `step` steps of the epoch are done. Draws at most every 50 ms.
  // `metrics` is asked when there is something to draw.
  void Update(int64_t step, absl::FunctionRef<ShownMetrics()> metrics);
  // "938/938 ━━━━━━━━━━━━━━━━━━━━ 12s 13ms/step - accuracy: 0.9512 - loss: 0.1570 - val_accuracy: ..."
  // Elsewhere "938/938 - 12s - 13ms/step - accuracy: ...". Both count the time since StartEpoch.
  void EndEpoch(const ShownMetrics& metrics);
  // A line of its own, between epochs.
  void Say(const std::string& text);

  // How the whole cluster does in this epoch, for what is shown from here on: on a terminal its examples per
  // second behind the step's time; and at the epoch's end, wherever there are any, a line about gradients
  // that did not count.
  struct Cluster {
    double examples_per_second = 0;
    int64_t stale = 0, refused = 0;
  };
  void SetCluster(const Cluster& cluster) { cluster_ = cluster; }
  // It redraws, and so is to be told again now and then.
  bool redraws() const { return options_.terminal && !options_.json; }

 private:
  void DrawBar(const ShownMetrics& metrics, bool last);
  // The greatest width of a redrawn line, in columns of the terminal.
  int64_t WidthLimit() const;
  void PrintLine(const ShownMetrics& metrics);
  void PrintEvent(const char* event, const ShownMetrics& metrics);
  // Seconds per step, without the epoch's first, which warms everything up, as soon as there is a second.
  double SecondsPerStep() const;
  void Write(const std::string& text);

  const Options options_;
  const Clock& clock_;
  // Of the current epoch.
  int64_t epoch_ = 0;
  int64_t steps_ = 0;
  Cluster cluster_;
  int64_t step_ = 0;
  TimePoint start_;
  TimePoint after_first_step_;
  int64_t first_step_ = 0;  // the step that after_first_step_ was taken at; 0 before it
  TimePoint next_draw_;
  int64_t drawn_width_ = 0;  // columns of the line on the terminal
};

}  // namespace cairn::worker
