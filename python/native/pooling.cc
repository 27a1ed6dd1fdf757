#include "native/pooling.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn::python {

namespace nb = nanobind;

namespace {

using Positions = nb::ndarray<const int32_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<const int64_t, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Factors = nb::ndarray<const float, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const float, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Sums = nb::ndarray<float, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A call per row would take longer than its few elements.
void CopyRow(const float* from, size_t width, float* to) {
  for (size_t i = 0; i < width; ++i) to[i] = from[i];
}
void AddRow(const float* from, size_t width, float* to) {
  for (size_t i = 0; i < width; ++i) to[i] += from[i];
}
void AddRow(float factor, const float* from, size_t width, float* to) {
  for (size_t i = 0; i < width; ++i) to[i] += factor * from[i];
}

// Bags of several tables, whose sums are side by side: [example][feature][element]. A table has the bags of all
// examples of its first feature, then those of the next one.
class BagSums {
 public:
  explicit BagSums(int64_t examples) : examples_(static_cast<size_t>(std::max<int64_t>(examples, 0))) {}

  // The bags of the next table: the position of each id's row, the ends of the bags or else bags of equal lengths, and
  // a factor for each id or else 1.
  void Add(int64_t features, Positions positions, std::optional<Ends> ends, std::optional<Factors> factors) {
    const size_t bags = examples_ * static_cast<size_t>(std::max<int64_t>(features, 0)),
                 ids = positions.size();
    const bool fit = ends.has_value() ? AreEnds(*ends, bags, ids) : bags == 0 ? ids == 0 : ids % bags == 0;
    if (!fit)
      throw nb::value_error(
          (std::to_string(ids) + " ids do not make " + std::to_string(bags) + " bags").c_str());
    if (factors.has_value() && factors->size() != ids) throw nb::value_error("a factor for each id");
    tables_.push_back(
        {static_cast<size_t>(features), bags, std::move(positions), std::move(ends), std::move(factors)});
  }

  // `sums`: [example][column]; every element is set.
  void Sum(const std::vector<Rows>& rows, const Sums& sums) const {
    Check(rows, sums.shape(0), sums.shape(1));
    const nb::gil_scoped_release without_gil;
    ForEachBag(rows, sums.shape(1),
               [&](const Table& table, size_t number, size_t place, size_t begin, size_t end) {
                 const size_t width = rows[number].shape(1);
                 float* const sum = sums.data() + place;
                 if (begin == end) std::fill_n(sum, width, 0.0f);
                 for (size_t i = begin; i < end; ++i) {
                   const float* const row =
                       rows[number].data() + static_cast<size_t>(table.positions.data()[i]) * width;
                   if (table.factors.has_value()) {
                     if (i == begin) std::fill_n(sum, width, 0.0f);
                     AddRow(table.factors->data()[i], row, width, sum);
                   } else if (i == begin) {
                     CopyRow(row, width, sum);
                   } else {
                     AddRow(row, width, sum);
                   }
                 }
               });
  }

  // Adds to the gradient of each row, in the order of the bags.
  void AddGradients(const Rows& of_sums, const std::vector<Sums>& gradients) const {
    Check(gradients, of_sums.shape(0), of_sums.shape(1));
    const nb::gil_scoped_release without_gil;
    ForEachBag(gradients, of_sums.shape(1),
               [&](const Table& table, size_t number, size_t place, size_t begin, size_t end) {
                 const size_t width = gradients[number].shape(1);
                 const float* const of_sum = of_sums.data() + place;
                 for (size_t i = begin; i < end; ++i) {
                   float* const gradient =
                       gradients[number].data() + static_cast<size_t>(table.positions.data()[i]) * width;
                   if (table.factors.has_value()) {
                     AddRow(table.factors->data()[i], of_sum, width, gradient);
                   } else {
                     AddRow(of_sum, width, gradient);
                   }
                 }
               });
  }

 private:
  struct Table {
    size_t features = 0, bags = 0;
    Positions positions{};
    std::optional<Ends> ends{};
    std::optional<Factors> factors{};
  };

  static bool AreEnds(const Ends& ends, size_t bags, size_t ids) {
    const int64_t* const all = ends.data();
    return ends.size() == bags && std::is_sorted(all, all + bags) &&
           (bags == 0 ? ids == 0 : all[0] >= 0 && all[bags - 1] == static_cast<int64_t>(ids));
  }

  template <typename Array>
  void Check(const std::vector<Array>& rows, size_t examples, size_t columns) const {
    size_t all = 0;
    for (size_t i = 0; i < rows.size() && i < tables_.size(); ++i)
      all += tables_[i].features * rows[i].shape(1);
    if (rows.size() != tables_.size() || examples != examples_ || columns != all) {
      throw nb::value_error("rows of other tables, or sums of another shape");
    }
  }

  // Calls `use` with the table and its number, the place of the bag's sum, and the begin and the end of its ids.
  template <typename Array, typename Use>
  void ForEachBag(const std::vector<Array>& rows, size_t columns, Use use) const {
    size_t column = 0;
    for (size_t number = 0; number < tables_.size(); ++number) {
      const Table& table = tables_[number];
      const size_t width = rows[number].shape(1),
                   length = table.bags == 0 ? 0 : table.positions.size() / table.bags;
      size_t begin = 0;
      for (size_t bag = 0; bag < table.bags; ++bag) {
        const size_t end =
            table.ends.has_value() ? static_cast<size_t>(table.ends->data()[bag]) : begin + length;
        use(table, number, bag % examples_ * columns + column + bag / examples_ * width, begin, end);
        begin = end;
      }
      column += table.features * width;
    }
  }

  const size_t examples_;
  std::vector<Table> tables_;
};

}  // namespace

void BindPooling(nb::module_& module) {
  nb::class_<BagSums>(module, "BagSums")
      .def(nb::init<int64_t>(), nb::arg("examples"))
      .def("add", &BagSums::Add, nb::arg("features"), nb::arg("positions"), nb::arg("ends").none(),
           nb::arg("factors").none())
      .def("sum", &BagSums::Sum, nb::arg("rows"), nb::arg("sums").noconvert())
      .def("add_gradients", &BagSums::AddGradients, nb::arg("of_sums"), nb::arg("gradients").noconvert());
}

}  // namespace cairn::python
