#include "client/data_position.h"

#include <algorithm>
#include <limits>

namespace cairn::client {
namespace {

using Run = v1::DataPosition::Run;

int64_t EndOf(const Run& run) {
  return run.begin() + run.count();
}

// The examples that are not in updates, as ascending runs. The last run has no end.
std::vector<Run> Unused(const v1::DataPosition& position) {
  std::vector<Run> runs(position.open().begin(), position.open().end());
  Run& rest = runs.emplace_back();
  rest.set_begin(position.next());
  rest.set_count(std::numeric_limits<int64_t>::max() - position.next());
  return runs;
}

int64_t NumCommon(const std::vector<Run>& a, const std::vector<Run>& b) {
  int64_t common = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    common += std::max<int64_t>(0, std::min(EndOf(a[i]), EndOf(b[j])) - std::max(a[i].begin(), b[j].begin()));
    if (EndOf(a[i]) < EndOf(b[j])) {
      ++i;
    } else {
      ++j;
    }
  }
  return common;
}

// The number of examples that `a` has used and `b` has not.
int64_t NumUsedByFirstOnly(const v1::DataPosition& a, const v1::DataPosition& b) {
  Run below;  // all examples that `a` may have used
  below.set_count(a.next());
  const std::vector<Run> open(a.open().begin(), a.open().end());
  return NumCommon(Unused(b), {below}) - NumCommon(Unused(b), open);
}

}  // namespace

int64_t NumUsed(const v1::DataPosition& position) {
  int64_t used = position.next();
  for (const Run& run : position.open()) used -= run.count();
  return used;
}

void AddTorn(const v1::DataPosition& other, v1::DataPosition* all) {
  all->set_missed(all->missed() + NumUsedByFirstOnly(*all, other));
  all->set_repeated(all->repeated() + other.repeated() + NumUsedByFirstOnly(other, *all));
}

v1::DataPosition AtTheEnd(const std::vector<v1::DataPosition>& servers) {
  v1::DataPosition all = servers.front();
  all.set_missed(all.missed() + all.next() - NumUsed(all));
  for (size_t server = 1; server < servers.size(); ++server) {
    all.set_missed(all.missed() + all.next() - NumUsed(servers[server]));
    all.set_repeated(all.repeated() + servers[server].repeated());
  }
  return all;
}

}  // namespace cairn::client
