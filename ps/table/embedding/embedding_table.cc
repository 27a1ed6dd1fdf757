#include "ps/table/embedding/embedding_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/status.h"
#include "common/memory/out_of_memory.h"
#include "common/net/wire/row_frame.h"
#include "embedding/store/table_state.h"
#include "optim/store/buffer_pool.h"
#include "ps/table/embedding/row_gradient.h"

namespace cairn::ps {
namespace {

constexpr size_t kHottest = 8;
// Below this number of rows, waking another thread costs more than it saves.
constexpr size_t kFewRows = 1024;

std::vector<int> StoreEnds(embedding::BucketRange buckets, const ThreadPool* pool) {
  const int stores = pool == nullptr ? 1 : pool->size();
  std::vector<int> ends;
  for (int i = 0; i < stores; ++i) ends.push_back(embedding::PartOf(buckets, i, stores).end);
  return ends;
}

// Rows are short: to call memmove for each takes longer than the copy.
void CopyRow(const float* from, size_t count, float* to) {
  constexpr size_t kBlock = 8;
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) std::memcpy(to + i, from + i, kBlock * sizeof(float));
  for (; i < count; ++i) to[i] = from[i];
}

class RowPush final : public TablePush {
 public:
  RowPush(const PushRequest& request, const EmbeddingTable& table,
          std::shared_ptr<optim::MemoryBudget> budget)
      : has_rows_(request.gradient.examples > 0),
        table_(table),
        gradient_(std::make_shared<RowGradient>(std::move(budget))) {}

  absl::Status AddChunk(const v1::Chunk&, net::Payload) override {
    return absl::InvalidArgumentError("the gradients of embedding tables are pushed in rows, not in chunks");
  }
  absl::Status AddRows(net::ReceivedRows rows) override {
    if (!has_rows_) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(table_.CheckIds(rows.ids()));
    return gradient_->Add(std::move(rows));
  }
  absl::Span<float> DestinationFor(const v1::Chunk&, int64_t) override { return {}; }
  absl::Status CheckComplete() const override { return absl::OkStatus(); }
  std::shared_ptr<const TableGradient> Take() override {
    if (gradient_->rows() == 0) return nullptr;
    return std::move(gradient_);
  }
  void Keep() override {}
  bool MaySendEarly() const override { return false; }

 private:
  const bool has_rows_;
  const EmbeddingTable& table_;
  std::shared_ptr<RowGradient> gradient_;
};

embedding::StateReader ReaderOf(const TableState& state) {
  std::vector<absl::Span<const float>> buffers;
  for (const auto& buffer : state) buffers.push_back(buffer->span());
  return embedding::StateReader(std::move(buffers));
}

}  // namespace

absl::Status EmbeddingTable::Memory::Take(int64_t bytes) {
  if (limited_) {
    const bool taken = budget_->TryTake(bytes) || (found_.Clear() && budget_->TryTake(bytes));
    return taken ? absl::OkStatus() : budget_->Refusal(what_, bytes);
  }
  budget_->Take(bytes);
  return absl::OkStatus();
}

EmbeddingTable::EmbeddingTable(Options options, std::shared_ptr<optim::MemoryBudget> budget)
    : options_(std::move(options)),
      buckets_(embedding::PartOf({}, options_.server, options_.servers)),
      store_ends_(StoreEnds(buckets_, options_.thread_pool)),
      budget_(budget),
      found_(budget),
      memory_(std::move(budget), absl::StrCat("the rows of table '", options_.name, "'"), found_),
      means_(options_.dim, budget_),
      parts_(store_ends_.size()),
      version_(options_.version),
      rate_(optimizer().learning_rate(options_.version)) {
  WriterLock lock(mutex_);
  MakeStores();
}

void EmbeddingTable::MakeStores() {
  found_.Clear();
  stores_.clear();
  for (size_t i = 0; i < parts_.size(); ++i) {
    stores_.push_back(std::make_unique<embedding::RowStore>(embedding::RowStore::Options{
        .table = options_.name,
        .shape = {.dim = options_.dim, .slots = optimizer().slots()},
        .buckets = embedding::PartOf(buckets_, static_cast<int>(i), static_cast<int>(parts_.size())),
        .memory = &memory_}));
  }
}

