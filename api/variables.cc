#include "cairn/variables.h"

#include <utility>

#include "api/conversions.h"
#include "api/servers.h"
#include "client/client.h"
#include "common/core/status.h"

namespace cairn {

class [[gnu::visibility("hidden")]] Variables::Impl {
 public:
  explicit Impl(std::unique_ptr<client::Client> connected) : client(std::move(connected)) {}
  const std::unique_ptr<client::Client> client;
};

Status Variables::Open(const ConnectOptions& options, std::unique_ptr<Variables>* variables) {
  auto connection =
      api::ReachServers({.options = options, .task = "client", .stop = [keep = options.keep_waiting] {
                           return keep && !keep();
                         }});
  if (!connection.ok()) return api::FromAbsl(connection.status());
  auto impl = std::make_unique<Impl>(client::Client::Over(*std::move(connection)));
  variables->reset(new Variables(std::move(impl)));
  return Status();
}

Variables::Variables(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Variables::~Variables() = default;

Status Variables::List(std::vector<ListedVariable>* listed) {
  const auto found = impl_->client->List();
  if (!found.ok()) return api::FromAbsl(found.status());
  listed->clear();
  for (const client::ListedVariable& variable : *found) {
    const auto dims = variable.shape.dims();
    listed->push_back({variable.name, {dims.begin(), dims.end()}, variable.servers});
  }
  return Status();
}

Status Variables::Create(const std::string& name, const std::vector<int64_t>& shape,
                         std::span<const float> values) {
  const auto checked = Shape::FromUntrusted(shape);
  if (!checked.ok()) return api::FromAbsl(Annotate(checked.status(), "variable '" + name + "'"));
  return api::FromAbsl(impl_->client->Create(name, *checked, {values.data(), values.size()}));
}

Status Variables::Read(const std::string& name, std::vector<float>* values) {
  auto read = impl_->client->Read(name);
  if (!read.ok()) return api::FromAbsl(read.status());
  *values = *std::move(read);
  return Status();
}

Status Variables::Write(const std::string& name, std::span<const float> values) {
  return api::FromAbsl(impl_->client->Write(name, {values.data(), values.size()}));
}

}  // namespace cairn
