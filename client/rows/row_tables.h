// The tables of a job, as a client that exchanges rows with them knows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/job.pb.h"
#include "client/rows/row_partition.h"
#include "common/net/cluster/partitioner.h"

namespace cairn::client {

// Makes the partitioner of a table that is divided among so many servers. INVALID_ARGUMENT for a kind of table
// that this client does not know.
using MakePartitioner =
    std::function<absl::StatusOr<std::unique_ptr<net::Partitioner>>(const v1::Table& table, int servers)>;

// Constant after construction; any thread.
class RowTables {
 public:
  RowTables() = default;
  // INVALID_ARGUMENT, naming the table, for a table that this client cannot use. `make` may be null: no table can be
  // used, and a job with tables is accepted.
  static absl::StatusOr<RowTables> Create(const v1::Job& job, int servers, const MakePartitioner& make);

  // The elements of a row of table `number`, which must exist: CHECK.
  int64_t row_elements(int number) const { return at(number).row_elements; }
  // The keys of rows of the table. INVALID_ARGUMENT, naming table and key.
  absl::StatusOr<DividedRows> Divide(int number, absl::Span<const int64_t> keys) const;
  int servers() const { return servers_; }
  v1::Encoding encoding() const { return encoding_; }

 private:
  struct Table {
    std::string name;
    int64_t row_elements = 0;
    std::unique_ptr<net::Partitioner> partitioner;
  };
  const Table& at(int number) const;

  int servers_ = 0;
  v1::Encoding encoding_ = v1::ENCODING_FLOAT32;
  std::vector<Table> tables_;  // [number - 1]
};

}  // namespace cairn::client