void EmbeddingTable::NoteSize() {
  int64_t rows = 0, bytes = 0;
  for (const auto& store : stores_) {
    const embedding::RowStore::MemoryUse memory = store->memory();
    rows += store->size();
    bytes += memory.rows + memory.index;
  }
  rows_ = rows;
  bytes_ = bytes;
}

void EmbeddingTable::FillStatus(v1::TableStatus& status) const {
  status.set_name(options_.name);
  status.set_row_elements(options_.dim);
  status.set_rows(rows_);
  status.set_bytes(bytes_);
  status.set_lookups(lookups_.value());
  status.set_hits(hits_.value());
  status.set_gradients(gradients_.value());
  status.set_updates(updates_.value());
  status.set_inserts(inserts_.value());
  MutexLock lock(hot_mutex_);
  for (const HotKeys::Count& hot : hot_.Top(kHottest)) {
    v1::HotRow& row = *status.add_hottest();
    row.set_id(hot.key);
    row.set_share(static_cast<double>(hot.count) / static_cast<double>(hot_.total()));
  }
}

absl::Status EmbeddingTable::CheckIds(absl::Span<const int64_t> ids) const {
  if (options_.vocabulary_size == 0 && buckets_ == embedding::BucketRange()) return absl::OkStatus();
  for (const int64_t id : ids) {
    if (options_.vocabulary_size > 0 && (id < 0 || id >= options_.vocabulary_size)) {
      return absl::InvalidArgumentError(absl::StrCat("table '", options_.name, "' has no row ", id,
                                                     ": its rows are 0 to ", options_.vocabulary_size - 1));
    }
    if (!buckets_.Contains(embedding::BucketOf(id))) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", id, " of table '", options_.name, "' belongs to ps/",
                       embedding::OwnerOf({}, embedding::BucketOf(id), options_.servers), ", not to ps/",
                       options_.server));
    }
  }
  return absl::OkStatus();
}

std::unique_ptr<TablePush> EmbeddingTable::BeginPush(const PushRequest& request) {
  return std::make_unique<RowPush>(request, *this, budget_);
}

size_t EmbeddingTable::StoreOf(int64_t id) const {
  const int bucket = embedding::BucketOf(id);
  size_t store = 0;
  while (bucket >= store_ends_[store] && store + 1 < store_ends_.size()) ++store;
  return store;
}

absl::StatusOr<TableRows> EmbeddingTable::ReadRows(absl::Span<const int64_t> ids) const {
  CAIRN_RETURN_IF_ERROR(CheckIds(ids));
  const auto dim = static_cast<size_t>(options_.dim);
  optim::BufferPool pool(static_cast<int64_t>(ids.size() * dim), /*max_idle=*/0, budget_);
  const std::shared_ptr<AlignedBuffer> elements = pool.TryAcquire();
  // A table that grows keeps room for the next update; the reader repeats the call after it.
  if (elements == nullptr || (options_.vocabulary_size == 0 && !budget_->HasRoomFor(mean_bytes_))) {
    return pool.Refusal("rows that are read");
  }
  RowRead read = {.ids = ids, .elements = elements->span()};
  read.rows.resize(ids.size());
  read.places.resize(parts_.size());
  for (auto& places : read.places) places.reserve(ids.size() / parts_.size() + ids.size() / 8 + 1);
  for (size_t i = 0; i < ids.size(); ++i) read.places[StoreOf(ids[i])].push_back(i);
  ReaderLock lock(mutex_);
  ForEachStore(ids.size(), [&](size_t store) ABSL_NO_THREAD_SAFETY_ANALYSIS { ReadPart(store, read); });
  if (budget_->HasRoomFor(mean_bytes_ + FoundRows::BytesOf(ids.size())))
    found_.Keep(ids, std::move(read.rows));
  return TableRows{.version = version_, .elements = elements};
}

