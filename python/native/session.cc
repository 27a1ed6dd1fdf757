#include "cairn/session.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "native/bindings.h"
#include "native/py_session.h"
#include "native/tables.h"
#include "native/waits.h"

namespace cairn::python {

namespace nb = nanobind;

namespace {

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
  bool ended = false;
  const int place = CurrentPlace(self);
  try {
    self.waits().Run([&] {
      Status status = within.has_value() ? self.session().FinishStepWithin(*within, &done, &result)
                                         : self.session().FinishStep(&result);
      ended = status.ok() && done;
      return status;
    });
  } catch (...) {
    // Ctrl-C may raise after the step has ended, and a step may fail after its values have arrived.
    if (ended || CurrentPlace(self) != place) self.CountChange();
    throw;
  }
  if (!done) return std::nullopt;
  self.CountChange();
  return result;
}

void BindValues(SessionClass& session) {
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
      .def("installed", &PySession::OnInstall)
      .def("changed_value", &PySession::ChangedValue)
      .def_prop_ro("version", [](PySession& self) { return self.session().version(); })
      .def("pull",
           [](PySession& self) {
             self.CountChange();
             self.waits().Run([&] { return self.session().Pull(); });
           })
      .def_prop_ro("changes", &PySession::changes);
}

void BindSteps(SessionClass& session) {
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
          [](PySession& self, int64_t examples) {
            RaiseUnlessOk(self.session().BeginStep(examples));
            self.OnBegin();
          },
          nb::arg("examples"))
      .def(
          "announce",
          [](PySession& self, int variable) {
            RaiseUnlessOk(self.session().Announce(variable));
            self.OnAnnounce(variable);
          },
          nb::arg("variable"))
      .def("changed_gradient", &PySession::ChangedGradient)
      .def("finish_step", &Finish, nb::arg("within").none() = nb::none())
      .def("cancel_step",
           [](PySession& self) { self.waits().Run([&] { return self.session().CancelStep(); }); })
      .def_prop_ro("finished", [](PySession& self) { return self.session().finished(); })
      .def_prop_ro("position", [](PySession& self) { return self.session().position(); });
}

void BindWork(SessionClass& session) {
  session
      .def("await_work",
           [](PySession& self) {
             self.CountChange();
             self.waits().Run([&] { return self.session().AwaitWork(); });
           })
      .def_prop_ro("work_items", [](PySession& self) { return self.session().work_items(); })
      .def_prop_ro("members", [](PySession& self) { return self.session().members(); });
}

void BindLife(SessionClass& session) {
  session
      .def(
          "recover",
          [](PySession& self, int code, const std::string& message) {
            const Status failure(static_cast<StatusCode>(code), message);
            self.CountChange();
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

void BindControl(SessionClass& session) {
  session
      .def("save_checkpoint",
           [](PySession& self) { self.waits().Run([&] { return self.session().SaveCheckpoint(); }); })
      .def(
          "set_groups",
          [](PySession& self, const std::vector<GroupSettings>& groups) {
            RaiseUnlessOk(self.session().SetGroups(groups));
          },
          nb::arg("groups"))
      .def(
          "set_learning_rate",
          [](PySession& self, float rate) {
            self.waits().Run([&] { return self.session().SetLearningRate(rate); });
          },
          nb::arg("rate"))
      // ({slot: an array of all variables' elements}, [group] updates)
      .def("optimizer_state",
           [](PySession& self) {
             OptimizerState state;
             self.waits().Run([&] { return self.session().ReadOptimizerState(&state); });
             nb::typed<nb::dict, nb::str, Array> slots;
             for (auto& [name, values] : state.slots) {
               auto* const owned = new std::vector<float>(std::move(values));
               const nb::capsule owner(
                   owned, [](void* memory) noexcept { delete static_cast<std::vector<float>*>(memory); });
               slots[nb::str(name.c_str())] = Array(owned->data(), {owned->size()}, owner);
             }
             return std::pair(std::move(slots), state.updates);
           })
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
  SessionClass session(module, "Session");
  session.def(nb::init<const Job&, const SessionOptions&, FirstValues, Log>(), nb::arg("job"),
              nb::arg("options"), nb::arg("first_values").none(), nb::arg("log"));
  BindValues(session);
  BindSteps(session);
  BindWork(session);
  BindLife(session);
  BindControl(session);
  BindRows(session);
}

}  // namespace cairn::python
