#include "worker/report/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

// The texts are those of Keras 3's utils/progbar.py: verbose=1 on a terminal, otherwise verbose=2.

namespace cairn::worker {
namespace {

constexpr int64_t kBarWidth = 20, kSmallestBarWidth = 5;
constexpr Duration kRedrawInterval = std::chrono::milliseconds(50);
// The time between two drawings, as a multiple of the time that one takes: metrics of many examples are slow.
constexpr int kPauseOfDrawings = 20;
constexpr char kBold[] = "\x1b[1m";
constexpr char kGreen[] = "\x1b[32m";
constexpr char kWhite[] = "\x1b[37m";
constexpr char kPlain[] = "\x1b[0m";

std::string FormatMetrics(const ShownMetrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    absl::StrAppend(&text, " - ", name, ": ",
                    std::abs(value) > 1e-3 ? absl::StrFormat("%.4f", value) : absl::StrFormat("%.4e", value));
  }
  return text;
}

std::string FormatStepTime(double seconds) {
  if (seconds >= 1 || seconds == 0) return absl::StrFormat("%.0fs/step", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.0fms/step", seconds * 1e3);
  return absl::StrFormat("%.0fus/step", seconds * 1e6);
}

std::string FormatTimeLeft(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  if (seconds > 3600) return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole % 3600 / 60, whole % 60);
  if (seconds > 60) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%ds", whole);
}

// " 12/938": the count is padded to the width of the total.
std::string FormatCount(int64_t step, int64_t steps) {
  return absl::StrFormat("%*d/%d", static_cast<int>(absl::StrCat(steps).size()), step, steps);
}

std::string Repeat(const char* character, int64_t times) {
  std::string text;
  for (int64_t i = 0; i < times; ++i) text += character;
  return text;
}

}  // namespace

Progress::Progress(const Options& options, const Clock& clock) : options_(options), clock_(clock) {}

void Progress::StartEpoch(int64_t epoch, int64_t epochs, int64_t steps) {
  epoch_ = epoch;
  steps_ = steps;
  step_ = 0;
  cluster_ = {};
  first_step_ = 0;
  start_ = clock_.Now();
  next_draw_ = start_;
  drawn_width_ = 0;
  if (options_.json) {
    Write(nlohmann::ordered_json{
              {"event", "epoch_begin"}, {"epoch", epoch}, {"epochs", epochs}, {"steps", steps}}
              .dump() +
          "\n");
    return;
  }
  Write(absl::StrCat("Epoch ", epoch, "/", epochs, "\n"));
}

void Progress::Update(int64_t step, absl::FunctionRef<ShownMetrics()> metrics) {
  step_ = step;
  const TimePoint now = clock_.Now();
  if (first_step_ == 0 && step > 0) {
    first_step_ = step;
    after_first_step_ = now;
  }
  if (!redraws()) {
    const bool due = options_.display_every > 0 && step % options_.display_every == 0 && step < steps_;
    if (due && options_.json) PrintEvent("step", metrics());
    if (due && !options_.json) PrintLine(metrics());
    return;
  }
  if (now < next_draw_) return;
  DrawBar(metrics(), /*last=*/false);
  next_draw_ = now + std::max<Duration>(kRedrawInterval, kPauseOfDrawings * (clock_.Now() - now));
}

void Progress::EndEpoch(const ShownMetrics& metrics) {
  if (options_.json) {
    PrintEvent("epoch_end", metrics);
    return;
  }
  if (options_.terminal) {
    DrawBar(metrics, /*last=*/true);
  } else {
    PrintLine(metrics);
  }
  if (cluster_.stale > 0 || cluster_.refused > 0) {
    Say(absl::StrCat("gradients that reached no update in this epoch: ", cluster_.stale, " came too late, ",
                     cluster_.refused, " came from lost workers or after the end"));
  }
}

void Progress::Say(const std::string& text) {
  Write((options_.json ? nlohmann::ordered_json{{"event", "message"}, {"message", text}}.dump() : text) +
        "\n");
}

