#include "common/net/cluster/placement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::net {
namespace {

// The smallest part of a variable that is split to balance the servers.
constexpr int64_t kMinPartBytes = int64_t{128} << 10;
constexpr int64_t kElementBytes = sizeof(float);
constexpr int64_t kMaxBands = 256;

int64_t RowsOf(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape.dim(0);
}

// The rows of one variable that one server will store.
struct Part {
  size_t variable = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

int64_t BytesOf(const Shape& shape) {
  return shape.num_elements() * kElementBytes;
}

int64_t BandsOf(const Shape& shape) {
  const int64_t band = RowsPerBand(shape);
  return (RowsOf(shape) + band - 1) / band;
}

bool NeedsAllRows(const VariableInfo& variable) {
  return variable.constraint.has_value() && variable.constraint->needs_all_rows();
}

// The parts assigned to servers, and the load of each server so far.
class Placement {
 public:
  Placement(absl::Span<const VariableInfo> variables, int servers)
      : variables_(variables),
        placed_(static_cast<size_t>(servers)),
        load_(placed_.size(), 0),
        servers_of_(variables.size()) {}

  int64_t load(size_t server) const { return load_[server]; }
  // The server with the fewest bytes among those without a part of `variable`; there must be one.
  size_t Lightest(size_t variable) const {
    size_t lightest = load_.size();
    for (size_t server = 0; server < load_.size(); ++server) {
      if (!Has(server, variable) && (lightest == load_.size() || load_[server] < load_[lightest]))
        lightest = server;
    }
    return lightest;
  }
  // The bands [begin, end) of a variable.
  void Put(size_t server, size_t variable, int64_t begin, int64_t end) {
    const Shape& shape = variables_[variable].shape;
    const int64_t row_begin = std::min(RowsOf(shape), begin * RowsPerBand(shape));
    const int64_t row_end = std::min(RowsOf(shape), end * RowsPerBand(shape));
    placed_[server].push_back({variable, row_begin, row_end});
    servers_of_[variable].push_back(server);
    load_[server] += (row_end - row_begin) * shape.row_elements() * kElementBytes;
  }
  std::vector<std::vector<Part>> Take() && { return std::move(placed_); }

 private:
  bool Has(size_t server, size_t variable) const {
    const std::vector<size_t>& servers = servers_of_[variable];
    return std::find(servers.begin(), servers.end(), server) != servers.end();
  }

