// The tables of a shard, by number. Table 0 has the job's variables; the others follow in the order of
// Job.tables. Constant after construction; the tables have their own rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ps/table/dense_table.h"
#include "ps/table/table.h"

namespace cairn::ps {

// INVALID_ARGUMENT for the number of a table that a shard with `size` tables lacks.
inline absl::Status NoSuchTable(int64_t number, size_t size) {
  return absl::InvalidArgumentError(
      absl::StrCat("there is no table ", number, ": the job has the tables 0 to ", size - 1));
}

class Tables {
 public:
  explicit Tables(std::unique_ptr<DenseTable> dense, std::vector<std::unique_ptr<Table>> others = {})
      : dense_(std::move(dense)), others_(std::move(others)) {}

  size_t size() const { return 1 + others_.size(); }
  Table& operator[](size_t number) const {
    return number == 0 ? static_cast<Table&>(*dense_) : *others_[number - 1];
  }
  DenseTable& dense() const { return *dense_; }
  // The variables' values, whose version is the version of the shard.
  optim::VariableStore& store() const { return dense_->store(); }

 private:
  const std::unique_ptr<DenseTable> dense_;
  const std::vector<std::unique_ptr<Table>> others_;
};

}  // namespace cairn::ps
