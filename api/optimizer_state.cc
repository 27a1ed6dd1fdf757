#include "api/optimizer_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace cairn::api {
OptimizerState StateOf(const client::Snapshot& snapshot, const std::vector<net::VariableInfo>& variables,
                       int groups) {
  OptimizerState state;
  int64_t elements = 0;
  std::map<std::string, const net::VariableInfo*> by_name;
  for (const net::VariableInfo& variable : variables) {
    by_name[variable.name] = &variable;
    elements += variable.shape.num_elements();
  }
  for (size_t slot = 0; slot < snapshot.slots.size(); ++slot) {
    std::vector<float>& values = state.slots[snapshot.slots[slot]];
    values.resize(static_cast<size_t>(elements));
    for (const client::Snapshot::Server& server : snapshot.servers) {
      const int64_t size =
          server.state.size() / static_cast<int64_t>(1 + snapshot.slots.size());  // values, then each slot
      const float* const begin = server.state.data() + static_cast<int64_t>(1 + slot) * size;
      for (const net::Slice& slice : server.slices) {
        const auto found = by_name.find(slice.name);
        if (found == by_name.end()) continue;
        const int64_t first = found->second->offset + slice.row_begin * slice.shape.row_elements();
        std::copy_n(begin + slice.offset, slice.elements(),
                    values.begin() + static_cast<std::ptrdiff_t>(first));
      }
    }
  }
  const v1::SkippedUpdates& skipped = snapshot.progress.skipped_updates();
  state.updates.assign(static_cast<size_t>(groups), snapshot.progress.version() - skipped.empty());
  size_t group = 0;
  for (int pair = 0; pair + 1 < skipped.untouched_size(); pair += 2) {
    for (int64_t i = 0; i < skipped.untouched(pair + 1) && group < state.updates.size(); ++i, ++group) {
      state.updates[group] -= skipped.untouched(pair);
    }
  }
  return state;
}

}  // namespace cairn::api