  const absl::Span<const VariableInfo> variables_;
  std::vector<std::vector<Part>> placed_;
  std::vector<int64_t> load_;                    // bytes
  std::vector<std::vector<size_t>> servers_of_;  // [variable]
};

std::vector<size_t> LargestFirst(absl::Span<const VariableInfo> variables) {
  std::vector<size_t> order(variables.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return BytesOf(variables[a].shape) > BytesOf(variables[b].shape);
  });
  return order;
}

// Places whole variables as long as they fit into a server's even share, or cannot be split. Other variables are split
// to fill the rest of the shares. Small variables go to the server with the fewest bytes.
std::vector<std::vector<Part>> PlaceLevel(absl::Span<const VariableInfo> variables, int servers) {
  int64_t total = 0;
  for (const VariableInfo& variable : variables) total += BytesOf(variable.shape);
  const int64_t share = (total + servers - 1) / servers;
  Placement placement(variables, servers);
  std::vector<size_t> cut, small;
  for (const size_t variable : LargestFirst(variables)) {
    const Shape& shape = variables[variable].shape;
    if (BytesOf(shape) < 2 * kMinPartBytes || BandsOf(shape) == 1) {
      small.push_back(variable);
    } else if (const size_t server = placement.Lightest(variable);
               placement.load(server) + BytesOf(shape) <= share || NeedsAllRows(variables[variable])) {
      placement.Put(server, variable, 0, BandsOf(shape));
    } else {
      cut.push_back(variable);
    }
  }
  for (const size_t variable : cut) {
    const Shape& shape = variables[variable].shape;
    const int64_t bands = BandsOf(shape);
    const int64_t band_bytes = RowsPerBand(shape) * shape.row_elements() * kElementBytes;
    const int64_t least =
        (kMinPartBytes + band_bytes - 1) / band_bytes + 1;  // in bands; the last band may be short
    int64_t next = 0;
    for (int part = 1; next < bands; ++part) {
      const size_t server = placement.Lightest(variable);
      int64_t count = std::max(least, (share - placement.load(server)) / band_bytes);
      if (part == servers || bands - next - count < least) count = bands - next;
      placement.Put(server, variable, next, next + count);
      next += count;
    }
  }
  for (const size_t variable : small) {
    placement.Put(placement.Lightest(variable), variable, 0, BandsOf(variables[variable].shape));
  }
  return std::move(placement).Take();
}

// Splits every variable larger than `split_bytes` into even parts, each on the server with the fewest bytes.
std::vector<std::vector<Part>> PlaceInParts(absl::Span<const VariableInfo> variables, int servers,
                                            int64_t split_bytes) {
  struct Piece {
    size_t variable;
    int64_t begin, end;  // bands
    int64_t bytes;
  };
  std::vector<Piece> pieces;
  for (size_t variable = 0; variable < variables.size(); ++variable) {
    const Shape& shape = variables[variable].shape;
    const int64_t bytes = BytesOf(shape), bands = BandsOf(shape);
    const int64_t wanted = bytes / split_bytes + (bytes % split_bytes != 0 ? 1 : 0);
    const int64_t count = NeedsAllRows(variables[variable])
                              ? 1
                              : std::max<int64_t>(1, std::min({wanted, bands, int64_t{servers}}));
    for (int64_t piece = 0; piece < count; ++piece) {
      const int64_t begin = bands * piece / count, end = bands * (piece + 1) / count;
      const int64_t rows = std::min(RowsOf(shape), end * RowsPerBand(shape)) -
                           std::min(RowsOf(shape), begin * RowsPerBand(shape));
      pieces.push_back({variable, begin, end, rows * shape.row_elements()});
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.bytes > b.bytes; });
  Placement placement(variables, servers);
  for (const Piece& piece : pieces)
    placement.Put(placement.Lightest(piece.variable), piece.variable, piece.begin, piece.end);
  return std::move(placement).Take();
}

v1::Constraint ConstraintProto(const Constraint& constraint) {
  v1::Constraint proto;
  proto.set_non_negative(constraint.non_negative);
  proto.mutable_axes()->Add(constraint.axes.begin(), constraint.axes.end());
  proto.set_min_norm(constraint.min_norm);
  proto.set_max_norm(constraint.max_norm);
  proto.set_rate(constraint.rate);
  return proto;
}

Constraint ConstraintFrom(const v1::Constraint& proto) {
  return {.non_negative = proto.non_negative(),
          .axes = {proto.axes().begin(), proto.axes().end()},
          .min_norm = proto.min_norm(),
          .max_norm = proto.max_norm(),
          .rate = proto.rate()};
}

// The same extents, with adjacent ones merged.
std::vector<Extent> Joined(absl::Span<const Extent> extents) {
  std::vector<Extent> joined;
  for (const Extent& extent : extents) {
    if (!joined.empty()) {
      Extent& last = joined.back();
      if (extent.server_offset == last.server_offset + last.count &&
          extent.local_offset == last.local_offset + last.count) {
        last.count += extent.count;
        continue;
      }
    }
    joined.push_back(extent);
  }
  return joined;
}

}  // namespace

int64_t RowsPerBand(const Shape& shape) {
  return std::max<int64_t>(1, (RowsOf(shape) + kMaxBands - 1) / kMaxBands);
}

bool Slice::whole_bands() const {
  const int64_t band = RowsPerBand(shape);
  return row_begin % band == 0 && (row_end % band == 0 || row_end == RowsOf(shape));
}

v1::VariableSlice Slice::ToProto() const {
  v1::VariableSlice proto;
  proto.set_name(name);
  for (int64_t extent : shape.dims()) proto.add_shape(extent);
  proto.set_row_begin(row_begin);
  proto.set_row_end(row_end);
  proto.set_offset(offset);
  if (moving_average_momentum.has_value()) proto.set_moving_average_momentum(*moving_average_momentum);
  if (constraint.has_value()) *proto.mutable_constraint() = ConstraintProto(*constraint);
  return proto;
}

