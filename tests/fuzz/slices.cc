// The slices that servers report, checked against a client's variables.
#include "common/net/cluster/placement.h"
#include "ps/job/declaration.h"
#include "tests/fuzz/script.h"

namespace {

using namespace cairn;

// Pushes and pulls use these extents, so they must lie within their variables.
void CheckLayout(const net::Layout& layout, absl::Span<const net::VariableInfo> variables) {
  for (size_t i = 0; i < variables.size(); ++i) {
    int64_t next = variables[i].offset;
    for (const net::Extent& extent : layout.extents_of(static_cast<int>(i))) {
      FUZZ_CHECK(extent.local_offset == next);
      next += extent.count;
    }
    FUZZ_CHECK(next == variables[i].offset + variables[i].shape.num_elements());
  }
  for (int server = 0; server < layout.servers(); ++server) {
    layout.covers(server);
    int64_t next = 0;
    for (const net::Extent& extent : layout.extents_on(server)) {
      FUZZ_CHECK(extent.server_offset >= next && extent.count >= 0);
      next = extent.server_offset + extent.count;
    }
    FUZZ_CHECK(next <= layout.arena_size(server));
  }
}

void ReadDeclared(const v1::ConnectResponse& server) {
  v1::CreateRequest create;
  *create.mutable_slices() = server.slices();
  const auto declared = ps::ReadSlices(create.slices());
  if (!declared.ok()) {
    FUZZ_CHECK(!declared.status().message().empty());
    return;
  }
  int64_t next = 0;
  for (const net::Slice& slice : *declared) {
    FUZZ_CHECK(slice.offset == next);
    FUZZ_CHECK(slice.elements() >= 0 && slice.elements() <= slice.shape.num_elements());
    next += slice.elements();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto placement = fuzz::ParseText<fuzz::Placement>(data, size);
  std::vector<net::VariableInfo> variables;
  int64_t offset = 0;
  for (const v1::VariableSlice& proto : placement.variables()) {
    const auto slice = net::Slice::FromProto(proto);
    if (!slice.ok()) continue;
    variables.push_back({slice->name, slice->shape, offset});
    offset += slice->shape.num_elements();
  }
  std::vector<std::vector<net::Slice>> slices;
  for (const v1::ConnectResponse& server : placement.servers()) {
    ReadDeclared(server);
    slices.emplace_back();
    for (const v1::VariableSlice& proto : server.slices()) {
      auto slice = net::Slice::FromProto(proto);
      if (!slice.ok()) {
        FUZZ_CHECK(!slice.status().message().empty());
        continue;
      }
      FUZZ_CHECK(slice->elements() >= 0);
      slice->whole_bands();
      slices.back().push_back(*std::move(slice));
    }
  }
  const auto layout = net::Layout::Create(variables, slices);
  if (layout.ok()) {
    CheckLayout(*layout, variables);
  } else {
    FUZZ_CHECK(!layout.status().message().empty());
  }
  return 0;
}
