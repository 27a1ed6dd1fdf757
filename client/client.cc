#include "client/client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/transport/data_channel_transport.h"
#include "client/transport/grpc_transport.h"
#include "client/transport/request.h"
#include "client/transport/server_session.h"
#include "common/core/status.h"
#include "common/flags/words.h"
#include "common/net/grpc/call_limit.h"

namespace cairn::client {
namespace {

constexpr Timeout kVariablesTimeout = std::chrono::seconds(30);
// How often a call is attempted if other clients change the variables during it.
constexpr int kTries = 5;

// The time limit of a read or a write.
Timeout LimitFor(const net::Extent& extent) {
  return kVariablesTimeout + net::TimeForBytes(extent.count * static_cast<int64_t>(sizeof(float)));
}

template <typename Function>
auto RetryWhileAborted(Function function) {
  auto result = function();
  for (int i = 1; i < kTries && result.code() == absl::StatusCode::kAborted; ++i) result = function();
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const std::vector<std::string>& servers,
                                                        ConnectionOptions options,
                                                        const net::Access& access) {
  CAIRN_RETURN_IF_ERROR(net::CheckTlsFiles(access.tls));
  const auto credentials = net::CredentialsOf(access);
  std::vector<std::unique_ptr<ServerStub>> stubs;
  for (const std::string& address : servers) {
    stubs.push_back(MakeDataChannelStub(MakeGrpcStub(address, credentials), {}));
  }
  return Connect(std::move(stubs), std::move(options));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(std::vector<std::unique_ptr<ServerStub>> servers,
                                                        ConnectionOptions options) {
  if (servers.empty()) return absl::InvalidArgumentError("no parameter server to connect to");
  CAIRN_ASSIGN_OR_RETURN(auto connection, Connection::Open(std::move(servers), std::move(options)));
  return Over(std::move(connection));
}

absl::StatusOr<std::vector<ListedVariable>> Client::List() {
  CAIRN_ASSIGN_OR_RETURN(auto described, connection_->DescribeAll());
  CAIRN_ASSIGN_OR_RETURN(auto slices, SlicesOf(described));
  std::map<std::string, std::vector<std::pair<int64_t, int>>> places;  // name -> (row, server)
  std::map<std::string, Shape> shapes;
  for (size_t server = 0; server < slices.size(); ++server) {
    for (const net::Slice& slice : slices[server]) {
      places[slice.name].emplace_back(slice.row_begin, static_cast<int>(server));
      shapes[slice.name] = slice.shape;
    }
  }
  std::vector<ListedVariable> variables;
  for (auto& [name, rows] : places) {
    std::sort(rows.begin(), rows.end());
    ListedVariable variable = {name, shapes[name], {}};
    for (const auto& [row, server] : rows) variable.servers.push_back(server);
    variables.push_back(std::move(variable));
  }
  return variables;
}

absl::StatusOr<std::optional<v1::ConnectResponse>> Client::Training() {
  CAIRN_ASSIGN_OR_RETURN(auto described, connection_->DescribeAll());
  for (v1::ConnectResponse& server : described) {
    const bool trains = server.has_job() && server.job().mode() != v1::MODE_VARIABLES &&
                        server.state() != v1::STATE_FINISHED && server.state() != v1::STATE_FAILED;
    if (trains) return std::move(server);
  }
  return std::nullopt;
}

absl::StatusOr<Client::Located> Client::Locate(const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(auto described, connection_->DescribeAll());
  CAIRN_ASSIGN_OR_RETURN(auto slices, SlicesOf(described));
  Located located;
  bool found = false;
  std::vector<std::string> known;
  for (const auto& on_server : slices) {
    for (const net::Slice& slice : on_server) {
      known.push_back(slice.name);
      if (slice.name != name) continue;
      found = true;
      located.shape = slice.shape;
    }
  }
  if (!found) {
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    return absl::NotFoundError(absl::StrCat(
        "no variable '", name, "' on the servers; ",
        known.empty() ? "they have none" : absl::StrCat("they have ", absl::StrJoin(known, ", "))));
  }
  const net::VariableInfo variable = {name, located.shape, 0};
  CAIRN_ASSIGN_OR_RETURN(net::Layout layout, net::Layout::Create({&variable, 1}, slices));
  located.extents.assign(layout.extents_of(0).begin(), layout.extents_of(0).end());
  for (const v1::ConnectResponse& response : described) located.layouts.push_back(response.layout());
  return located;
}

absl::Status Client::Create(const std::string& name, const Shape& shape, absl::Span<const float> values) {
  return RetryWhileAborted([&]() -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(auto described, connection_->DescribeAll());
    CAIRN_ASSIGN_OR_RETURN(auto slices, SlicesOf(described));
    std::vector<int64_t> load(slices.size(), 0);
    for (size_t server = 0; server < slices.size(); ++server) {
      for (const net::Slice& slice : slices[server]) {
        load[server] += slice.elements();
        if (slice.name == name) return absl::AlreadyExistsError(absl::StrCat("variable '", name, "' exists"));
      }
    }
    const int server = static_cast<int>(std::min_element(load.begin(), load.end()) - load.begin());
    v1::CreateRequest request;
    request.mutable_job()->set_mode(v1::MODE_VARIABLES);
    const int64_t rows = shape.rank() == 0 ? 1 : shape.dim(0);
    *request.add_slices() = net::Slice{name, shape, 0, rows, 0}.ToProto();
    request.mutable_values()->Add(values.begin(), values.end());
    v1::CreateResponse response;
    return connection_->stub(server).Call(request, &response, kVariablesTimeout);
  });
}

absl::StatusOr<std::vector<float>> Client::Read(const std::string& name) {
  std::vector<float> values;
  const absl::Status status = RetryWhileAborted([&]() -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(Located located, Locate(name));
    values.assign(static_cast<size_t>(located.shape.num_elements()), 0.0f);
    for (const net::Extent& extent : located.extents) {
      if (extent.count == 0) continue;
      v1::ClientHeader header;
      header.mutable_read()->set_layout(located.layouts[static_cast<size_t>(extent.server)]);
      header.mutable_read()->set_offset(extent.server_offset);
      header.mutable_read()->set_count(extent.count);
      PendingDone done;
      ServerSession session(connection_->stub(extent.server).streams());
      CAIRN_RETURN_IF_ERROR(session.Begin(
          std::move(header), ReceiveInto({&extent, 1}, absl::MakeSpan(values)), done.Callback()));
      CAIRN_RETURN_IF_ERROR(
          Annotate(done.Wait(session, LimitFor(extent)).status(), connection_->NameOf(extent.server)));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return values;
}

absl::StatusOr<std::unique_ptr<VariableReader>> Client::OpenReader(const std::string& name) {
  auto reader = std::unique_ptr<VariableReader>(new VariableReader(*this, name));
  CAIRN_RETURN_IF_ERROR(reader->Refresh().status());
  return reader;
}

absl::StatusOr<bool> VariableReader::Refresh() {
  bool changed = false;
  const auto refresh = [&]() -> absl::Status {
    if (located_.layouts.empty()) CAIRN_RETURN_IF_ERROR(Locate());
    const absl::Status status = RefreshOnce(&changed);
    if (absl::IsAborted(status))
      CAIRN_RETURN_IF_ERROR(Locate());  // the variables on the servers have changed
    return status;
  };
  CAIRN_RETURN_IF_ERROR(RetryWhileAborted(refresh));
  return changed;
}

absl::Status VariableReader::Locate() {
  CAIRN_ASSIGN_OR_RETURN(located_, client_.Locate(name_));
  values_.assign(static_cast<size_t>(located_.shape.num_elements()), 0.0f);
  editions_.assign(located_.extents.size(), 0);
  return absl::OkStatus();
}

absl::Status VariableReader::RefreshOnce(bool* changed) {
  sessions_.resize(located_.layouts.size());
  std::vector<PendingDone> done(located_.extents.size());
  // Ends requests in flight before `done` is destroyed. The values that they have received are read again by
  // the next refresh.
  const auto failed = [&](const net::Extent& extent, const absl::Status& status) {
    sessions_.clear();
    std::fill(editions_.begin(), editions_.end(), 0);
    return Annotate(status, client_.connection_->NameOf(extent.server));
  };
  for (size_t i = 0; i < located_.extents.size(); ++i) {
    const net::Extent& extent = located_.extents[i];
    if (extent.count == 0) continue;
    const auto server = static_cast<size_t>(extent.server);
    if (sessions_[server] == nullptr || !sessions_[server]->status().ok()) {
      sessions_[server] = std::make_unique<ServerSession>(client_.connection_->stub(extent.server).streams());
      // A different process may answer on the new stream. Therefore all of this server's values are read
      // again.
      for (size_t j = 0; j < located_.extents.size(); ++j) {
        if (located_.extents[j].server == extent.server) editions_[j] = 0;
      }
    }
    v1::ClientHeader header;
    header.mutable_read()->set_layout(located_.layouts[server]);
    header.mutable_read()->set_offset(extent.server_offset);
    header.mutable_read()->set_count(extent.count);
    header.mutable_read()->set_known_edition(editions_[i]);
    const auto begun = sessions_[server]->Begin(
        std::move(header), ReceiveInto({&extent, 1}, absl::MakeSpan(values_)), done[i].Callback());
    if (!begun.ok()) return failed(extent, begun.status());
  }
  for (size_t i = 0; i < located_.extents.size(); ++i) {
    const net::Extent& extent = located_.extents[i];
    if (extent.count == 0) continue;
    const uint64_t known = std::exchange(editions_[i], 0);
    const auto answer = done[i].Wait(*sessions_[static_cast<size_t>(extent.server)], LimitFor(extent));
    if (!answer.ok()) return failed(extent, answer.status());
    editions_[i] = answer->edition();
    *changed |= answer->edition() != known;
  }
  return absl::OkStatus();
}

absl::Status Client::Write(const std::string& name, absl::Span<const float> values) {
  return RetryWhileAborted([&]() -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(Located located, Locate(name));
    if (static_cast<int64_t>(values.size()) != located.shape.num_elements()) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable '", name, "' of shape ", located.shape.ToString(), " takes ",
                       Counted(located.shape.num_elements(), "value"), ", not ", values.size()));
    }
    for (const net::Extent& extent : located.extents) {
      v1::ClientHeader header;
      header.mutable_write()->set_layout(located.layouts[static_cast<size_t>(extent.server)]);
      PendingDone done;
      ServerSession session(connection_->stub(extent.server).streams());
      CAIRN_ASSIGN_OR_RETURN(const uint64_t id, session.Begin(std::move(header), nullptr, done.Callback()));
      SendExtents(session, id, {&extent, 1}, values);
      session.SendEnd(id);
      CAIRN_RETURN_IF_ERROR(
          Annotate(done.Wait(session, LimitFor(extent)).status(), connection_->NameOf(extent.server)));
    }
    return absl::OkStatus();
  });
}

}  // namespace cairn::client
