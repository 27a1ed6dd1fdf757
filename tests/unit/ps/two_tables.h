// A server with a job of two tables, the variable "a" of two elements and the table "t" of rows of two elements,
// and a client's stream of frames to it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/net/wire/row_frame.h"
#include "gtest/gtest.h"
#include "ps/rpc/session.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/ps/counting_table.h"
#include "tests/unit/ps/pieces.h"

namespace cairn::ps {

using RowMap = std::map<int64_t, std::vector<float>>;

// The bytes of some rows, or of their ids.
class RowBytes {
 public:
  explicit RowBytes(const RowMap& rows) {
    for (const auto& [id, row] : rows) {
      ids_.push_back(id);
      elements_.insert(elements_.end(), row.begin(), row.end());
    }
    Set();
  }
  explicit RowBytes(std::vector<int64_t> ids) : ids_(std::move(ids)) { Set(); }
  RowBytes(const RowBytes&) = delete;
  RowBytes& operator=(const RowBytes&) = delete;
  operator net::Payload() const { return {runs_, elements_.empty() ? size_t{1} : size_t{2}}; }  // NOLINT
  v1::ClientHeader Header(uint64_t request, int table = 1, bool wanted = false) const {
    v1::ClientHeader header;
    header.set_request_id(request);
    header.mutable_rows()->set_table(table);
    header.mutable_rows()->set_count(static_cast<int64_t>(ids_.size()));
    header.mutable_rows()->set_wanted(wanted);
    return header;
  }

 private:
  void Set() {
    runs_[0] = {reinterpret_cast<const char*>(ids_.data()), ids_.size() * sizeof(int64_t)};
    runs_[1] = {reinterpret_cast<const char*>(elements_.data()), elements_.size() * sizeof(float)};
  }
  std::vector<int64_t> ids_;
  std::vector<float> elements_;
  absl::Span<const char> runs_[2];
};

// Records the answers of a server.
class TablesSink final : public SessionSink {
 public:
  void Send(const v1::ServerHeader& header, net::FloatSpans payload,
            const std::shared_ptr<const void>&) override {
    if (header.has_done()) done = header.done();
    if (header.has_rows()) {
      const absl::Span<const char> run(reinterpret_cast<const char*>(payload[0].data()),
                                       payload[0].size() * sizeof(float));
      const net::Payload bytes(&run, 1);
      ASSERT_EQ(net::CheckRowElements(header.rows(), bytes, 2), absl::OkStatus());
      std::vector<float> frame(static_cast<size_t>(header.rows().count()) * 2);
      ASSERT_EQ(net::CopyRowElements(header.rows(), bytes, absl::MakeSpan(frame)), absl::OkStatus());
      std::vector<float>& of_request = rows[header.request_id()];
      of_request.insert(of_request.end(), frame.begin(), frame.end());
    }
    if (!header.has_chunk()) return;
    std::vector<float>& into = values[header.chunk().table()];
    for (const auto& run : payload) {
      const auto end = static_cast<size_t>(header.chunk().offset()) + run.size();
      if (into.size() < end) into.resize(end);
      std::copy(run.begin(), run.end(), into.begin() + header.chunk().offset());
    }
  }
  v1::Done done;
  std::map<uint64_t, std::vector<float>> rows;  // [request] [row][element]
  std::map<int, std::vector<float>> values;     // [table] of all chunks
};

// A job of both tables, trained by SGD at rate 1.
inline v1::CreateRequest JobOfTwoTables(v1::Mode mode, int workers) {
  v1::CreateRequest request = TrainingJob();
  v1::Job& job = *request.mutable_job();
  job.set_mode(mode);
  while (job.workers_size() > workers) job.mutable_workers()->RemoveLast();
  (*job.mutable_optimizer()->mutable_hyperparameters())["learning_rate"] = 1;
  v1::Table& table = *job.add_tables();
  table.set_name("t");
  table.set_kind("counting");
  table.set_row_elements(2);
  return request;
}

// A client's requests on one stream.
class TablesClient {
 public:
  explicit TablesClient(Server& server) : server_(server), session_(server, sink_) {}

