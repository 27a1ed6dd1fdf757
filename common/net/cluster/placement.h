// Assigns the rows of variables to servers, and to positions among each server's values.
//
// The values of a server are one flat array of floats (its arena): its slices, one after another. Pushes and
// pulls address the arena, so small variables travel packed together, without a message per variable. The
// chief decides the placement with PlaceVariables(); all others learn it from the servers and map through a
// Layout. Value types; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/core/constraint.h"
#include "common/core/shape.h"
#include "common/net/cluster/partitioner.h"

namespace cairn::net {

// A variable as its user sees it: whole, at `offset` of the user's flat buffer.
struct VariableInfo {
  std::string name;
  Shape shape;
  int64_t offset = 0;  // elements
  // Absent if the optimizer trains the variable; otherwise see v1::VariableSlice.
  std::optional<float> moving_average_momentum{};
  // How the optimizer's updates are constrained; for the shape, Constraint::Check() is OK.
  std::optional<Constraint> constraint{};
};

// Rows [row_begin, row_end) of a variable, at `offset` of its server's arena.
struct Slice {
  std::string name;
  Shape shape;  // the shape of the whole variable
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t offset = 0;                              // elements
  std::optional<float> moving_average_momentum{};  // as in VariableInfo
  std::optional<Constraint> constraint{};          // as in VariableInfo

  bool whole() const { return elements() == shape.num_elements(); }
  // Whether the slice consists of whole bands: see RowsPerBand().
  bool whole_bands() const;
  int64_t elements() const { return (row_end - row_begin) * shape.row_elements(); }
  v1::VariableSlice ToProto() const;
  // INVALID_ARGUMENT naming the variable, for rows outside its shape, a momentum outside [0, 1], or a constraint that
  // does not fit the shape or needs all rows.
  static absl::StatusOr<Slice> FromProto(const v1::VariableSlice& proto);
};

// The number of rows of a band. A sum over a variable's elements, as norms need it, is taken over each band
// (the last one may be shorter) and then over the bands in order. PlaceVariables() cuts a variable only
// between bands, so the sum is the same to the bit however the variable is split. A variable has at most 256
// bands, whose sums servers exchange if the variable is split.
int64_t RowsPerBand(const Shape& shape);

struct PlacementOptions {
  int servers = 1;
  // Variables larger than this are split into even parts, between bands of rows, and at most one part per
  // server. 0: a variable is split only to balance the servers, into parts of at least 128 KiB.
  int64_t split_bytes = 0;
};

// Slices per server [servers], balanced by bytes: by default, no server has more than 256 KiB plus four bands
// of a variable above an even share, unless a variable cannot be split: one with a constraint that needs all rows.
// A server has at most one slice of a variable. Depends only on the arguments. Within a server, slices keep the
// order of the variables.
std::vector<std::vector<Slice>> PlaceVariables(absl::Span<const VariableInfo> variables,
                                               const PlacementOptions& options);

// A run of elements that is contiguous both in the user's flat buffer and in a server's arena.
struct Extent {
  int server = 0;
  int64_t server_offset = 0;  // elements, in the arena
  int64_t local_offset = 0;   // elements, in the flat buffer
  int64_t count = 0;          // elements
};

// Maps between a user's flat buffer and the servers' arenas.
class Layout {
 public:
  // `slices` [server]: the slices that each server reports. Variables of the servers that are not in
  // `variables` are left out. Errors name the variable:
  //   INVALID_ARGUMENT: `variables` has one name twice.
  //   FAILED_PRECONDITION: rows of a variable are on no server or on two, a server has another shape for it,
  //   or a server's slices are not contiguous.
  static absl::StatusOr<Layout> Create(absl::Span<const VariableInfo> variables,
                                       absl::Span<const std::vector<Slice>> slices);

  int servers() const { return static_cast<int>(arena_sizes_.size()); }
  int64_t arena_size(int server) const { return arena_sizes_[static_cast<size_t>(server)]; }
  // Extents of `variable` (an index in the order of `variables`), in the order of its rows.
  absl::Span<const Extent> extents_of(int variable) const {
    return extents_by_variable_[static_cast<size_t>(variable)];
  }
  // Which server stores which rows of `variable`, as extents_of().
  const Partitioner& partitioner_of(int variable) const {
    return partitioners_[static_cast<size_t>(variable)];
  }
  // The extents of a server, by ascending server_offset. Variables that are adjacent on both sides share an
  // extent.
  absl::Span<const Extent> extents_on(int server) const {
    return extents_by_server_[static_cast<size_t>(server)];
  }
  // Whether the user has all variables that `server` stores, so that a push can cover its arena.
  bool covers(int server) const;

 private:
  std::vector<int64_t> arena_sizes_;                      // [server]
  std::vector<RangePartitioner> partitioners_;            // [variable]
  std::vector<std::vector<Extent>> extents_by_variable_;  // [variable]
  std::vector<std::vector<Extent>> extents_by_server_;    // [server]
};

}  // namespace cairn::net
