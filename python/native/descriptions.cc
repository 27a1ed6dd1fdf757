#include <nanobind/nanobind.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cairn/connect.h"
#include "cairn/job.h"
#include "cairn/session.h"
#include "native/bindings.h"

namespace cairn::python {

namespace nb = nanobind;

namespace {

void BindJob(nb::module_& module) {
  nb::enum_<Mode>(module, "Mode")
      .value("SYNC", Mode::kSync)
      .value("ASYNC", Mode::kAsync)
      .value("BOUNDED_STALENESS", Mode::kBoundedStaleness);
  nb::enum_<Encoding>(module, "Encoding")
      .value("FLOAT32", Encoding::kFloat32)
      .value("BFLOAT16", Encoding::kBfloat16)
      .value("FLOAT16", Encoding::kFloat16);
  nb::class_<Variable>(module, "Variable")
      .def(nb::init<>())
      .def_rw("name", &Variable::name)
      .def_rw("shape", &Variable::shape)
      .def_rw("moving_average_momentum", &Variable::moving_average_momentum, nb::arg().none())
      .def_rw("group", &Variable::group)
      .def_prop_ro("num_elements", &Variable::num_elements);
  nb::class_<LearningRateSchedule>(module, "LearningRateSchedule")
      .def(nb::init<>())
      .def_rw("name", &LearningRateSchedule::name)
      .def_rw("numbers", &LearningRateSchedule::numbers)
      .def_rw("boundaries", &LearningRateSchedule::boundaries)
      .def_rw("values", &LearningRateSchedule::values);
  nb::class_<Optimizer>(module, "Optimizer")
      .def(nb::init<>())
      .def_rw("name", &Optimizer::name)
      .def_rw("hyperparameters", &Optimizer::hyperparameters)
      .def_rw("schedule", &Optimizer::schedule, nb::arg().none());
  nb::class_<WorkQueue>(module, "WorkQueue")
      .def(nb::init<>())
      .def_rw("examples", &WorkQueue::examples)
      .def_rw("batch_size", &WorkQueue::batch_size)
      .def_rw("epochs", &WorkQueue::epochs)
      .def_rw("items_ahead", &WorkQueue::items_ahead)
      .def_rw("seed", &WorkQueue::seed);
  nb::class_<Job>(module, "Job")
      .def(nb::init<>())
      .def_rw("variables", &Job::variables)
      .def_rw("tables", &Job::tables)
      .def_rw("optimizer", &Job::optimizer)
      .def_rw("mode", &Job::mode)
      .def_rw("workers", &Job::workers)
      .def_rw("updates", &Job::updates)
      .def_rw("max_staleness", &Job::max_staleness)
      .def_rw("gradients_per_round", &Job::gradients_per_round)
      .def_rw("backups", &Job::backups)
      .def_rw("encoding", &Job::encoding)
      .def_rw("lease", &Job::lease)
      .def_rw("wait_for_lost_workers", &Job::wait_for_lost_workers)
      .def_rw("skip_empty_updates", &Job::skip_empty_updates)
      .def_rw("work_queue", &Job::work_queue, nb::arg().none())
      .def_rw("elastic", &Job::elastic)
      .def_rw("min_workers", &Job::min_workers)
      .def_rw("max_workers", &Job::max_workers);
}

void BindOptions(nb::module_& module) {
  nb::class_<ConnectOptions>(module, "ConnectOptions")
      .def(nb::init<>())
      .def_rw("servers", &ConnectOptions::servers)
      .def_rw("connect_timeout", &ConnectOptions::connect_timeout)
      .def_rw("tls_cert", &ConnectOptions::tls_cert)
      .def_rw("tls_key", &ConnectOptions::tls_key)
      .def_rw("tls_ca", &ConnectOptions::tls_ca)
      .def_rw("job_token_file", &ConnectOptions::job_token_file);
  nb::class_<SessionOptions>(module, "SessionOptions")
      .def(nb::init<>())
      .def_rw("connect", &SessionOptions::connect)
      .def_rw("worker", &SessionOptions::worker)
      .def_rw("task", &SessionOptions::task)
      .def_rw("step_timeout", &SessionOptions::step_timeout)
      .def_rw("checkpoint_directory", &SessionOptions::checkpoint_directory)
      .def_rw("checkpoint_every_updates", &SessionOptions::checkpoint_every_updates)
      .def_rw("checkpoint_every", &SessionOptions::checkpoint_every)
      .def_rw("checkpoints_to_keep", &SessionOptions::checkpoints_to_keep);
  nb::class_<GroupSettings>(module, "GroupSettings")
      .def(nb::init<>())
      .def_rw("learning_rate", &GroupSettings::learning_rate, nb::arg().none())
      .def_rw("hyperparameters", &GroupSettings::hyperparameters)
      .def_rw("untouched", &GroupSettings::untouched);
}

void BindResults(nb::module_& module) {
  nb::enum_<Outcome>(module, "Outcome")
      .value("ACCEPTED", Outcome::kAccepted)
      .value("STALE", Outcome::kStale)
      .value("FINISHED", Outcome::kFinished);
  nb::class_<StepResult>(module, "StepResult")
      .def_ro("outcome", &StepResult::outcome)
      .def_ro("staleness", &StepResult::staleness)
      .def_ro("duplicate", &StepResult::duplicate);
  nb::class_<WorkItem>(module, "WorkItem")
      .def_ro("epoch", &WorkItem::epoch)
      .def_ro("first", &WorkItem::first)
      .def_ro("count", &WorkItem::count);
  nb::class_<Counters>(module, "Counters")
      .def_ro("accepted", &Counters::accepted)
      .def_ro("stale", &Counters::stale)
      .def_ro("duplicate", &Counters::duplicate)
      .def_ro("rejected", &Counters::rejected)
      .def_ro("examples", &Counters::examples)
      .def_ro("staleness_max", &Counters::staleness_max);
}

}  // namespace

void BindDescriptions(nb::module_& module) {
  BindJob(module);
  BindOptions(module);
  BindResults(module);
}

}  // namespace cairn::python
