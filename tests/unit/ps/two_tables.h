// A server with a job of two tables, the variable "a" of two elements and the table "t" of rows of two elements,
// and a client's stream of frames to it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

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
  v1::ClientHeader Header(uint64_t request, int table = 1) const {
    v1::ClientHeader header;
    header.set_request_id(request);
    header.mutable_rows()->set_table(table);
    header.mutable_rows()->set_count(static_cast<int64_t>(ids_.size()));
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
      const auto* id = reinterpret_cast<const int64_t*>(payload[0].data());
      const size_t of_row = payload[1].size() / static_cast<size_t>(header.rows().count());
      for (size_t at = 0; at < payload[1].size(); at += of_row) {
        rows[*id++] = {payload[1].begin() + at, payload[1].begin() + at + of_row};
      }
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
  RowMap rows;                               // of all answers
  std::map<int, std::vector<float>> values;  // [table] of all chunks
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
    v1::ClientHeader push = Next();
    v1::PushBegin& begin = *push.mutable_push();
    begin.set_layout(layout_);
    begin.set_worker(worker);
    begin.set_incarnation(incarnations_[worker]);
    begin.set_step(++step_);
    begin.set_base_version(version);
    begin.set_examples(examples);
    Frame(push);
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
  // The rows with these ids, in the sink.
  RowMap Read(std::vector<int64_t> ids, int table = 1) {
    v1::ClientHeader read = Next();
    read.mutable_read_rows()->set_layout(layout_);
    read.mutable_read_rows()->set_table(table);
    Frame(read);
    const RowBytes bytes(std::move(ids));
    EXPECT_EQ(session_.OnFrame(bytes.Header(id_, table), bytes), absl::OkStatus());
    sink_->rows.clear();
    End();
    return sink_->rows;
  }
  // The values of "a"; with `state`, everything at the marker.
  std::map<int, std::vector<float>> ReadValues(const std::string& marker = "", bool state = false) {
    v1::ClientHeader read = Next();
    read.mutable_read()->set_layout(layout_);
    read.mutable_read()->set_marker(marker);
    read.mutable_read()->set_state(state);
    sink_->values.clear();
    Frame(read);
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
