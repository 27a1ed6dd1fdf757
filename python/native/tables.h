// Rows of embedding tables: the calls of Session that take them, and the distinct ids of a batch.
#pragma once

#include <nanobind/nanobind.h>

#include "native/py_session.h"

namespace cairn::python {

// Table and its distributions, of which a Job has a list; UniqueIds.
void BindTables(nanobind::module_& module);
void BindRows(SessionClass& session);

}  // namespace cairn::python