void EmbeddingTable::ReadPart(size_t store, RowRead& read) const {
  constexpr size_t kBlock = 512;  // rows, which stay in the processor's caches
  const auto dim = static_cast<size_t>(options_.dim);
  const std::vector<size_t>& places = read.places[store];
  const embedding::RowUpdate at = {.learning_rate = rate_, .step = version_};
  const bool stored = optimizer().ReadsStoredValues();
  std::vector<int64_t> ids(std::min(kBlock, places.size()));
  std::vector<float*> rows(ids.size());
  int64_t hits = 0;
  for (size_t first = 0; first < places.size(); first += kBlock) {
    const size_t count = std::min(kBlock, places.size() - first);
    for (size_t i = 0; i < count; ++i) ids[i] = read.ids[places[first + i]];
    stores_[store]->Find(absl::MakeConstSpan(ids).first(count), absl::MakeSpan(rows).first(count));
    for (size_t i = 0; i < count; ++i) {
      const size_t place = places[first + i];
      const absl::Span<float> to = read.elements.subspan(place * dim, dim);
      const float* const row = read.rows[place] = rows[i];
      hits += row == nullptr ? 0 : 1;
      if (row == nullptr) {
        options_.initializer.Fill(ids[i], to);
      } else if (stored) {
        CopyRow(row, dim, to.data());
      } else {
        optimizer().Read({&row, 1}, at, to);
      }
    }
  }
  lookups_.Add(static_cast<int64_t>(places.size()));
  hits_.Add(hits);
}

absl::StatusOr<TableMean> EmbeddingTable::Mean(const TableUpdate& update) {
  return ComputeMean(update);
}

absl::StatusOr<TableMean> EmbeddingTable::ComputeMean(const TableUpdate& update) {
  CAIRN_ASSIGN_OR_RETURN(TableMean mean, means_.Compute(update.contributions));
  gradients_.Add(static_cast<int64_t>(means_.ids().size()));
  updates_.Add(static_cast<int64_t>(means_.distinct()));
  MutexLock lock(hot_mutex_);
  hot_.Add(means_.ids());
  return mean;
}

absl::StatusOr<std::vector<optim::SliceSquares>> EmbeddingTable::Measure(optim::Norms, const TableUpdate&) {
  return std::vector<optim::SliceSquares>();
}

absl::Status EmbeddingTable::FindRows(absl::Span<const int64_t> ids) {
  update_rows_ = found_.Take(ids);
  update_rows_.resize(ids.size());
  for (Part& part : parts_) {
    part.ids.clear();
    part.places.clear();
  }
  size_t unknown = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (update_rows_[i] != nullptr) continue;
    Part& part = parts_[StoreOf(ids[i])];
    part.ids.push_back(ids[i]);
    part.places.push_back(i);
    ++unknown;
  }
  ForEachStore(unknown, [&](size_t store) ABSL_NO_THREAD_SAFETY_ANALYSIS { FindPart(store); });
  for (const Part& part : parts_) {
    if (!part.status.ok()) return absl::InternalError(part.status.message());
    inserts_.Add(static_cast<int64_t>(part.inserted.size()));
  }
  return absl::OkStatus();
}

void EmbeddingTable::CountWorkspace() {
  int64_t bytes = means_.workspace_bytes() + static_cast<int64_t>(update_rows_.capacity() * sizeof(float*));
  for (const Part& part : parts_) {
    bytes += static_cast<int64_t>(
        part.ids.capacity() * sizeof(int64_t) + part.places.capacity() * sizeof(size_t) +
        part.rows.capacity() * sizeof(float*) + part.inserted.capacity() * sizeof(int32_t));
  }
  budget_->Take(bytes - std::exchange(workspace_bytes_, bytes));
}

