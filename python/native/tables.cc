#include "native/tables.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/job.h"
#include "cairn/rows.h"
#include "cairn/session.h"
#include "native/bindings.h"

namespace cairn::python {

namespace nb = nanobind;

namespace {

using Ids = nb::ndarray<const int64_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<float, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Gradients = nb::ndarray<const float, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// The number of the table, ids, and memory for their rows or with their gradients.
using RowsOf = std::tuple<int, Ids, Rows>;
using GradientsOf = std::tuple<int, Ids, Gradients>;

std::vector<RowsToRead> ToRead(const std::vector<RowsOf>& rows) {
  std::vector<RowsToRead> entries;
  for (const auto& [table, ids, into] : rows) {
    entries.push_back({.table = table, .ids = {ids.data(), ids.size()}, .rows = {into.data(), into.size()}});
  }
  return entries;
}

template <typename Entry>
void KeepArrays(PySession& session, const std::vector<Entry>& entries) {
  for (const auto& [table, ids, elements] : entries) {
    session.KeepArray(nb::cast(ids));
    session.KeepArray(nb::cast(elements));
  }
}

void ReadRows(PySession& self, const std::vector<RowsOf>& rows) {
  const std::vector<RowsToRead> entries = ToRead(rows);
  self.waits().Run([&] { return self.session().ReadRows(entries); });
}

void PushRows(PySession& self, const std::vector<GradientsOf>& rows) {
  std::vector<RowGradients> entries;
  for (const auto& [table, ids, gradients] : rows) {
    entries.push_back(
        {.table = table, .ids = {ids.data(), ids.size()}, .gradients = {gradients.data(), gradients.size()}});
  }
  KeepArrays(self, rows);
  self.waits().Run([&] { return self.session().PushRows(entries); });
}

void WantRows(PySession& self, const std::vector<RowsOf>& rows) {
  const std::vector<RowsToRead> entries = ToRead(rows);
  KeepArrays(self, rows);
  self.waits().Run([&] { return self.session().WantRows(entries); });
}

// An array that owns the elements.
template <typename Element, typename Array>
Array Owned(std::vector<Element> elements, std::initializer_list<size_t> shape) {
  auto held = std::make_unique<std::vector<Element>>(std::move(elements));
  Element* const data = held->data();
  const nb::capsule owner(held.release(),
                          [](void* all) noexcept { delete static_cast<std::vector<Element>*>(all); });
  return Array(data, shape, owner);
}

using OwnedIds = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;
using OwnedPositions = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;
using OwnedRows = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

// The rows are one after another.
std::pair<OwnedIds, OwnedRows> ReadTable(PySession& self, int table) {
  std::vector<int64_t> ids;
  std::vector<float> rows;
  self.waits().Run([&] { return self.session().ReadTable(table, &ids, &rows); });
  const size_t count = ids.size(), elements = rows.size();
  return {Owned<int64_t, OwnedIds>(std::move(ids), {count}),
          Owned<float, OwnedRows>(std::move(rows), {elements})};
}

std::pair<OwnedIds, OwnedPositions> Compute(UniqueIds& self, const Ids& batch) {
  if (batch.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw nb::value_error(
        ("a batch of " + std::to_string(batch.size()) + " ids, at most 2147483647").c_str());
  }
  self.Compute({batch.data(), batch.size()});
  std::vector<int64_t> ids(self.ids().begin(), self.ids().end());
  std::vector<int32_t> positions(self.positions().begin(), self.positions().end());
  const size_t count = ids.size(), all = positions.size();
  return {Owned<int64_t, OwnedIds>(std::move(ids), {count}),
          Owned<int32_t, OwnedPositions>(std::move(positions), {all})};
}

}  // namespace

void BindTables(nb::module_& module) {
  nb::enum_<Table::FirstValues>(module, "FirstValues")
      .value("CONSTANT", Table::FirstValues::kConstant)
      .value("UNIFORM", Table::FirstValues::kUniform)
      .value("NORMAL", Table::FirstValues::kNormal)
      .value("TRUNCATED_NORMAL", Table::FirstValues::kTruncatedNormal);
  nb::class_<Table>(module, "Table")
      .def(nb::init<>())
      .def_rw("name", &Table::name)
      .def_rw("width", &Table::width)
      .def_rw("rows", &Table::rows)
      .def_rw("first_values", &Table::first_values)
      .def_rw("center", &Table::center)
      .def_rw("spread", &Table::spread)
      .def_rw("seed", &Table::seed)
      .def_rw("optimizer", &Table::optimizer, nb::arg().none());
  nb::class_<UniqueIds>(module, "UniqueIds").def(nb::init<>()).def("compute", &Compute, nb::arg("batch"));
}

void BindRows(SessionClass& session) {
  session.def("read_rows", &ReadRows, nb::arg("rows"))
      .def("push_rows", &PushRows, nb::arg("rows"))
      .def("want_rows", &WantRows, nb::arg("rows"))
      .def_prop_ro("has_wanted_rows", [](PySession& self) { return self.session().has_wanted_rows(); })
      .def("read_table", &ReadTable, nb::arg("table"));
}

}  // namespace cairn::python