void Progress::PrintEvent(const char* event, const ShownMetrics& metrics) {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const auto& [name, value] : metrics) {
    values[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  }
  nlohmann::ordered_json json = {{"event", event},
                                 {"epoch", epoch_},
                                 {"step", step_},
                                 {"steps", steps_},
                                 {"seconds", ToSeconds(clock_.Now() - start_)},
                                 {"metrics", values}};
  if (cluster_.examples_per_second > 0) {
    json["examples_per_second"] = cluster_.examples_per_second;
    json["gradients_stale"] = cluster_.stale;
    json["gradients_refused"] = cluster_.refused;
  }
  Write(json.dump() + "\n");
}

double Progress::SecondsPerStep() const {
  if (step_ == 0) return 0;
  const TimePoint now = clock_.Now();
  if (step_ > first_step_)
    return ToSeconds(now - after_first_step_) / static_cast<double>(step_ - first_step_);
  return ToSeconds(now - start_) / static_cast<double>(step_);
}

void Progress::DrawBar(const ShownMetrics& metrics, bool last) {
  const auto paint = [&](const char* color, const std::string& text) {
    return options_.color && !text.empty() ? absl::StrCat(color, text, kPlain) : text;
  };
  const double per_step = SecondsPerStep();
  const std::string count = FormatCount(step_, steps_);
  const std::string time = last ? absl::StrFormat("%.0fs", ToSeconds(clock_.Now() - start_))
                                : FormatTimeLeft(per_step * static_cast<double>(steps_ - step_));
  const std::string rate = cluster_.examples_per_second > 0
                               ? absl::StrFormat(" %.0f examples/s", cluster_.examples_per_second)
                               : "";
  std::string tail = absl::StrCat(" ", FormatStepTime(per_step), rate, FormatMetrics(metrics));

  // Widths in columns, not bytes: the bar's character has three bytes.
  const auto head_width = static_cast<int64_t>(count.size() + 1 + 1 + time.size());
  const auto width_of = [&](int64_t bar) { return head_width + bar + static_cast<int64_t>(tail.size()); };
  // The last line of an epoch is not redrawn, so it may be wider than the terminal.
  const int64_t limit = last ? std::numeric_limits<int64_t>::max() : WidthLimit();
  if (head_width + kSmallestBarWidth > limit) return;  // a wrapped line could not be overwritten
  if (width_of(kBarWidth) > limit) tail = absl::StrCat(" ", FormatStepTime(per_step), FormatMetrics(metrics));
  const int64_t bar =
      std::clamp<int64_t>(kBarWidth - (width_of(kBarWidth) - limit), kSmallestBarWidth, kBarWidth);
  if (width_of(bar) > limit) tail.resize(static_cast<size_t>(std::max<int64_t>(0, limit - head_width - bar)));
  const int64_t filled = steps_ > 0 ? std::min(bar, bar * step_ / steps_) : 0;
  const int64_t width = width_of(bar);
  const std::string padding(static_cast<size_t>(std::max<int64_t>(0, std::min(drawn_width_, limit) - width)),
                            ' ');
  drawn_width_ = width;
  Write(absl::StrCat("\r", paint(kBold, count), " ", paint(kGreen, Repeat("━", filled)),
                     paint(kWhite, Repeat(options_.color ? "━" : "─", bar - filled)), " ", paint(kBold, time),
                     tail, padding, last ? "\n" : ""));
}

int64_t Progress::WidthLimit() const {
  const int columns = options_.columns ? options_.columns() : 0;
  // On some terminals, a cursor after the last column wraps.
  return columns > 1 ? columns - 1 : std::numeric_limits<int64_t>::max();
}

void Progress::PrintLine(const ShownMetrics& metrics) {
  Write(absl::StrFormat("%s - %.0fs - %s%s\n", FormatCount(step_, steps_), ToSeconds(clock_.Now() - start_),
                        FormatStepTime(SecondsPerStep()), FormatMetrics(metrics)));
}

void Progress::Write(const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(options_.fd, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) return;  // a broken display must not stop training
    if (count > 0) written += static_cast<size_t>(count);
  }
}

}  // namespace cairn::worker
