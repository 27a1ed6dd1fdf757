#include "ps/table/embedding/embedding_tables.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "embedding/initializers/row_distribution.h"
#include "embedding/optimizers/row_optimizer.h"
#include "optim/store/optimizer_of.h"
#include "ps/table/embedding/embedding_table.h"

namespace cairn::ps {
namespace {

using Kind = embedding::RowDistribution::Kind;

absl::StatusOr<Kind> KindOf(v1::EmbeddingTable::Distribution distribution) {
  switch (distribution) {
    case v1::EmbeddingTable::DISTRIBUTION_CONSTANT:
      return Kind::kConstant;
    case v1::EmbeddingTable::DISTRIBUTION_UNIFORM:
      return Kind::kUniform;
    case v1::EmbeddingTable::DISTRIBUTION_NORMAL:
      return Kind::kNormal;
    case v1::EmbeddingTable::DISTRIBUTION_TRUNCATED_NORMAL:
      return Kind::kTruncatedNormal;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown distribution ", static_cast<int>(distribution)));
  }
}

optim::OptimizerConfig OptimizerOf(const v1::EmbeddingTable& description, const v1::Job& job) {
  return optim::OptimizerConfigOf(description.has_optimizer() ? description.optimizer() : job.optimizer());
}

absl::StatusOr<EmbeddingTable::Options> OptionsOf(const v1::Table& table, const v1::Job& job) {
  const v1::EmbeddingTable& description = table.embedding();
  if (table.kind() != "embedding") {
    return absl::InvalidArgumentError(
        absl::StrCat("there are no tables of the kind '", table.kind(), "', only of the kind 'embedding'"));
  }
  CAIRN_RETURN_IF_ERROR(embedding::RowStore::CheckDim(table.row_elements()));
  if (description.vocabulary_size() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a vocabulary of ", description.vocabulary_size(), " ids"));
  }
  CAIRN_ASSIGN_OR_RETURN(const Kind kind, KindOf(description.distribution()));
  if (!std::isfinite(description.center()) || !std::isfinite(description.spread()) ||
      description.spread() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("first values around ", description.center(),
                                                   " with a spread of ", description.spread()));
  }
  CAIRN_ASSIGN_OR_RETURN(auto optimizer, embedding::MakeRowOptimizer(OptimizerOf(description, job),
                                                                     static_cast<int>(table.row_elements())));
  return EmbeddingTable::Options{
      .name = table.name(),
      .vocabulary_size = description.vocabulary_size(),
      .dim = static_cast<int>(table.row_elements()),
      .optimizer = std::move(optimizer),
      .follows_job = !description.has_optimizer(),
      .initializer = embedding::RowInitializer(
          {.kind = kind, .center = description.center(), .spread = description.spread()}, description.seed(),
          table.name()),
      .version = job.resumed().version()};
}

}  // namespace

absl::StatusOr<double> EmbeddingTables::BytesOf(const v1::Table& table, const v1::Job& job) const {
  CAIRN_ASSIGN_OR_RETURN(const EmbeddingTable::Options options, OptionsOf(table, job));
  const embedding::RowShape shape = {.dim = options.dim, .slots = options.optimizer->slots()};
  const double copies = job.ps_replication() > 0 || job.restorable() ? 2 : 1;
  return copies *
         embedding::RowStore::BytesOfPart(shape, options.vocabulary_size, std::max(1, job.servers_size()));
}

std::unique_ptr<Table> EmbeddingTables::Make(const v1::Table& table, const v1::Job& job, int server,
                                             std::shared_ptr<optim::MemoryBudget> budget) const {
  EmbeddingTable::Options options = *OptionsOf(table, job);
  options.server = server;
  options.servers = std::max(1, job.servers_size());
  options.thread_pool = thread_pool_;
  if (const auto of_job = optim::MakeOptimizer(optim::OptimizerOf(job)); of_job.ok())
    options.job_rate = (*of_job)->learning_rate(0);
  return std::make_unique<EmbeddingTable>(std::move(options), std::move(budget));
}

}  // namespace cairn::ps
