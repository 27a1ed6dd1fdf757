#include <nanobind/nanobind.h>

#include "native/bindings.h"
#include "native/pooling.h"
#include "native/tables.h"

namespace cairn::python {

namespace nb = nanobind;

void RaiseUnlessOk(const Status& status) {
  if (status.ok()) return;
  const nb::object error =
      nb::module_::import_("cairn.errors")
          .attr("error_of")(static_cast<int>(status.code()), nb::str(status.message().c_str()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace cairn::python

NB_MODULE(_native, module) {
  // Modules of a program may hold a job until the interpreter ends, which frees their objects in no order.
  nanobind::set_leak_warnings(false);
  module.doc() = "Binds Cairn's C++ library. Private: use the package cairn.";
  cairn::python::BindTables(module);
  cairn::python::BindPooling(module);
  cairn::python::BindDescriptions(module);
  cairn::python::BindSession(module);
  cairn::python::BindAllReduce(module);
  cairn::python::BindVariables(module);
}
