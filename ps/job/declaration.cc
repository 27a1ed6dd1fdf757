#include "ps/job/declaration.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"

namespace cairn::ps {
namespace {

constexpr int kMaxInlineValues = 1 << 16;

}  // namespace

absl::StatusOr<std::vector<net::Slice>> ReadSlices(
    const google::protobuf::RepeatedPtrField<v1::VariableSlice>& declared) {
  std::vector<net::Slice> slices;
  std::set<std::pair<std::string, int64_t>> seen;
  int64_t offset = 0;
  for (const v1::VariableSlice& proto : declared) {
    CAIRN_ASSIGN_OR_RETURN(net::Slice slice, net::Slice::FromProto(proto));
    if (!seen.emplace(slice.name, slice.row_begin).second) {
      return absl::InvalidArgumentError(absl::StrCat("variable '", slice.name, "' is declared twice"));
    }
    slice.offset = offset;
    offset += slice.elements();
    slices.push_back(std::move(slice));
  }
  return slices;
}

absl::StatusOr<std::shared_ptr<ActiveJob>> WithVariables(ActiveJob& job, const v1::CreateRequest& request,
                                                         std::vector<net::Slice> added, uint64_t layout) {
  const optim::VariableStore& old_store = job.shard().store();
  std::vector<net::Slice> slices = old_store.slices();
  const int64_t old_size = old_store.size();
  int64_t fresh = 0;
  std::set<std::string> names;
  for (const net::Slice& slice : slices) names.insert(slice.name);
  for (net::Slice& slice : added) {
    if (!names.insert(slice.name).second) {
      return absl::AlreadyExistsError(absl::StrCat("variable '", slice.name, "' exists"));
    }
    slice.offset += old_size;
    fresh += slice.elements();
    slices.push_back(std::move(slice));
  }
  if (request.values_size() != fresh || fresh > kMaxInlineValues) {
    return absl::InvalidArgumentError(absl::StrCat(request.values_size(), " values do not match the ", fresh,
                                                   " new elements (at most ", kMaxInlineValues, ")"));
  }
  CAIRN_ASSIGN_OR_RETURN(auto next,
                         ActiveJob::Create(job.job(), std::move(slices), layout,
                                           {.index = job.index(), .memory_limit = job.memory_limit()}));
  const int64_t size = old_size + fresh;
  AlignedBuffer values(size);
  std::copy_n(old_store.current().data->data(), old_size, values.data());
  std::copy_n(request.values().data(), fresh, values.data() + old_size);
  const optim::VariableStore::Run everything = {0, size};
  if (size > 0) next->shard().store().Write(values, {&everything, 1});
  return next;
}

}  // namespace cairn::ps
