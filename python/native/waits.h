// Waits of a Python program: without the GIL, ended by Ctrl-C, with the library's log lines passed to Python's logger.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/connect.h"
#include "native/bindings.h"

namespace cairn::python {

using Log = nanobind::typed<nanobind::callable, void(nanobind::str)>;

// One for each connection of a program. All methods but the callbacks of options() are called with the GIL.
class Waits {
 public:
  // `log` is called with each line, by the thread that makes the calls: the library's own threads never take the GIL,
  // which they could not do while the interpreter ends.
  explicit Waits(Log log) : log_(std::move(log)) {}

  // Sets the callbacks of `options`, which refer to this object.
  void Attach(ConnectOptions& options) {
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    options.keep_waiting = [this] { return KeepWaiting(); };
  }

  // Runs `call`, which returns a Status, without the GIL, and raises its error: KeyboardInterrupt, or what else a
  // signal handler raised, before that of the call.
  template <typename Call>
  void Run(Call call) {
    CheckProcess();
    Status status;
    {
      const nanobind::gil_scoped_release without_gil;
      status = call();
    }
    ReportLines();
    if (std::optional<nanobind::python_error> raised = std::exchange(raised_, std::nullopt))
      throw *std::move(raised);
    RaiseUnlessOk(status);
  }

  // Raises unless this is the process that made the object: connections and their threads do not survive a fork.
  void CheckProcess() const {
    if (made_here()) return;
    RaiseUnlessOk(
        Status(StatusCode::kFailedPrecondition,
               "this connection was made in process " + std::to_string(process_) +
                   ", of which this process is a fork: connect again, or use the start method 'spawn'"));
  }
  bool made_here() const { return getpid() == process_; }

  // Passes on the lines that were logged since the last call.
  void ReportLines() {
    std::vector<std::string> lines;
    {
      const std::lock_guard lock(mutex_);
      lines.swap(lines_);
    }
    for (const std::string& line : lines) log_(line);
  }

 private:
  bool KeepWaiting() {
    const nanobind::gil_scoped_acquire with_gil;
    if (raised_.has_value()) return false;  // waits within waits all end
    try {
      ReportLines();
      if (PyErr_CheckSignals() == 0) return true;
      raised_.emplace();  // takes the error that the handler raised
    } catch (nanobind::python_error& error) {
      raised_.emplace(std::move(error));
    }
    return false;
  }

  const Log log_;
  const pid_t process_ = getpid();
  std::optional<nanobind::python_error> raised_;  // with the GIL
  std::mutex mutex_;
  std::vector<std::string> lines_;  // guarded by mutex_
};

}  // namespace cairn::python