void EmbeddingTable::FindPart(size_t store) {
  Part& part = parts_[store];
  part.rows.resize(part.ids.size());
  part.inserted.clear();
  part.status = stores_[store]->FindOrInsert(part.ids, absl::MakeSpan(part.rows), &part.inserted);
  if (!part.status.ok()) return;
  for (const int32_t i : part.inserted) {
    const auto row = static_cast<size_t>(i);
    options_.initializer.Fill(part.ids[row], {part.rows[row], static_cast<size_t>(options_.dim)});
    optimizer().InitSlots({part.rows[row] + options_.dim, static_cast<size_t>(optimizer().slots())});
  }
  for (size_t i = 0; i < part.places.size(); ++i) update_rows_[part.places[i]] = part.rows[i];
}

void EmbeddingTable::ForEachStore(size_t rows, absl::FunctionRef<void(size_t)> body) const {
  if (options_.thread_pool == nullptr || rows <= kFewRows) {
    for (size_t store = 0; store < parts_.size(); ++store) body(store);
    return;
  }
  options_.thread_pool->ParallelRun([&](int i) { body(static_cast<size_t>(i)); });
}

float EmbeddingTable::LearningRate(const TableUpdate& update) const {
  float rate = optimizer().learning_rate(update.version - 1);
  if (update.learning_rate.has_value()) {
    if (options_.follows_job) {
      rate = *update.learning_rate;
    } else if (options_.job_rate > 0) {
      rate *= *update.learning_rate / options_.job_rate;
    }
  }
  return rate / update.rate_divisor;
}

absl::Status EmbeddingTable::Apply(const TableUpdate& update) {
  TableMean mean;
  if (update.mean != nullptr) {
    mean = *update.mean;
  } else {
    CAIRN_ASSIGN_OR_RETURN(mean, ComputeMean(update));
  }
  CAIRN_ASSIGN_OR_RETURN(const RowMean rows, RowsOf(mean, options_.dim));
  if (const int64_t bad = embedding::FirstNonFiniteRow(rows.elements, options_.dim);
      bad != embedding::kAllRowsFinite) {
    return absl::InvalidArgumentError(
        absl::StrCat("table '", options_.name, "': the gradient of row ", rows.ids[static_cast<size_t>(bad)],
                     " is not finite in the update to version ", update.version));
  }
  CAIRN_RETURN_IF_ERROR(CheckIds(rows.ids));
  WriterLock lock(mutex_);
  const embedding::RowUpdate of_rows = {.learning_rate = LearningRate(update), .step = update.version};
  CAIRN_RETURN_IF_ERROR(FindRows(rows.ids));
  const auto of_row = static_cast<size_t>(options_.dim);
  ForEachStore(update_rows_.size(), [&](size_t part) {
    const size_t begin = part * update_rows_.size() / parts_.size(),
                 end = (part + 1) * update_rows_.size() / parts_.size();
    optimizer().Apply(absl::MakeSpan(update_rows_).subspan(begin, end - begin),
                      rows.elements.subspan(begin * of_row, (end - begin) * of_row), of_rows);
  });
  version_ = update.version;
  rate_ = of_rows.learning_rate;
  if (mean != nullptr) mean_bytes_ = mean->size() * int64_t{sizeof(float)};
  NoteSize();
  CountWorkspace();
  return absl::OkStatus();
}

absl::StatusOr<TableState> EmbeddingTable::Save(bool beyond_budget) {
  ReaderLock lock(mutex_);
  int64_t count = 0;
  for (const auto& store : stores_) count += store->size();
  optim::BufferPool pool(embedding::StateFloats(count, row_floats()), /*max_idle=*/0, budget_);
  std::shared_ptr<AlignedBuffer> state = beyond_budget ? pool.Acquire() : pool.TryAcquire();
  if (state == nullptr && found_.Clear()) state = pool.TryAcquire();
  if (state == nullptr) return pool.Refusal(absl::StrCat("a copy of table '", options_.name, "'"));
  const embedding::TableStateHead head = {.rows = count, .learning_rate = rate_};
  std::memcpy(state->data(), &head, sizeof(head));
  float* next = state->data() + embedding::kStateHeadFloats;
  for (const auto& store : stores_) {
    store->VisitSorted(store->buckets(),
                       [&](absl::Span<const int64_t> ids, absl::Span<const float* const> rows) {
                         for (size_t i = 0; i < ids.size(); ++i) {
                           std::memcpy(next, &ids[i], sizeof(ids[i]));
                           next = std::copy_n(rows[i], row_floats(), next + embedding::kIdFloats);
                         }
                       });
  }
  return TableState{state};
}

