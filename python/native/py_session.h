// Session for Python: waits without the GIL, first values from a Python function, and the arrays that a step refers to.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/session.h"
#include "native/samples.h"
#include "native/waits.h"

namespace cairn::python {

namespace nb = nanobind;

// Arrays that refer to the session's memory and keep the session alive.
using Array = nb::ndarray<nb::numpy, float, nb::ndim<1>, nb::device::cpu>;
// Receives a writable array of all values; may be None.
using FirstValues = std::optional<nb::typed<nb::callable, void(Array)>>;

class PySession {
 public:
  // `first_values` is called if the servers have no values.
  PySession(const Job& job, const SessionOptions& options, FirstValues first_values, Log log)
      : waits_(std::move(log)) {
    SessionOptions with_callbacks = options;
    waits_.Attach(with_callbacks.connect);
    if (first_values.has_value()) {
      fill_ = &*first_values;
      keep_first_ = !options.checkpoint_directory.empty();
      with_callbacks.first_values = [this](std::span<float> values) { return Fill(values); };
    }
    try {
      waits_.Run([&] { return Session::Open(job, with_callbacks, &session_); });
    } catch (...) {
      fill_ = nullptr;
      if (failed_fill_) throw *std::move(failed_fill_);
      throw;
    }
    fill_ = nullptr;
    variables_ = static_cast<int>(job.variables.size());
  }

  ~PySession() {
    if (!waits_.made_here()) {
      // A fork has the memory of the session, and none of its threads.
      static_cast<void>(session_.release());
      return;
    }
    const nb::gil_scoped_release without_gil;
    session_.reset();
  }

  Session& session() {
    waits_.CheckProcess();
    return *session_;
  }
  Waits& waits() { return waits_; }

  // Counts the times at which the values may have changed: rows that were read before one belong to older values.
  int64_t changes() const { return changes_; }
  void CountChange() { ++changes_; }

  // A step has begun: the arrays of the one before are free, and gradients may change until they are announced.
  void OnBegin() {
    arrays_.clear();
    announced_.Clear();
  }
  // Keeps an array until the next step begins.
  void KeepArray(nb::object array) { arrays_.push_back(std::move(array)); }

  // The gradient of a variable was announced, and must not change until the step ends.
  void OnAnnounce(int variable) {
    announced_.Record(static_cast<size_t>(variable), session().gradients(variable));
  }
  // An announced gradient that has changed since.
  std::optional<int> ChangedGradient() {
    return FindChanged(announced_, [&](int variable) { return session().gradients(variable); });
  }
  // The program uses the current values, and must not change them.
  void OnInstall() {
    for (int variable = 0; variable < variables_; ++variable) {
      installed_.Record(static_cast<size_t>(variable), session().values(variable));
    }
  }
  // A variable whose values have changed since OnInstall().
  std::optional<int> ChangedValue() {
    return FindChanged(installed_, [&](int variable) { return session().values(variable); });
  }

  // Raises IndexError for a number that no variable has.
  int Checked(int variable) const {
    if (variable < 0 || variable >= variables_) {
      throw nb::index_error(("no variable " + std::to_string(variable)).c_str());
    }
    return variable;
  }

 private:
  template <typename Current>
  std::optional<int> FindChanged(const Samples& samples, const Current& current) const {
    for (int variable = 0; variable < variables_; ++variable) {
      if (samples.Differs(static_cast<size_t>(variable), current(variable))) return variable;
    }
    return std::nullopt;
  }

  // Called again if servers lose their values before there is a checkpoint: the job then begins again.
  Status Fill(std::span<float> values) {
    if (first_.size() == values.size()) {
      std::copy(first_.begin(), first_.end(), values.begin());
      return Status();
    }
    if (fill_ == nullptr) {
      return Status(StatusCode::kFailedPrecondition,
                    "the servers lost their values before the first checkpoint: start the job again");
    }
    const nb::gil_scoped_acquire with_gil;
    try {
      const size_t size = values.size();
      (*fill_)(Array(values.data(), {size}, nb::none()));  // with an owner, so that it is no copy
      if (keep_first_) first_.assign(values.begin(), values.end());
      return Status();
    } catch (nb::python_error& error) {
      failed_fill_.emplace(std::move(error));
      return Status(StatusCode::kCancelled, "the first values could not be computed");
    }
  }

  Waits waits_;  // outlives the session, which calls it
  std::unique_ptr<Session> session_;
  std::optional<nb::python_error> failed_fill_;
  const nb::callable* fill_ = nullptr;  // during the constructor
  bool keep_first_ = false;
  std::vector<float> first_;  // with checkpoints, if this process provided them
  int variables_ = 0;
  int64_t changes_ = 0;
  Samples announced_;
  Samples installed_;
  std::vector<nb::object> arrays_;  // of rows, whose memory the step in progress refers to
};

using SessionClass = nb::class_<PySession>;

}  // namespace cairn::python
