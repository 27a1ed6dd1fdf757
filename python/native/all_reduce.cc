#include "cairn/all_reduce.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "native/bindings.h"
#include "native/waits.h"

namespace cairn::python {

namespace nb = nanobind;

namespace {

using Floats = nb::ndarray<nb::numpy, float, nb::ndim<1>, nb::device::cpu>;
using Save = nb::typed<nb::callable, nb::bytes()>;
using Load = nb::typed<nb::callable, void(nb::bytes)>;

class PyAllReduce {
 public:
  PyAllReduce(const Job& job, const AllReduceOptions& options, Save save, Load load, Log log)
      : waits_(std::move(log)), save_(std::move(save)), load_(std::move(load)) {
    AllReduceOptions with_callbacks = options;
    waits_.Attach(with_callbacks.connect);
    with_callbacks.save = [this](std::string* state) {
      return Call([&] {
        const auto bytes = nb::cast<nb::bytes>(save_());
        state->assign(bytes.c_str(), bytes.size());
      });
    };
    with_callbacks.load = [this](const std::string& state) {
      return Call([&] { load_(nb::bytes(state.data(), state.size())); });
    };
    Run([&] { return AllReduce::Open(job, with_callbacks, &all_reduce_); });
    variables_ = static_cast<int>(job.variables.size());
  }

  ~PyAllReduce() {
    if (!waits_.made_here()) {
      // A fork has the memory of the object, and none of its threads.
      static_cast<void>(all_reduce_.release());
      return;
    }
    const nb::gil_scoped_release without_gil;
    all_reduce_.reset();
  }

  AllReduce& all_reduce() {
    waits_.CheckProcess();
    return *all_reduce_;
  }
  Waits& waits() { return waits_; }

  // Runs a call that may save or load the program's state, and raises first what that raised.
  template <typename Function>
  void Run(Function call) {
    try {
      waits_.Run(std::move(call));
    } catch (...) {
      if (raised_.has_value()) throw *std::exchange(raised_, std::nullopt);
      throw;
    }
  }

  int Checked(int variable) const {
    if (variable < 0 || variable >= variables_) {
      throw nb::index_error(("no variable " + std::to_string(variable)).c_str());
    }
    return variable;
  }

 private:
  template <typename Function>
  Status Call(Function call) {
    const nb::gil_scoped_acquire with_gil;
    try {
      call();
      return Status();
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
      return Status(StatusCode::kCancelled, "the state could not be saved or loaded");
    } catch (const std::exception& error) {
      return Status(StatusCode::kInvalidArgument, std::string("save or load: ") + error.what());
    }
  }

  Waits waits_;  // outlives the object that calls it
  const Save save_;
  const Load load_;
  std::unique_ptr<AllReduce> all_reduce_;
  std::optional<nb::python_error> raised_;
  int variables_ = 0;
};

// The mean of the last step; empty if it had no examples. Keeps its memory alive.
Floats MeanOf(nb::handle self) {
  AllReduce::Mean mean = nb::cast<PyAllReduce&>(self).all_reduce().mean();
  const size_t size = mean.values.size();
  if (mean.owner == nullptr) return Floats(mean.values.data(), {size}, self);
  auto* const owner = new std::shared_ptr<const void>(std::move(mean.owner));
  const nb::capsule keeper(
      owner, [](void* owned) noexcept { delete static_cast<std::shared_ptr<const void>*>(owned); });
  return Floats(mean.values.data(), {size}, keeper);
}

AllReduceStep Finish(PyAllReduce& self) {
  AllReduceStep step;
  self.waits().Run([&] { return self.all_reduce().FinishStep(&step); });
  return step;
}

using Class = nb::class_<PyAllReduce>;

void BindSteps(Class& all_reduce) {
  all_reduce
      .def(
          "gradients",
          [](nb::handle self, int variable) {
            PyAllReduce& python = nb::cast<PyAllReduce&>(self);
            const std::span<float> part = python.all_reduce().gradients(python.Checked(variable));
            const size_t size = part.size();
            return Floats(part.data(), {size}, self);
          },
          nb::arg("variable"))
      .def(
          "begin_step",
          [](PyAllReduce& self, int64_t examples, bool done) {
            RaiseUnlessOk(self.all_reduce().BeginStep(examples, done));
          },
          nb::arg("examples"), nb::arg("done") = false)
      .def(
          "announce",
          [](PyAllReduce& self, int variable) { RaiseUnlessOk(self.all_reduce().Announce(variable)); },
          nb::arg("variable"))
      .def("finish_step", &Finish)
      .def("cancel_step",
           [](PyAllReduce& self) {
             bool loaded = false;
             self.Run([&] { return self.all_reduce().CancelStep(&loaded); });
             return loaded;
           })
      .def("mean", &MeanOf)
      .def("await_sent", [](PyAllReduce& self) { self.Run([&] { return self.all_reduce().AwaitSent(); }); })
      .def_prop_ro("version", [](PyAllReduce& self) { return self.all_reduce().version(); });
}

void BindLife(Class& all_reduce) {
  all_reduce
      .def(
          "recover",
          [](PyAllReduce& self, int code, const std::string& message) {
            bool loaded = false;
            const Status failure(static_cast<StatusCode>(code), message);
            self.Run([&] { return self.all_reduce().Recover(failure, &loaded); });
            return loaded;
          },
          nb::arg("code"), nb::arg("message"))
      .def("end", [](PyAllReduce& self) { self.Run([&] { return self.all_reduce().End(); }); })
      .def(
          "leave",
          [](PyAllReduce& self, LeaveReason reason, const std::string& message) {
            self.Run([&] {
              self.all_reduce().Leave(reason, message);
              return Status();
            });
          },
          nb::arg("reason"), nb::arg("message") = "")
      .def_prop_ro("made_in_this_process", [](PyAllReduce& self) { return self.waits().made_here(); });
}

}  // namespace

void BindAllReduce(nb::module_& module) {
  nb::class_<AllReduceOptions>(module, "AllReduceOptions")
      .def(nb::init<>())
      .def_rw("connect", &AllReduceOptions::connect)
      .def_rw("workers", &AllReduceOptions::workers)
      .def_rw("worker", &AllReduceOptions::worker)
      .def_rw("reuse_port", &AllReduceOptions::reuse_port)
      .def_rw("step_timeout", &AllReduceOptions::step_timeout)
      .def_rw("lease", &AllReduceOptions::lease)
      .def_rw("description", &AllReduceOptions::description);
  nb::class_<AllReduceStep>(module, "AllReduceStep")
      .def_ro("examples", &AllReduceStep::examples)
      .def_ro("done", &AllReduceStep::done);
  Class all_reduce(module, "AllReduce");
  all_reduce.def(nb::init<const Job&, const AllReduceOptions&, Save, Load, Log>(), nb::arg("job"),
                 nb::arg("options"), nb::arg("save"), nb::arg("load"), nb::arg("log"));
  BindSteps(all_reduce);
  BindLife(all_reduce);
}

}  // namespace cairn::python
