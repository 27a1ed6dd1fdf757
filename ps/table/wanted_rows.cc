#include "ps/table/wanted_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/net/wire/row_frame.h"

namespace cairn::ps {
absl::Status WantedRows::Add(const v1::Rows& rows, net::Payload payload) {
  if (rows.table() == 0)
    return absl::InvalidArgumentError("variables are read by ranges of elements, not by rows");
  if (rows.table() < 0 || static_cast<size_t>(rows.table()) >= num_tables_) {
    return NoSuchTable(rows.table(), num_tables_);
  }
  CAIRN_ASSIGN_OR_RETURN(const auto received, net::ReceivedRows::Of(rows, payload, /*row_elements=*/0));
  const auto bytes = static_cast<int64_t>(received.ids().size() * sizeof(int64_t));
  if (!budget_->TryTake(bytes)) return budget_->Refusal("the ids of wanted rows", bytes);
  bytes_ += bytes;
  const auto number = static_cast<size_t>(rows.table());
  auto table = std::find_if(tables_.begin(), tables_.end(),
                            [number](const OfTable& known) { return known.table == number; });
  if (table == tables_.end()) table = tables_.insert(table, {.table = number});
  table->ids.insert(table->ids.end(), received.ids().begin(), received.ids().end());
  return absl::OkStatus();
}

absl::Span<const int64_t> WantedRows::ids(int64_t table) const {
  for (const OfTable& known : tables_) {
    if (static_cast<int64_t>(known.table) == table) return known.ids;
  }
  return {};
}

absl::StatusOr<AnsweredRows> ReadWanted(const Tables& tables, std::shared_ptr<const WantedRows> wanted) {
  AnsweredRows answer = {.version = tables.store().current().version};
  for (const WantedRows::OfTable& of_table : wanted->tables()) {
    CAIRN_ASSIGN_OR_RETURN(TableRows rows, tables[of_table.table].ReadRows(of_table.ids));
    CAIRN_CHECK(rows.elements != nullptr);
    answer.version = answer.tables.empty() ? rows.version : std::min(answer.version, rows.version);
    answer.tables.push_back(std::move(rows));
  }
  answer.wanted = std::move(wanted);
  return answer;
}

}  // namespace cairn::ps
