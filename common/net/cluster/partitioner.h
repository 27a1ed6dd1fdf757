// Which server stores which rows of a variable. Value types, constant after construction; any thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn::net {

class Partitioner {
 public:
  virtual ~Partitioner() = default;
  // The server that stores this row; -1 if no server does.
  virtual int ServerOf(int64_t row) const = 0;
};

// Every server stores ranges of consecutive rows.
class RangePartitioner final : public Partitioner {
 public:
  // Rows [begin, end) on a server, the first of which is at element `offset` of the server's arena.
  struct Range {
    int server = 0;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t offset = 0;
  };
  // `ranges` of a variable of that many rows, in any order. FAILED_PRECONDITION, naming the variable, unless each
  // row is on one server.
  static absl::StatusOr<RangePartitioner> Create(absl::string_view variable, int64_t rows,
                                                 std::vector<Range> ranges);

  int ServerOf(int64_t row) const override;
  // In the order of the rows.
  absl::Span<const Range> ranges() const { return ranges_; }

 private:
  explicit RangePartitioner(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}

  std::vector<Range> ranges_;
};

}  // namespace cairn::net
