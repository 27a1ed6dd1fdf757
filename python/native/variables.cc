#include "cairn/variables.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "native/bindings.h"
#include "native/waits.h"

namespace cairn::python {

namespace nb = nanobind;

namespace {

using Input = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

class PyVariables {
 public:
  PyVariables(ConnectOptions options, Log log) : waits_(std::move(log)) {
    waits_.Attach(options);
    waits_.Run([&] { return Variables::Open(options, &variables_); });
  }
  ~PyVariables() {
    if (!waits_.made_here()) static_cast<void>(variables_.release());
  }

  std::vector<ListedVariable> List() {
    std::vector<ListedVariable> listed;
    waits_.Run([&] { return variables_->List(&listed); });
    return listed;
  }
  void Create(const std::string& name, const std::vector<int64_t>& shape, const Input& values) {
    waits_.Run([&] { return variables_->Create(name, shape, std::span(values.data(), values.size())); });
  }
  Output Read(const std::string& name) {
    auto values = std::make_unique<std::vector<float>>();
    waits_.Run([&] { return variables_->Read(name, values.get()); });
    float* const data = values->data();
    const size_t size = values->size();
    const nb::capsule owner(values.release(),
                            [](void* held) noexcept { delete static_cast<std::vector<float>*>(held); });
    return Output(data, {size}, owner);
  }
  void Write(const std::string& name, const Input& values) {
    waits_.Run([&] { return variables_->Write(name, std::span(values.data(), values.size())); });
  }

 private:
  Waits waits_;
  std::unique_ptr<Variables> variables_;
};

}  // namespace

void BindVariables(nb::module_& module) {
  nb::class_<ListedVariable>(module, "ListedVariable")
      .def_ro("name", &ListedVariable::name)
      .def_ro("shape", &ListedVariable::shape)
      .def_ro("servers", &ListedVariable::servers);
  nb::class_<PyVariables>(module, "Variables")
      .def(nb::init<ConnectOptions, Log>(), nb::arg("options"), nb::arg("log"))
      .def("list", &PyVariables::List)
      .def("create", &PyVariables::Create, nb::arg("name"), nb::arg("shape"), nb::arg("values"))
      .def("read", &PyVariables::Read, nb::arg("name"))
      .def("write", &PyVariables::Write, nb::arg("name"), nb::arg("values"));
}

}  // namespace cairn::python
