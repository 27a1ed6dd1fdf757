#include "client/rows/row_tables.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/row_frame.h"

namespace cairn::client {
namespace {

std::string NameOfTable(absl::string_view name) {
  return absl::StrCat("table '", name, "'");
}

}  // namespace

absl::StatusOr<RowTables> RowTables::Create(const v1::Job& job, int servers, const MakePartitioner& make) {
  RowTables tables;
  tables.servers_ = servers;
  tables.encoding_ = job.wire();
  if (make == nullptr) return tables;
  for (const v1::Table& table : job.tables()) {
    if (table.row_elements() < 1 || table.row_elements() > net::kMaxRowElements) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOfTable(table.name()), " has rows of ", table.row_elements(), " elements"));
    }
    auto partitioner = make(table, servers);
    if (!partitioner.ok()) return Annotate(partitioner.status(), NameOfTable(table.name()));
    tables.tables_.push_back(
        {.name = table.name(), .row_elements = table.row_elements(), .partitioner = *std::move(partitioner)});
  }
  return tables;
}

absl::StatusOr<DividedRows> RowTables::Divide(int number, absl::Span<const int64_t> keys) const {
  const Table& table = at(number);
  auto partition = RowPartition::Create(keys, *table.partitioner, servers_);
  if (!partition.ok()) return Annotate(partition.status(), NameOfTable(table.name));
  return DividedRows{.table = number,
                     .partition = std::make_shared<const RowPartition>(*std::move(partition))};
}

const RowTables::Table& RowTables::at(int number) const {
  CAIRN_CHECK(number >= 1 && static_cast<size_t>(number) <= tables_.size());
  return tables_[static_cast<size_t>(number) - 1];
}

}  // namespace cairn::client
