// The parts of the extension module cairn._native, which binds include/cairn for the Python code beside it. No logic of
// its own beyond Python's: the GIL, exceptions, signals and the lifetime of arrays. Only pooling.h computes.
#pragma once

#include <nanobind/nanobind.h>

#include "cairn/status.h"

namespace cairn::python {

// The structs of cairn/job.h and of the options and results of a session.
void BindDescriptions(nanobind::module_& module);
// Session, a worker of a job.
void BindSession(nanobind::module_& module);
// AllReduce, a worker of a group without servers.
void BindAllReduce(nanobind::module_& module);
// Variables, named variables on servers.
void BindVariables(nanobind::module_& module);

// Raises the class of cairn.errors for the status, unless it is OK. The GIL must be held.
void RaiseUnlessOk(const Status& status);

}  // namespace cairn::python
