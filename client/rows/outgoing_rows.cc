#include "client/rows/outgoing_rows.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "common/core/status.h"
#include "common/net/wire/codec.h"
#include "common/net/wire/row_frame.h"

namespace cairn::client {

void OutgoingRows::BeginStep() {
  previous_.clear();
  if (std::exchange(answered_, false)) previous_ = std::move(wanted_);
  wanted_.clear();
  wanted_rows_.clear();
  pushed_.clear();
  buffers_used_ = 0;
  for (State& state : servers_) state = {.knows_keys = !previous_.empty()};
}

void OutgoingRows::BeginPush(int server) {
  state(server).sent_pushed = 0;
  state(server).sent_wanted = 0;
}

absl::Status OutgoingRows::Push(absl::Span<const RowGradients> gradients) {
  CAIRN_CHECK(pushed_.empty());
  std::vector<Pushed> pushed;
  for (const RowGradients& of_table : gradients) {
    const auto of_row = static_cast<size_t>(tables_.row_elements(of_table.table));
    CAIRN_CHECK(of_table.gradients.size() == of_table.keys.size() * of_row);
    CAIRN_ASSIGN_OR_RETURN(pushed.emplace_back(), Divide(of_table));
  }
  pushed_ = std::move(pushed);
  for (size_t i = 0; i < pushed_.size(); ++i) {
    for (int server = 0; server < tables_.servers(); ++server) {
      const auto packed = Pack(pushed_[i], gradients[i].gradients, server);
      pushed_[i].elements.push_back(packed);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OutgoingRows::Pushed> OutgoingRows::Divide(const RowGradients& gradients) const {
  for (const DividedRows& previous : previous_) {
    if (previous.table == gradients.table && previous.partition->keys() == gradients.keys) {
      return Pushed{.rows = previous, .known = true};
    }
  }
  CAIRN_ASSIGN_OR_RETURN(DividedRows rows, tables_.Divide(gradients.table, gradients.keys));
  return Pushed{.rows = std::move(rows)};
}

absl::Status OutgoingRows::Want(absl::Span<const RowValues> rows, ArrivingRows& arriving) {
  CAIRN_CHECK(wanted_.empty());
  CAIRN_ASSIGN_OR_RETURN(wanted_, arriving.Expect(tables_, rows));
  wanted_rows_.assign(rows.begin(), rows.end());
  return absl::OkStatus();
}

int64_t OutgoingRows::RowsInFrame(int table) const {
  return net::RowForm{.elements = tables_.row_elements(table), .encoding = tables_.encoding()}.max_rows();
}

absl::Span<const float> OutgoingRows::Pack(const Pushed& pushed, absl::Span<const float> gradients,
                                           int server) {
  const net::Codec* const codec = net::CodecOf(tables_.encoding());
  const RowPartition& partition = *pushed.rows.partition;
  if (codec == nullptr && partition.whole()) return gradients;
  const auto of_row = static_cast<size_t>(tables_.row_elements(pushed.rows.table));
  const net::RowForm form = {
      .ids = false, .elements = static_cast<int64_t>(of_row), .encoding = tables_.encoding()};
  const auto most = static_cast<size_t>(RowsInFrame(pushed.rows.table));
  const size_t rows = partition.keys_on(server).size();
  const absl::Span<float> packed =
      NextBuffer(static_cast<int64_t>(rows / most) * form.Floats(static_cast<int64_t>(most)) +
                 form.Floats(static_cast<int64_t>(rows % most)));
  AlignedBuffer gathered(
      codec != nullptr && !partition.whole() ? static_cast<int64_t>(std::min(most, rows) * of_row) : 0);
  float* to = packed.data();
  for (size_t first = 0; first < rows; first += most) {
    const size_t count = std::min(most, rows - first);
    absl::Span<const float> frame;
    if (partition.whole()) {
      frame = gradients.subspan(first * of_row, count * of_row);
    } else {
      float* const into = codec == nullptr ? to : gathered.data();
      const absl::Span<const size_t> positions = partition.positions_on(server).subspan(first, count);
      for (size_t i = 0; i < count; ++i) {
        std::copy_n(gradients.data() + positions[i] * of_row, of_row, into + i * of_row);
      }
      frame = {into, count * of_row};
    }
    const int64_t floats = form.Floats(static_cast<int64_t>(count));
    if (codec != nullptr) {
      to[floats - 1] = 0;  // the padding, if there is any
      codec->Encode(frame, reinterpret_cast<char*>(to));
    }
    to += floats;
  }
  return packed;
}

absl::Span<float> OutgoingRows::NextBuffer(int64_t floats) {
  if (buffers_used_ == buffers_.size()) buffers_.emplace_back();
  AlignedBuffer& buffer = buffers_[buffers_used_++];
  if (buffer.size() < floats) buffer = AlignedBuffer(floats + floats / 4);
  return buffer.span().first(static_cast<size_t>(floats));
}

int64_t OutgoingRows::Send(int server, ServerSession& session, uint64_t request_id) {
  State& state = this->state(server);
  int64_t bytes = 0;
  for (; state.sent_pushed < pushed_.size(); ++state.sent_pushed) {
    bytes += SendGradients(pushed_[state.sent_pushed], server, session, request_id);
  }
  for (; state.sent_wanted < wanted_.size(); ++state.sent_wanted) {
    const DividedRows& wanted = wanted_[state.sent_wanted];
    v1::Rows header;
    header.set_table(wanted.table);
    header.set_wanted(true);
    const int64_t of_keys = SendKeys(session, request_id, header, wanted.partition->keys_on(server));
    if (metrics_ != nullptr) metrics_->push_float32_bytes.Add(of_keys);
    bytes += of_keys;
  }
  if (metrics_ != nullptr) {
    metrics_->push_bytes.Add(bytes);
    metrics_->row_push_bytes.Add(bytes);
  }
  return bytes;
}

int64_t OutgoingRows::SendGradients(const Pushed& pushed, int server, ServerSession& session,
                                    uint64_t request_id) {
  const absl::Span<const int64_t> keys = pushed.rows.partition->keys_on(server);
  const bool known = pushed.known && state(server).knows_keys;
  const int64_t row_elements = tables_.row_elements(pushed.rows.table);
  const net::RowForm form = {.ids = false, .elements = row_elements, .encoding = tables_.encoding()};
  const auto most = static_cast<size_t>(RowsInFrame(pushed.rows.table));
  v1::Rows header;
  header.set_table(pushed.rows.table);
  header.set_encoding(tables_.encoding());
  absl::Span<const float> left = pushed.elements[static_cast<size_t>(server)];
  int64_t floats = 0;
  for (size_t first = 0; first < keys.size(); first += most) {
    const size_t count = std::min(most, keys.size() - first);
    header.set_count(static_cast<int64_t>(count));
    absl::InlinedVector<absl::Span<const float>, 2> payload;
    if (known) {
      header.set_known(static_cast<int64_t>(first));
    } else {
      payload.push_back(net::AsFloats(keys.subspan(first, count)));
    }
    payload.push_back(left.first(static_cast<size_t>(form.Floats(static_cast<int64_t>(count)))));
    left.remove_prefix(payload.back().size());
    session.SendRows(request_id, header, payload);
    for (const auto& run : payload) floats += static_cast<int64_t>(run.size());
  }
  const auto rows = static_cast<int64_t>(keys.size());
  if (metrics_ != nullptr) {
    metrics_->pushed_rows.Add(rows);
    metrics_->push_float32_bytes.Add(4 * (rows * row_elements + (known ? 0 : 2 * rows)));
  }
  return 4 * floats;
}

int64_t SendKeys(ServerSession& session, uint64_t request_id, const v1::Rows& header,
                 absl::Span<const int64_t> keys) {
  v1::Rows frame = header;
  const auto most = static_cast<size_t>(net::RowForm{}.max_rows());
  for (size_t first = 0; first < keys.size(); first += most) {
    const auto part = keys.subspan(first, most);
    frame.set_count(static_cast<int64_t>(part.size()));
    const absl::Span<const float> payload = net::AsFloats(part);
    session.SendRows(request_id, frame, {&payload, 1});
  }
  return static_cast<int64_t>(keys.size() * sizeof(int64_t));
}

}  // namespace cairn::client
