#include "ps/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::ps {
namespace {

// Pushes and writes of one stream whose chunks may be on their way at the same time; each holds a copy of all values.
constexpr size_t kMostOpenRequests = 4;

}  // namespace

absl::Status Session::OnFrame(const v1::ClientHeader& header, net::Payload payload) {
  const uint64_t id = header.request_id();
  if (header.kind_case() == v1::ClientHeader::kChunk) return OnChunk(id, header.chunk().offset(), payload);
  if (!payload.empty()) return absl::InvalidArgumentError("frame: only chunks carry a payload");

  if (header.kind_case() == v1::ClientHeader::kEnd) {
    auto node = open_.extract(id);
    if (node.empty()) return absl::InvalidArgumentError(absl::StrCat("frame: end of request ", id, ", which is not open"));
    End(id, std::move(node.mapped()));
    return absl::OkStatus();
  }
  if (open_.count(id) > 0) return absl::InvalidArgumentError(absl::StrCat("frame: request ", id, " begins twice"));
  if (open_.size() >= kMostOpenRequests) {
    return absl::ResourceExhaustedError(absl::StrCat("more than ", kMostOpenRequests, " requests open in one session"));
  }
  switch (header.kind_case()) {
    case v1::ClientHeader::kPush:
      BeginPush(id, header.push());
      return absl::OkStatus();
    case v1::ClientHeader::kWrite:
      BeginWrite(id, header.write());
      return absl::OkStatus();
    case v1::ClientHeader::kRead:
      Read(id, header.read());
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("frame: a header of no known kind");
  }
}

void Session::BeginPush(uint64_t request_id, const v1::PushBegin& begin) {
  Open& open = open_[request_id];
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    open.failure = job.status();
    return;
  }
  if ((*job)->job().mode() == v1::MODE_VARIABLES || !server_.ready()) {
    open.failure = absl::FailedPreconditionError("a push, but no training job is ready");
    return;
  }
  if (begin.worker() < 0 || begin.worker() >= (*job)->job().workers_size() || begin.step() < 1 || begin.examples() < 0 ||
      begin.base_version() < 0 || begin.incarnation() == 0) {
    open.failure = absl::InvalidArgumentError(absl::StrCat("push with impossible fields: ", begin.ShortDebugString()));
    return;
  }
  const PushRequest request = {
      .gradient = {.key = {.worker = begin.worker(), .incarnation = begin.incarnation(), .step = begin.step()},
                   .base_version = begin.base_version(),
                   .examples = begin.examples()},
      .read_values = begin.read_values()};
  open.job = *std::move(job);
  open.push = open.job->shard().BeginPush(request);
}

void Session::BeginWrite(uint64_t request_id, const v1::WriteBegin& begin) {
  Open& open = open_[request_id];
  open.initialise = begin.initialise();
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    open.failure = job.status();
    return;
  }
  open.job = *std::move(job);
  open.write = std::make_unique<Accumulator>(open.job->shard().store().pool());
}

void Session::Read(uint64_t request_id, const v1::ReadBegin& begin) {
  auto job = server_.JobForLayout(begin.layout());
  if (!job.ok()) {
    SendFailure(request_id, job.status());
    return;
  }
  const int64_t size = (*job)->shard().store().size();
  const int64_t first = begin.offset();
  const int64_t end = begin.count() == 0 ? size : first + begin.count();
  if (first < 0 || begin.count() < 0 || begin.count() > size || end > size || first > end) {
    SendFailure(request_id, absl::InvalidArgumentError(absl::StrCat(
                                "read of ", begin.count(), " elements at ", first, ": this server has ", size)));
    return;
  }
  (*job)->shard().Read(begin.mark(), [self = shared_from_this(), job = *job, request_id, first,
                                      end](absl::StatusOr<ReadResult> result) {
    if (!result.ok()) {
      self->SendFailure(request_id, result.status());
      return;
    }
    self->SendValues(request_id, result->values, first, end);
    v1::Done done;
    done.set_version(result->values.version);
    done.set_has_values(true);
    done.set_finished(result->finished);
    self->SendDone(request_id, std::move(done));
  });
}

absl::Status Session::OnChunk(uint64_t request_id, int64_t offset, net::Payload payload) {
  const auto found = open_.find(request_id);
  if (found == open_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: chunk of request ", request_id, ", which is not open"));
  }
  Open& open = found->second;
  if (!open.failure.ok()) return absl::OkStatus();
  open.failure = open.push != nullptr ? open.push->AddChunk(offset, payload) : open.write->Add(offset, payload);
  return absl::OkStatus();
}

void Session::End(uint64_t request_id, Open open) {
  if (!open.failure.ok()) {
    SendFailure(request_id, open.failure);
    return;
  }
  if (open.write != nullptr) {
    FinishWrite(request_id, std::move(open));
    return;
  }
  const auto job = open.job;
  job->shard().FinishPush(std::move(open.push), [self = shared_from_this(), job,
                                                 request_id](absl::StatusOr<PushResult> result) {
    if (!result.ok()) {
      self->SendFailure(request_id, result.status());
      return;
    }
    v1::Done done;
    done.set_version(result->version);
    done.set_outcome(result->outcome);
    done.set_duplicate(result->duplicate);
    done.set_staleness(result->staleness);
    done.set_finished(result->finished);
    if (result->values.data != nullptr) {
      self->SendValues(request_id, result->values, 0, result->values.data->size());
      done.set_has_values(true);
    }
    self->SendDone(request_id, std::move(done));
  });
}

void Session::FinishWrite(uint64_t request_id, Open open) {
  if (open.initialise && !open.write->complete() && open.job->shard().store().size() > 0) {
    SendFailure(request_id, absl::InvalidArgumentError(absl::StrCat("initial values: ", open.write->received(), " of ",
                                                                    open.job->shard().store().size(), " elements came")));
    return;
  }
  const auto job = open.job;
  job->shard().Write(std::move(open.write), [self = shared_from_this(), job, request_id,
                                             initialise = open.initialise] {
    if (initialise) self->server_.OnInitialised(job);
    v1::Done done;
    done.set_version(job->shard().store().current().version);
    self->SendDone(request_id, std::move(done));
  });
}

void Session::SendDone(uint64_t request_id, v1::Done done) {
  v1::ServerHeader header;
  header.set_request_id(request_id);
  *header.mutable_done() = std::move(done);
  sink_->Send(header, {}, nullptr);
}

void Session::SendFailure(uint64_t request_id, const absl::Status& failure) {
  v1::Done done;
  done.set_code(static_cast<int>(failure.code()));
  done.set_message(std::string(failure.message()));
  SendDone(request_id, std::move(done));
}

void Session::SendValues(uint64_t request_id, const Values& values, int64_t begin, int64_t end) {
  v1::ServerHeader header;
  header.set_request_id(request_id);
  for (int64_t offset = begin; offset < end; offset += net::kMaxPayloadFloats) {
    const int64_t count = std::min(net::kMaxPayloadFloats, end - offset);
    header.mutable_chunk()->set_offset(offset);
    const absl::Span<const float> chunk(values.data->data() + offset, static_cast<size_t>(count));
    sink_->Send(header, {&chunk, 1}, values.data);
  }
}

}  // namespace cairn::ps