absl::Status EmbeddingTable::CheckState(const TableState& state) const {
  embedding::StateReader reader = ReaderOf(state);
  const int64_t size = reader.left();
  const auto head = embedding::ReadStateHead(reader, row_floats());
  if (!head.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("table '", options_.name, "': a state of ", size,
                                                   " floats is not one of rows of ", options_.dim,
                                                   " elements and ", row_floats() - options_.dim, " slots"));
  }
  embedding::RowOrder order;
  for (int64_t row = 0; row < head->rows; ++row) {
    int64_t id = 0;
    reader.Read(&id, embedding::kIdFloats);
    reader.Read(nullptr, row_floats());
    CAIRN_RETURN_IF_ERROR(CheckIds({&id, 1}));
    if (order.Follows(id)) continue;
    return absl::InvalidArgumentError(absl::StrCat("table '", options_.name, "': row ", id,
                                                   " of a state is not in the order of buckets and ids"));
  }
  return absl::OkStatus();
}

void EmbeddingTable::Restore(int64_t version, TableState state) {
  embedding::TableStateHead head;
  ReaderOf(state).Read(&head, embedding::kStateHeadFloats);
  WriterLock lock(mutex_);
  memory_.SetLimited(false);  // the job cannot go on without the state
  MakeStores();
  ForEachStore(static_cast<size_t>(head.rows), [&](size_t store) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const int64_t begin = RowsBefore(store, state, head.rows);
    const int64_t end = store + 1 == parts_.size() ? head.rows : RowsBefore(store + 1, state, head.rows);
    parts_[store].status = AddRows(store, state, begin, end);
  });
  memory_.SetLimited(true);
  for (const Part& part : parts_) {
    if (!part.status.ok()) throw OutOfMemory(embedding::StateFloats(head.rows, row_floats()), options_.name);
  }
  version_ = version;
  rate_ = head.learning_rate;
  NoteSize();
}

int64_t EmbeddingTable::RowsBefore(size_t store, const TableState& state, int64_t rows) const {
  int64_t begin = 0, end = rows;
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    embedding::StateReader reader = ReaderOf(state);
    int64_t id = 0;
    reader.Read(nullptr, embedding::StateFloats(middle, row_floats()));
    reader.Read(&id, embedding::kIdFloats);
    if (StoreOf(id) < store) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

absl::Status EmbeddingTable::AddRows(size_t store, const TableState& state, int64_t begin, int64_t end) {
  constexpr int64_t kBatch = 8192;  // rows
  embedding::StateReader reader = ReaderOf(state);
  reader.Read(nullptr, embedding::StateFloats(begin, row_floats()));
  const auto of_row = static_cast<size_t>(row_floats());
  std::vector<float> elements(static_cast<size_t>(std::min(end - begin, kBatch)) * of_row);
  std::vector<int64_t> ids;
  std::vector<float*> rows;
  std::vector<int32_t> inserted;
  for (int64_t first = begin; first < end; first += kBatch) {
    ids.resize(static_cast<size_t>(std::min(end - first, kBatch)));
    rows.resize(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      reader.Read(&ids[i], embedding::kIdFloats);
      reader.Read(elements.data() + i * of_row, row_floats());
    }
    CAIRN_RETURN_IF_ERROR(stores_[store]->FindOrInsert(ids, absl::MakeSpan(rows), &inserted));
    for (size_t i = 0; i < rows.size(); ++i) std::copy_n(elements.data() + i * of_row, of_row, rows[i]);
  }
  return absl::OkStatus();
}

}  // namespace cairn::ps
