#include "worker/embedding/table_needs.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "embedding/optimizers/row_optimizer.h"
#include "embedding/store/row_store.h"
#include "optim/store/optimizer_of.h"

namespace cairn::worker {
namespace {

absl::StatusOr<TableNeeds> NeedsOfTable(const v1::Table& table, const v1::Job& job) {
  CAIRN_RETURN_IF_ERROR(embedding::RowStore::CheckDim(table.row_elements()));
  const v1::EmbeddingTable& description = table.embedding();
  TableNeeds needs = {.name = table.name(),
                      .vocabulary_size = description.vocabulary_size(),
                      .dim = static_cast<int>(table.row_elements())};
  CAIRN_ASSIGN_OR_RETURN(
      const auto optimizer,
      embedding::MakeRowOptimizer(
          optim::OptimizerConfigOf(description.has_optimizer() ? description.optimizer() : job.optimizer()),
          needs.dim));
  needs.optimizer = std::string(optimizer->name());
  needs.slots = optimizer->slots();
  needs.index_bytes = embedding::RowStore::IndexBytesPerRow({.dim = needs.dim, .slots = needs.slots});
  return needs;
}

}  // namespace

absl::StatusOr<std::vector<TableNeeds>> TableNeedsOf(const v1::Job& job) {
  std::vector<TableNeeds> needs;
  for (const v1::Table& table : job.tables()) {
    auto of_table = NeedsOfTable(table, job);
    if (!of_table.ok()) return Annotate(of_table.status(), absl::StrCat("job: table '", table.name(), "'"));
    needs.push_back(*std::move(of_table));
  }
  return needs;
}

double PartBytes(const TableNeeds& table, int64_t rows, const v1::Job& job) {
  const int copies = job.ps_replication() > 0 || job.restorable() ? 2 : 1;
  return copies * embedding::RowStore::BytesOfPart({.dim = table.dim, .slots = table.slots}, rows,
                                                   std::max(1, job.servers_size()));
}

absl::StatusOr<ServerMemory> ServerMemoryOf(const v1::Job& job, absl::Span<const net::VariableInfo> variables,
                                            double table_bytes, int64_t memory_limit) {
  CAIRN_ASSIGN_OR_RETURN(const auto optimizer, optim::MakeOptimizer(optim::OptimizerOf(job)));
  double value_bytes = 0;
  for (const auto& slices : net::PlaceVariables(variables, {.servers = std::max(1, job.servers_size())})) {
    double bytes = 0;
    for (const net::Slice& slice : slices) bytes += static_cast<double>(slice.elements()) * sizeof(float);
    value_bytes = std::max(value_bytes, bytes);
  }
  ServerMemory memory = {.needs = {},
                         .limit = job.ps_replication() > 0 ? memory_limit / 2 : memory_limit,
                         .optimizer = std::string(optimizer->name()),
                         .num_slots = static_cast<int>(optimizer->slot_names().size()),
                         .num_workers = std::max(job.workers_size(), job.max_workers()),
                         .replicated = job.ps_replication() > 0,
                         .tables = !job.tables().empty()};
  memory.needs = MemoryNeedsOf(value_bytes, memory.num_slots, memory.num_workers, memory.replicated,
                               job.wire() != v1::ENCODING_FLOAT32);
  memory.needs.tables = table_bytes;
  return memory;
}

}  // namespace cairn::worker
