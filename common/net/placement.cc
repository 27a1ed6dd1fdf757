#include "common/net/placement.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::net {
namespace {

constexpr int64_t kSmallestSplitBytes = int64_t{256} << 10;
constexpr int64_t kElementBytes = sizeof(float);
constexpr int64_t kMostBands = 256;

int64_t RowsOf(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape.dim(0);
}

// The rows of one variable that one server will hold.
struct Part {
  size_t variable = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t bytes = 0;
};

std::vector<Part> SplitIntoParts(absl::Span<const VariableInfo> variables, const PlacementOptions& options) {
  int64_t total_bytes = 0;
  for (const VariableInfo& variable : variables) total_bytes += variable.shape.num_elements() * kElementBytes;
  const int64_t share = (total_bytes + options.servers - 1) / options.servers;
  const int64_t limit = options.split_bytes > 0 ? options.split_bytes : std::max(kSmallestSplitBytes, share);

  std::vector<Part> parts;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Shape& shape = variables[i].shape;
    const int64_t rows = RowsOf(shape);
    const int64_t bytes = shape.num_elements() * kElementBytes;
    const int64_t wanted = bytes / limit + (bytes % limit != 0 ? 1 : 0);
    const int64_t band = RowsPerBand(shape);
    const int64_t bands = (rows + band - 1) / band;
    const int64_t count = std::max<int64_t>(1, std::min({wanted, bands, int64_t{options.servers}}));
    for (int64_t part = 0; part < count; ++part) {
      const int64_t begin = std::min(rows, bands * part / count * band);
      const int64_t end = std::min(rows, bands * (part + 1) / count * band);
      parts.push_back({i, begin, end, (end - begin) * shape.row_elements() * kElementBytes});
    }
  }
  return parts;
}

}  // namespace

int64_t RowsPerBand(const Shape& shape) {
  return std::max<int64_t>(1, (RowsOf(shape) + kMostBands - 1) / kMostBands);
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
  return proto;
}

absl::StatusOr<Slice> Slice::FromProto(const v1::VariableSlice& proto) {
  const auto context = [&] { return absl::StrCat("variable '", proto.name(), "'"); };
  auto shape = Shape::FromUntrusted(
      absl::MakeConstSpan(proto.shape().data(), static_cast<size_t>(proto.shape_size())));
  if (!shape.ok()) return Annotate(shape.status(), context());
  if (proto.name().empty()) return absl::InvalidArgumentError("a variable has no name");
  if (proto.row_begin() < 0 || proto.row_end() < proto.row_begin() || proto.row_end() > RowsOf(*shape)) {
    return absl::InvalidArgumentError(absl::StrCat(context(), ": rows ", proto.row_begin(), " to ",
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
  return slice;
}

std::vector<std::vector<Slice>> PlaceVariables(absl::Span<const VariableInfo> variables,
                                               const PlacementOptions& options) {
  std::vector<Part> parts = SplitIntoParts(variables, options);
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.bytes > b.bytes; });

  std::vector<int64_t> load(static_cast<size_t>(options.servers), 0);
  std::vector<std::vector<Part>> placed(load.size());
  for (const Part& part : parts) {
    const auto lightest = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    load[lightest] += part.bytes;
    placed[lightest].push_back(part);
  }

  std::vector<std::vector<Slice>> slices(load.size());
  for (size_t server = 0; server < placed.size(); ++server) {
    std::sort(placed[server].begin(), placed[server].end(), [](const Part& a, const Part& b) {
      return std::pair(a.variable, a.row_begin) < std::pair(b.variable, b.row_begin);
    });
    int64_t offset = 0;
    for (const Part& part : placed[server]) {
      const VariableInfo& variable = variables[part.variable];
      slices[server].push_back({variable.name, variable.shape, part.row_begin, part.row_end, offset,
                                variable.moving_average_momentum});
      offset += slices[server].back().elements();
    }
  }
  return slices;
}

absl::StatusOr<Layout> Layout::Create(absl::Span<const VariableInfo> variables,
                                      absl::Span<const std::vector<Slice>> slices) {
  struct Place {
    int server;
    const Slice* slice;
  };
  std::map<std::string, std::vector<Place>> places;
  Layout layout;
  for (size_t server = 0; server < slices.size(); ++server) {
    int64_t size = 0;
    for (const Slice& slice : slices[server]) {
      if (slice.offset != size) {
        return absl::FailedPreconditionError(absl::StrCat("variable '", slice.name, "' begins at element ",
                                                          slice.offset, " of ps/", server,
                                                          ", and those before it end at ", size));
      }
      places[slice.name].push_back({static_cast<int>(server), &slice});
      size += slice.elements();
    }
    layout.arena_sizes_.push_back(size);
  }
  layout.extents_by_server_.resize(slices.size());

  for (const VariableInfo& variable : variables) {
    auto& found = places[variable.name];
    std::sort(found.begin(), found.end(),
              [](const Place& a, const Place& b) { return a.slice->row_begin < b.slice->row_begin; });
    std::vector<Extent> extents;
    int64_t next_row = 0;
    for (const auto& [server, slice] : found) {
      if (slice->shape != variable.shape) {
        return absl::FailedPreconditionError(absl::StrCat("variable '", variable.name, "' has shape ",
                                                          variable.shape.ToString(), " here and ",
                                                          slice->shape.ToString(), " on ps/", server));
      }
      if (slice->row_begin != next_row) {
        return absl::FailedPreconditionError(
            absl::StrCat("variable '", variable.name, "': row ", std::min(next_row, slice->row_begin),
                         slice->row_begin > next_row ? " is on no server" : " is on two servers"));
      }
      next_row = slice->row_end;
      const Extent extent = {server, slice->offset,
                             variable.offset + slice->row_begin * variable.shape.row_elements(),
                             slice->elements()};
      extents.push_back(extent);
      layout.extents_by_server_[static_cast<size_t>(server)].push_back(extent);
    }
    if (next_row != RowsOf(variable.shape)) {
      return absl::FailedPreconditionError(
          found.empty() ? absl::StrCat("variable '", variable.name, "' is on no server")
                        : absl::StrCat("variable '", variable.name, "': row ", next_row, " is on no server"));
    }
    layout.extents_by_variable_.push_back(std::move(extents));
  }
  for (auto& extents : layout.extents_by_server_) {
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.server_offset < b.server_offset; });
  }
  return layout;
}

bool Layout::covers(int server) const {
  int64_t covered = 0;
  for (const Extent& extent : extents_on(server)) covered += extent.count;
  return covered == arena_size(server);
}

}  // namespace cairn::net
