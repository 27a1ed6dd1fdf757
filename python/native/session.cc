#include "cairn/session.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "native/bindings.h"
#include "native/waits.h"

namespace cairn::python {

namespace nb = nanobind;

namespace {

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

  // Raises IndexError for a number that no variable has.
  int Checked(int variable) const {
    if (variable < 0 || variable >= variables_) {
      throw nb::index_error(("no variable " + std::to_string(variable)).c_str());
    }
    return variable;
  }

 private:
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
};

Array View(std::span<const float> values, nb::handle owner) {
  const size_t size = values.size();
  return Array(const_cast<float*>(values.data()), {size}, owner);
}

// Which of value_places() has the current values: 0 or 1.
int CurrentPlace(PySession& self) {
  Session& session = self.session();
  return session.values().data() == session.value_places()[0].data() ? 0 : 1;
}

std::optional<StepResult> Finish(PySession& self, std::optional<std::chrono::milliseconds> within) {
  StepResult result;
  bool done = true;
  self.waits().Run([&] {
    if (!within.has_value()) return self.session().FinishStep(&result);
    return self.session().FinishStepWithin(*within, &done, &result);
  });
  if (!done) return std::nullopt;
  return result;
}

using Class = nb::class_<PySession>;

void BindValues(Class& session) {
  session
      .def(
          "values",
          [](nb::handle self, int place, int variable) {
            PySession& python = nb::cast<PySession&>(self);
            const Session& bound = python.session();
            const std::span<const float> part = bound.values(python.Checked(variable));
            const auto offset = static_cast<size_t>(part.data() - bound.values().data());
            return View(bound.value_places()[place == 0 ? 0 : 1].subspan(offset, part.size()), self);
          },
          nb::arg("place"), nb::arg("variable"))
      .def_prop_ro("place", &CurrentPlace)
      .def_prop_ro("version", [](PySession& self) { return self.session().version(); })
      .def("pull", [](PySession& self) { self.waits().Run([&] { return self.session().Pull(); }); });
}

void BindSteps(Class& session) {
  session
      .def(
          "gradients",
          [](nb::handle self, int variable) {
            PySession& python = nb::cast<PySession&>(self);
            return View(python.session().gradients(python.Checked(variable)), self);
          },
          nb::arg("variable"))
      .def(
          "begin_step",
          [](PySession& self, int64_t examples) { RaiseUnlessOk(self.session().BeginStep(examples)); },
          nb::arg("examples"))
      .def(
          "announce", [](PySession& self, int variable) { RaiseUnlessOk(self.session().Announce(variable)); },
          nb::arg("variable"))
      .def("finish_step", &Finish, nb::arg("within").none() = nb::none())
      .def("cancel_step",
           [](PySession& self) { self.waits().Run([&] { return self.session().CancelStep(); }); })
      .def_prop_ro("finished", [](PySession& self) { return self.session().finished(); })
      .def_prop_ro("position", [](PySession& self) { return self.session().position(); });
}

void BindWork(Class& session) {
  session
      .def("await_work",
           [](PySession& self) { self.waits().Run([&] { return self.session().AwaitWork(); }); })
      .def_prop_ro("work_items", [](PySession& self) { return self.session().work_items(); })
      .def_prop_ro("members", [](PySession& self) { return self.session().members(); });
}

void BindLife(Class& session) {
  session
      .def(
          "recover",
          [](PySession& self, int code, const std::string& message) {
            const Status failure(static_cast<StatusCode>(code), message);
            self.waits().Run([&] { return self.session().Recover(failure); });
          },
          nb::arg("code"), nb::arg("message"))
      .def("end", [](PySession& self) { self.waits().Run([&] { return self.session().End(); }); })
      .def(
          "leave",
          [](PySession& self, LeaveReason reason, const std::string& message) {
            self.waits().Run([&] {
              self.session().Leave(reason, message);
              return Status();
            });
          },
          nb::arg("reason"), nb::arg("message") = "")
      .def_prop_ro("made_in_this_process", [](PySession& self) { return self.waits().made_here(); });
}

void BindControl(Class& session) {
  session
      .def("save_checkpoint",
           [](PySession& self) { self.waits().Run([&] { return self.session().SaveCheckpoint(); }); })
      .def(
          "set_groups",
          [](PySession& self, const std::vector<GroupSettings>& groups) {
            RaiseUnlessOk(self.session().SetGroups(groups));
          },
          nb::arg("groups"))
      .def("counters", [](PySession& self) {
        Counters counters;
        self.waits().Run([&] { return self.session().GetCounters(&counters); });
        return counters;
      });
}

}  // namespace

void BindSession(nb::module_& module) {
  nb::enum_<LeaveReason>(module, "LeaveReason")
      .value("STOPPED", LeaveReason::kStopped)
      .value("FAILED", LeaveReason::kFailed);
  Class session(module, "Session");
  session.def(nb::init<const Job&, const SessionOptions&, FirstValues, Log>(), nb::arg("job"),
              nb::arg("options"), nb::arg("first_values").none(), nb::arg("log"));
  BindValues(session);
  BindSteps(session);
  BindWork(session);
  BindLife(session);
  BindControl(session);
}

}  // namespace cairn::python
