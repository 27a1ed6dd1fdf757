#include "ps/session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cairn::ps {
namespace {

// Pushes and writes of one stream whose chunks may be on their way at the same time; each holds a copy of all
// values.
constexpr size_t kMostOpenRequests = 4;
// What the weighted mean can take (WeightedGradient).
constexpr int64_t kMostExamples = std::numeric_limits<uint32_t>::max();

// How one request is answered. It holds neither the session nor the job, so a request that waits keeps
// neither alive.
class Answer {
 public:
  Answer(std::shared_ptr<SessionSink> sink, uint64_t request_id) : sink_(std::move(sink)) {
    header_.set_request_id(request_id);
  }

  // Elements [begin, end) of `values` in chunks.
  void SendValues(const Values& values, int64_t begin, int64_t end) {
    for (int64_t offset = begin; offset < end; offset += net::kMaxPayloadFloats) {
      const int64_t count = std::min(net::kMaxPayloadFloats, end - offset);
      header_.mutable_chunk()->set_offset(offset);
      const absl::Span<const float> chunk(values.data->data() + offset, static_cast<size_t>(count));
      sink_->Send(header_, {&chunk, 1}, values.data);
    }
  }
  void SendDone(v1::Done done) {
    *header_.mutable_done() = std::move(done);
    sink_->Send(header_, {}, nullptr);
  }
  void SendFailure(const absl::Status& failure) {
    v1::Done done;
    done.set_code(static_cast<int>(failure.code()));
    done.set_message(std::string(failure.message()));
    SendDone(std::move(done));
  }

 private:
  std::shared_ptr<SessionSink> sink_;
  v1::ServerHeader header_;
};

}  // namespace

absl::Status Session::OnFrame(const v1::ClientHeader& header, net::Payload payload) {
  const uint64_t id = header.request_id();
  if (header.kind_case() == v1::ClientHeader::kChunk) return OnChunk(id, header.chunk().offset(), payload);
  if (!payload.empty()) return absl::InvalidArgumentError("frame: only chunks carry a payload");

  if (header.kind_case() == v1::ClientHeader::kEnd) {
    auto node = open_.extract(id);
    if (node.empty())
      return absl::InvalidArgumentError(absl::StrCat("frame: end of request ", id, ", which is not open"));
    End(id, std::move(node.mapped()));
    return absl::OkStatus();
  }
  if (open_.count(id) > 0)
    return absl::InvalidArgumentError(absl::StrCat("frame: request ", id, " begins twice"));
  if (open_.size() >= kMostOpenRequests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMostOpenRequests, " requests open in one session"));
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
  if (begin.worker() < 0 || begin.worker() >= (*job)->job().workers_size() || begin.step() < 1 ||
      begin.examples() < 0 || begin.examples() > kMostExamples || begin.base_version() < 0 ||
      begin.incarnation() == 0) {
    open.failure =
        absl::InvalidArgumentError(absl::StrCat("push with impossible fields: ", begin.ShortDebugString()));
    return;
  }
  const PushRequest request = {.gradient = {.key = {.worker = begin.worker(),
                                                    .incarnation = begin.incarnation(),
                                                    .step = begin.step()},
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
    Answer(sink_, request_id).SendFailure(job.status());
    return;
  }
  const int64_t size = (*job)->shard().store().size();
  const int64_t first = begin.offset();
  if (first < 0 || first > size || begin.count() < 0 || begin.count() > size - first) {
    Answer(sink_, request_id)
        .SendFailure(absl::InvalidArgumentError(
            absl::StrCat("read of ", begin.count(), " elements at ", first, ": this server has ", size)));
    return;
  }
  const int64_t end = begin.count() == 0 ? size : first + begin.count();
  (*job)->shard().Read(begin.mark(), [answer = Answer(sink_, request_id), first,
                                      end](absl::StatusOr<ReadResult> result) mutable {
    if (!result.ok()) {
      answer.SendFailure(result.status());
      return;
    }
    answer.SendValues(result->values, first, end);
    v1::Done done;
    done.set_version(result->values.version);
    done.set_has_values(true);
    done.set_finished(result->finished);
    answer.SendDone(std::move(done));
  });
}

absl::Status Session::OnChunk(uint64_t request_id, int64_t offset, net::Payload payload) {
  const auto found = open_.find(request_id);
  if (found == open_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: chunk of request ", request_id, ", which is not open"));
  }
  Open& open = found->second;
  if (!open.failure.ok()) return absl::OkStatus();
  open.failure =
      open.push != nullptr ? open.push->AddChunk(offset, payload) : open.write->Add(offset, payload);
  return absl::OkStatus();
}

void Session::End(uint64_t request_id, Open open) {
  if (!open.failure.ok()) {
    Answer(sink_, request_id).SendFailure(open.failure);
    return;
  }
  if (open.write != nullptr) {
    FinishWrite(request_id, std::move(open));
    return;
  }
  open.job->shard().FinishPush(
      std::move(open.push), [answer = Answer(sink_, request_id)](absl::StatusOr<PushResult> result) mutable {
        if (!result.ok()) {
          answer.SendFailure(result.status());
          return;
        }
        v1::Done done;
        done.set_version(result->version);
        done.set_outcome(result->outcome);
        done.set_duplicate(result->duplicate);
        done.set_staleness(result->staleness);
        done.set_finished(result->finished);
        if (result->values.data != nullptr) {
          answer.SendValues(result->values, 0, result->values.data->size());
          done.set_has_values(true);
        }
        answer.SendDone(std::move(done));
      });
}

void Session::FinishWrite(uint64_t request_id, Open open) {
  const int64_t size = open.job->shard().store().size();
  if (open.initialise && !open.write->complete()) {
    Answer(sink_, request_id)
        .SendFailure(absl::InvalidArgumentError(
            absl::StrCat("initial values: ", open.write->received(), " of ", size, " elements came")));
    return;
  }
  open.job->shard().Write(std::move(open.write),
                          [answer = Answer(sink_, request_id), &server = server_, layout = open.job->layout(),
                           initialise = open.initialise](int64_t version) mutable {
                            if (initialise) server.OnInitialised(layout);
                            // Variables added meanwhile may have been copied before this write: then it must
                            // be made again.
                            if (auto job = server.JobForLayout(layout); !job.ok()) {
                              answer.SendFailure(job.status());
                              return;
                            }
                            v1::Done done;
                            done.set_version(version);
                            answer.SendDone(std::move(done));
                          });
}

}  // namespace cairn::ps