  absl::Status Create(const v1::CreateRequest& request) {
    absl::Status status;
    server_.Create(request, [&](absl::StatusOr<v1::CreateResponse> response) {
      status = response.status();
      if (response.ok()) layout_ = response->layout();
    });
    return status;
  }
  uint64_t layout() const { return layout_; }
  void set_layout(uint64_t layout) { layout_ = layout; }
  // The initial values of the variables, and the states of all tables of a job that resumes.
  void Initialise(std::vector<float> values, const std::vector<std::vector<float>>& states = {}) {
    v1::ClientHeader write = Next();
    write.mutable_write()->set_layout(layout_);
    write.mutable_write()->set_initialise(true);
    for (const auto& state : states) {
      write.mutable_write()->add_table_states(static_cast<int64_t>(state.size()));
    }
    Frame(write);
    Chunk(0, std::move(values));
    for (size_t i = 0; i < states.size(); ++i) Chunk(static_cast<int>(i) + 1, states[i]);
    End();
  }
  void Join(int worker) {
    v1::JoinRequest join;
    join.set_worker(worker);
    join.set_task(absl::StrCat("worker/", worker));
    server_.Join(join, [this, worker](absl::StatusOr<v1::JoinResponse> response) {
      ASSERT_TRUE(response.ok()) << response.status();
      incarnations_[worker] = response->incarnation();
    });
  }
  void BeginPush(int worker, int64_t version, int64_t examples = 1) {
    v1::ClientHeader push = PushHeader(worker, version, examples);
    Frame(push);
  }
  v1::ClientHeader PushHeader(int worker, int64_t version, int64_t examples = 1) {
    v1::ClientHeader push = Next();
    v1::PushBegin& begin = *push.mutable_push();
    begin.set_layout(layout_);
    begin.set_worker(worker);
    begin.set_incarnation(incarnations_[worker]);
    begin.set_step(++step_);
    begin.set_base_version(version);
    begin.set_examples(examples);
    return push;
  }
  // A push from version `version`, with gradients of "a" and of rows of "t".
  void Push(int worker, int64_t version, std::vector<float> gradient, const RowMap& rows,
            int64_t examples = 1) {
    BeginPush(worker, version, examples);
    if (examples > 0) Chunk(0, std::move(gradient));
    if (!rows.empty()) Rows(rows);
    End();
  }
  void Rows(const RowMap& rows, int table = 1) {
    const RowBytes bytes(rows);
    EXPECT_EQ(session_.OnFrame(bytes.Header(id_, table), bytes), absl::OkStatus());
  }
  // The answer to the open push shall contain these rows.
  void Want(std::vector<int64_t> ids, int table = 1) {
    const RowBytes bytes(std::move(ids));
    EXPECT_EQ(session_.OnFrame(bytes.Header(id_, table, /*wanted=*/true), bytes), absl::OkStatus());
  }
  // Gradients of two rows of "t", which the previous push wanted, from position `known` on.
  void KnownRows(int64_t known, std::vector<float> gradients) {
    v1::ClientHeader header;
    header.set_request_id(id_);
    header.mutable_rows()->set_table(1);
    header.mutable_rows()->set_count(static_cast<int64_t>(gradients.size()) / 2);
    header.mutable_rows()->set_known(known);
    EXPECT_EQ(session_.OnFrame(header, Bytes(std::move(gradients))), absl::OkStatus());
  }
  // The request that was begun last.
  uint64_t request() const { return id_; }
  // The rows in the answer to a request for these ids of "t". Empty if it has none.
  RowMap Answered(uint64_t request, const std::vector<int64_t>& ids) const {
    RowMap rows;
    const auto found = sink_->rows.find(request);
    if (found == sink_->rows.end()) return rows;
    EXPECT_EQ(found->second.size(), 2 * ids.size());
    for (size_t i = 0; i < ids.size(); ++i) rows[ids[i]] = {found->second[2 * i], found->second[2 * i + 1]};
    return rows;
  }
  // The rows with these ids.
  RowMap Read(std::vector<int64_t> ids, int table = 1, v1::Encoding encoding = v1::ENCODING_FLOAT32) {
    v1::ClientHeader read = Next();
    read.mutable_read_rows()->set_layout(layout_);
    read.mutable_read_rows()->set_encoding(encoding);
    Frame(read);
    const RowBytes bytes(ids);
    EXPECT_EQ(session_.OnFrame(bytes.Header(id_, table), bytes), absl::OkStatus());
    End();
    return Answered(id_, ids);
  }
  // The values of "a"; with `state`, everything at the marker.
  std::map<int, std::vector<float>> ReadValues(const std::string& marker = "", bool state = false) {
    v1::ClientHeader read = Next();
    read.mutable_read()->set_layout(layout_);
    read.mutable_read()->set_marker(marker);
    read.mutable_read()->set_state(state);
    sink_->values.clear();
    Frame(read);
    const v1::Done values = done();
    for (int table = 1; table <= values.table_states_size(); ++table) {
      v1::ClientHeader state_read = Next();
      state_read.mutable_read()->set_layout(layout_);
      state_read.mutable_read()->set_table(table);
      state_read.mutable_read()->set_count(values.table_states(table - 1));
      Frame(state_read);
    }
    return sink_->values;
  }
  const v1::Done& done() const { return sink_->done; }

  v1::ClientHeader Next() {
    v1::ClientHeader header;
    header.set_request_id(++id_);
    return header;
  }
  void Frame(const v1::ClientHeader& header) { EXPECT_EQ(session_.OnFrame(header, {}), absl::OkStatus()); }
  void Chunk(int table, std::vector<float> values) {
    v1::ClientHeader header;
    header.set_request_id(id_);
    header.mutable_chunk()->set_table(table);
    EXPECT_EQ(session_.OnFrame(header, Bytes(std::move(values))), absl::OkStatus());
  }
  void End() {
    v1::ClientHeader header;
    header.set_request_id(id_);
    header.mutable_end();
    Frame(header);
  }

 private:
  Server& server_;
  std::shared_ptr<TablesSink> sink_ = std::make_shared<TablesSink>();
  Session session_;
  uint64_t layout_ = 0;
  uint64_t id_ = 0;
  int64_t step_ = 0;
  std::map<int, uint64_t> incarnations_;
};

}  // namespace cairn::ps
