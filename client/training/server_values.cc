#include "client/training/server_values.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/core/clock.h"
#include "common/core/status.h"

namespace cairn::client {

ServerValues::ServerValues(Connection& connection, const Options& options)
    : connection_(connection),
      options_(options),
      current_(options_.size),
      incoming_(options_.size),
      versions_(static_cast<size_t>(connection_.num_servers()), 0),
      editions_(versions_.size(), 0) {}

absl::StatusOr<bool> ServerValues::Read(const LearntJob& job, const std::string& marker,
                                        v1::Encoding encoding) {
  const int64_t asked = Wants(options_.trace) ? TraceNanos(SteadyNow()) : 0;
  const StopCheck stopped = Latched(connection_.options().stop);
  CAIRN_ASSIGN_OR_RETURN(std::vector<Reading> readings, BeginReads(job, marker, encoding, stopped));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Done> ends, AwaitReads(readings, asked, stopped));
  std::vector<int64_t> versions;
  std::vector<uint64_t> editions;
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const v1::Done& end = ends[static_cast<size_t>(server)];
    versions.push_back(end.version());
    editions.push_back(end.edition());
    if (job.one_log && versions.back() != versions[0]) {
      return absl::InternalError(absl::StrCat("pull: the servers sent different versions: ", versions[0],
                                              " on ps/0 and ", end.version(), " on ",
                                              connection_.NameOf(server)));
    }
  }
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const auto s = static_cast<size_t>(server);
    if (encoding == editions_encoding_ && editions[s] == editions_[s]) CopyUnchanged(job, server);
  }
  std::swap(current_, incoming_);
  versions_ = std::move(versions);
  editions_ = std::move(editions);
  editions_encoding_ = encoding;
  return ends[0].finished();
}

absl::StatusOr<std::vector<ServerValues::Reading>> ServerValues::BeginReads(const LearntJob& job,
                                                                            const std::string& marker,
                                                                            v1::Encoding encoding,
                                                                            const StopCheck& stopped) {
  std::vector<Reading> readings(static_cast<size_t>(connection_.num_servers()));
  for (int server = 0; server < connection_.num_servers(); ++server) {
    const auto s = static_cast<size_t>(server);
    readings[s].session = std::make_unique<ServerSession>(connection_.stub(server).streams(), stopped);
    v1::ClientHeader header;
    v1::ReadBegin& read = *header.mutable_read();
    read.set_layout(job.layout_ids[s]);
    read.set_marker(marker);
    read.set_encoding(encoding);
    if (encoding == editions_encoding_) read.set_known_edition(editions_[s]);
    CAIRN_RETURN_IF_ERROR(readings[s].session->Begin(
        std::move(header), ReceiveInto(job.layout.extents_on(server), incoming_.span()),
        readings[s].done->Callback()));
  }
  return readings;
}

absl::StatusOr<std::vector<v1::Done>> ServerValues::AwaitReads(std::vector<Reading>& readings, int64_t asked,
                                                               const StopCheck& stopped) {
  std::vector<v1::Done> ends;
  for (int server = 0; server < connection_.num_servers(); ++server) {
    Reading& reading = readings[static_cast<size_t>(server)];
    auto end =
        reading.done->Wait(*reading.session, std::chrono::duration_cast<Timeout>(options_.timeout), stopped);
    if (!end.ok()) return Annotate(end.status(), absl::StrCat("pull from ", connection_.NameOf(server)));
    if (asked != 0) {
      options_.trace->Record({.lane = TraceLane::kPull,
                              .index = server,
                              .name = "read",
                              .begin = asked,
                              .end = TraceNanos(SteadyNow()),
                              .step = end->version()});
    }
    ends.push_back(*std::move(end));
  }
  return ends;
}

void ServerValues::CopyUnchanged(const LearntJob& job, int server) {
  for (const net::Extent& extent : job.layout.extents_on(server)) {
    std::copy_n(current_.data() + extent.local_offset, extent.count, incoming_.data() + extent.local_offset);
  }
}

void ServerValues::Adopt(std::vector<int64_t> versions) {
  std::swap(current_, incoming_);
  versions_ = std::move(versions);
  editions_.assign(versions_.size(), 0);
}

}  // namespace cairn::client
