// The sums of rows of embedding tables that bags name, and the gradients of these rows.
#pragma once

#include <nanobind/nanobind.h>

namespace cairn::python {

// BagSums: the sums over bags of several tables. Python has the modes of pooling: cairn/torch/pooling.py.
void BindPooling(nanobind::module_& module);

}  // namespace cairn::python
