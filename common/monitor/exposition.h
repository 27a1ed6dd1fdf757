// Builds text in Prometheus' exposition format 0.0.4, sample by sample.
//
// The caller follows Prometheus' naming conventions: cairn_<program>_<what>_<unit>, base units, counters end
// in _total. One thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/core/metrics.h"

namespace cairn::monitor {

class Exposition {
 public:
  using Labels = std::vector<std::pair<absl::string_view, std::string>>;

  // Begins a family, whose samples must follow at once. `help` is a sentence.
  void Counter(absl::string_view name, absl::string_view help) { Family(name, "counter", help); }
  void Gauge(absl::string_view name, absl::string_view help) { Family(name, "gauge", help); }
  void Histogram(absl::string_view name, absl::string_view help) { Family(name, "histogram", help); }

  // Adds a sample to the family begun last.
  void Sample(double value) { Sample({}, value); }
  void Sample(const Labels& labels, double value);
  void Sample(const Labels& labels, const Distribution& distribution);
  // `counts` [bucket]: the number of values that are at most limits[bucket] and above the previous limit; the
  // last bucket is unbounded.
  void Sample(const Labels& labels, const std::vector<double>& limits, const std::vector<int64_t>& counts,
              double sum);

  // A family with one sample.
  void Counter(absl::string_view name, absl::string_view help, double value) {
    Counter(name, help);
    Sample(value);
  }
  void Gauge(absl::string_view name, absl::string_view help, double value) {
    Gauge(name, help);
    Sample(value);
  }
  void Histogram(absl::string_view name, absl::string_view help, const Distribution& distribution) {
    Histogram(name, help);
    Sample({}, distribution);
  }

  // The process_* metrics of Prometheus' client libraries, and cairn_build_info.
  void AddProcess();

  const std::string& text() const { return text_; }

 private:
  void Family(absl::string_view name, absl::string_view type, absl::string_view help);
  void Line(absl::string_view suffix, const Labels& labels, double value);

  std::string family_;
  std::string text_;
};

}  // namespace cairn::monitor