absl::StatusOr<Slice> Slice::FromProto(const v1::VariableSlice& proto) {
  const auto context = [&] { return absl::StrCat("variable '", proto.name(), "'"); };
  auto shape = Shape::FromUntrusted(
      absl::MakeConstSpan(proto.shape().data(), static_cast<size_t>(proto.shape_size())));
  if (!shape.ok()) return Annotate(shape.status(), context());
  if (proto.name().empty()) return absl::InvalidArgumentError("a variable has no name");
  if (proto.row_begin() < 0 || proto.row_end() < proto.row_begin() || proto.row_end() > RowsOf(*shape)) {
    return absl::InvalidArgumentError(absl::StrCat(context(), ": invalid rows ", proto.row_begin(), " to ",
                                                   proto.row_end(), " of shape ", shape->ToString()));
  }
  Slice slice = {proto.name(), *std::move(shape), proto.row_begin(), proto.row_end(), proto.offset()};
  if (proto.has_moving_average_momentum()) {
    const float momentum = proto.moving_average_momentum();
    if (!(momentum >= 0 && momentum <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat(context(), ": moving_average_momentum is ", momentum, ", must be in [0, 1]"));
    }
    slice.moving_average_momentum = momentum;
  }
  if (proto.has_constraint()) {
    slice.constraint = ConstraintFrom(proto.constraint());
    if (auto status = slice.constraint->Check(slice.shape); !status.ok()) return Annotate(status, context());
    if (slice.constraint->needs_all_rows() && !slice.whole()) {
      return absl::InvalidArgumentError(absl::StrCat(context(), ": constraint ", slice.constraint->ToString(),
                                                     " needs all rows, got ", slice.row_begin, " to ",
                                                     slice.row_end, " of shape ", slice.shape.ToString()));
    }
  }
  return slice;
}

std::vector<std::vector<Slice>> PlaceVariables(absl::Span<const VariableInfo> variables,
                                               const PlacementOptions& options) {
  std::vector<std::vector<Part>> placed = options.split_bytes > 0
                                              ? PlaceInParts(variables, options.servers, options.split_bytes)
                                              : PlaceLevel(variables, options.servers);
  std::vector<std::vector<Slice>> slices(placed.size());
  for (size_t server = 0; server < placed.size(); ++server) {
    std::sort(placed[server].begin(), placed[server].end(), [](const Part& a, const Part& b) {
      return std::pair(a.variable, a.row_begin) < std::pair(b.variable, b.row_begin);
    });
    int64_t offset = 0;
    for (const Part& part : placed[server]) {
      const VariableInfo& variable = variables[part.variable];
      slices[server].push_back({variable.name, variable.shape, part.row_begin, part.row_end, offset,
                                variable.moving_average_momentum, variable.constraint});
      offset += slices[server].back().elements();
    }
  }
  return slices;
}

absl::StatusOr<Layout> Layout::Create(absl::Span<const VariableInfo> variables,
                                      absl::Span<const std::vector<Slice>> slices) {
  struct SliceOnServer {
    int server;
    const Slice* slice;
  };
  std::map<std::string, std::vector<SliceOnServer>> slices_of;  // [variable]
  Layout layout;
  for (size_t server = 0; server < slices.size(); ++server) {
    int64_t size = 0;
    for (const Slice& slice : slices[server]) {
      if (slice.offset != size) {
        return absl::FailedPreconditionError(absl::StrCat("variable '", slice.name, "' begins at element ",
                                                          slice.offset, " of ps/", server,
                                                          ", but the variables before it end at ", size));
      }
      slices_of[slice.name].push_back({static_cast<int>(server), &slice});
      size += slice.elements();
    }
    layout.arena_sizes_.push_back(size);
  }
  layout.extents_by_server_.resize(slices.size());

  std::set<std::string_view> names;
  for (const VariableInfo& variable : variables) {
    if (!names.insert(variable.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("variable '", variable.name, "' is listed twice"));
    }
    std::vector<RangePartitioner::Range> ranges;
    for (const auto& [server, slice] : slices_of[variable.name]) {
      if (slice->shape != variable.shape) {
        return absl::FailedPreconditionError(absl::StrCat("variable '", variable.name, "' has shape ",
                                                          variable.shape.ToString(), " here and ",
                                                          slice->shape.ToString(), " on ps/", server));
      }
      ranges.push_back({server, slice->row_begin, slice->row_end, slice->offset});
    }
    CAIRN_ASSIGN_OR_RETURN(
        auto partitioner, RangePartitioner::Create(variable.name, RowsOf(variable.shape), std::move(ranges)));
    const int64_t row_elements = variable.shape.row_elements();
    std::vector<Extent> extents;
    for (const RangePartitioner::Range& range : partitioner.ranges()) {
      const Extent extent = {range.server, range.offset, variable.offset + range.begin * row_elements,
                             (range.end - range.begin) * row_elements};
      extents.push_back(extent);
      layout.extents_by_server_[static_cast<size_t>(range.server)].push_back(extent);
    }
    layout.partitioners_.push_back(std::move(partitioner));
    layout.extents_by_variable_.push_back(std::move(extents));
  }
  for (auto& extents : layout.extents_by_server_) {
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.server_offset < b.server_offset; });
    extents = Joined(extents);
  }
  return layout;
}

bool Layout::covers(int server) const {
  int64_t covered = 0;
  for (const Extent& extent : extents_on(server)) covered += extent.count;
  return covered == arena_size(server);
}

}  // namespace cairn::net
