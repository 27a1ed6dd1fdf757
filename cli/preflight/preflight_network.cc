#include "cli/preflight/preflight_network.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cairn/v1/inspector.grpc.pb.h"
#include "common/monitor/inspection.h"
#include "common/monitor/status_page.h"
#include "common/net/grpc/grpc_util.h"
#include "common/net/grpc/unreachable.h"

namespace cairn::cli {
namespace {

// A larger skew breaks certificates and the comparison of logs and alerts across machines.
constexpr double kMaxSkewSeconds = 2;

// Returns the numeric addresses with the port, or the error of getaddrinfo().
absl::StatusOr<std::set<std::string>> Resolve(const net::HostPort& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) return absl::NotFoundError(gai_strerror(error));
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  std::set<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> host{};
    if (getnameinfo(one->ai_addr, one->ai_addrlen, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) ==
        0) {
      addresses.insert(net::HostPort{.host = host.data(), .port = address.port}.ToString());
    }
  }
  return addresses;
}

// Why a server cannot listen on `port` of all addresses; empty if it can.
std::string WhyTaken(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  const absl::Cleanup close_it = [fd] { close(fd); };
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? "" : std::strerror(errno);
}

// The remedy for an unreachable server.
std::string RemedyFor(const std::string& task, const std::string& reason) {
  if (absl::StartsWith(reason, "TLS") || absl::StrContains(reason, "TLS")) {
    return "give all tasks certificates of one CA: --tls_cert, --tls_key, --tls_ca";
  }
  if (absl::StrContains(reason, "is not cairn-ps")) {
    return "correct the port in the cluster: another program, or --metrics_port, has this one";
  }
  const std::string index = task.substr(task.find('/') + 1);
  if (reason == "connection refused") {
    return absl::StrCat("start it there: cairn-ps --job_name ps --task_index ", index,
                        "; or its port in the cluster is wrong");
  }
  return "check that the machine is up and that no firewall blocks this port";
}

class NetworkPreflight {
 public:
  NetworkPreflight(const NetworkExamination& given, std::vector<Finding>& findings, ReachedServers& servers)
      : given_(given), findings_(findings), servers_(servers) {}

  void Examine() {
    const net::ClusterSpec& spec = given_.cluster.spec;
    const auto credentials = net::CredentialsOf(given_.access);
    for (const auto& [index, address] : spec.tasks("ps")) {
      const std::string task = absl::StrCat("ps/", index);
      if (CheckName(task, address)) LookAtServer(task, address, credentials);
    }
    for (const net::TaskId& trainer : spec.trainers()) {
      const net::HostPort& address = spec.tasks(trainer.job).at(trainer.index);
      if (CheckName(trainer.ToString(), address)) {
        Ok(trainer.ToString(),
           absl::StrCat(address.ToString(), " resolves; connections to workers are not checked"));
      }
    }
    LookAtOurPort();
  }

 private:
  void Ok(const std::string& subject, const std::string& what) {
    findings_.push_back({.subject = subject, .what = what});
  }
  void Fault(const std::string& subject, const std::string& what, const std::string& remedy) {
    findings_.push_back({.subject = subject, .fault = true, .what = what, .remedy = remedy});
  }

  // Checks that the name resolves to an address that no other task has.
  bool CheckName(const std::string& task, const net::HostPort& address) {
    const auto resolved = Resolve(address);
    if (!resolved.ok()) {
      Fault(
          task,
          absl::StrCat("'", address.host, "' cannot be resolved: ", std::string(resolved.status().message())),
          "correct the name, or make it known here by DNS or /etc/hosts");
      return false;
    }
    for (const std::string& one : *resolved) {
      const auto [known, added] = task_at_.emplace(one, task);
      if (added || known->second == task) continue;
      Fault(task, absl::StrCat(address.ToString(), " is ", one, ", and so is ", known->second),
            "give each task its own address");
      return false;
    }
    return true;
  }

  void LookAtServer(const std::string& task, const net::HostPort& address,
                    const net::Credentials& credentials) {
    const auto stub = v1::Inspector::NewStub(net::MakeChannel(address.ToString(), credentials));
    v1::ServerStatus server;
    absl::Status status = Query(*stub, server);  // opens the connection
    const double asked = given_.unix_seconds();
    if (status.ok()) status = Query(*stub, server);
    const double answered = given_.unix_seconds();
    if (!status.ok()) {
      NotReached(task, address, status);
      return;
    }
    answers_.insert(task);
    if (server.protocol() != net::kProtocolVersion) {
      Fault(task,
            absl::StrCat("speaks protocol ", server.protocol(), " (version ", server.program_version(),
                         "), this program speaks ", net::kProtocolVersion),
            "run the same version of Cairn everywhere");
    } else if (server.task() != task) {
      Fault(task, absl::StrCat(address.ToString(), " identifies itself as ", server.task()),
            "its cluster config lists the addresses in another order, or its --task_index is wrong");
    } else if (server.cluster_hash() != 0 && server.cluster_hash() != given_.cluster.spec.Hash()) {
      Fault(
          task,
          absl::StrCat("belongs to another cluster: its servers' addresses hash to ",
                       absl::Hex(server.cluster_hash()), ", ours to ", absl::Hex(given_.cluster.spec.Hash())),
          "give every task the same cluster config");
    } else if (server.state() == v1::STATE_FAILED) {
      Fault(task, absl::StrCat("its job failed: ", server.failure()), "it exits on its own; restart it");
    } else {
      const double skew = server.unix_seconds() - (asked + answered) / 2;
      Ok(task,
         absl::StrCat(address.ToString(), ", ", monitor::NameOf(server.state()), ", ",
                      monitor::InTime(answered - asked), " away, ",
                      monitor::InBytes(static_cast<double>(server.memory_limit_bytes())), " for a job"));
      CheckClock(task, skew, answered - asked);
      if (server.memory_limit_bytes() > 0) servers_.memory_limits[task] = server.memory_limit_bytes();
      if (server.state() == v1::STATE_READY && !server.job().model_sha256().empty()) {
        servers_.models[task] = server.job().model_sha256();
      }
    }
  }

  absl::Status Query(v1::Inspector::Stub& stub, v1::ServerStatus& server) const {
    grpc::ClientContext context;
    net::SetDeadline(context, std::chrono::duration_cast<std::chrono::milliseconds>(given_.timeout));
    return net::FromGrpc(stub.Describe(&context, v1::DescribeRequest(), &server));
  }

  void NotReached(const std::string& task, const net::HostPort& address, const absl::Status& status) {
    if (absl::IsUnimplemented(status)) {
      Fault(
          task,
          absl::StrCat("the program at ", address.ToString(), " is not cairn-ps, or is a much older version"),
          "its port in the cluster is wrong, or it runs another version");
      return;
    }
    if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) {
      Fault(task, absl::StrCat(address.ToString(), ": ", status.message()),
            "pass the job token (--job_token_file, CAIRN_JOB_TOKEN) or an authorized certificate");
      return;
    }
    const std::string reason = net::WhyUnreachable(status);
    Fault(task, absl::StrCat(address.ToString(), ": ", reason), RemedyFor(task, reason));
  }

  void CheckClock(const std::string& task, double skew, double round_trip) {
    if (std::abs(skew) <= kMaxSkewSeconds + round_trip) return;
    Fault(task,
          absl::StrCat("its clock is ", monitor::InTime(std::abs(skew)), skew > 0 ? " ahead of" : " behind",
                       " ours"),
          "run a time service, such as chrony, on both machines");
  }

  // If the given task is a server that does not answer, its port must be free on this machine.
  void LookAtOurPort() {
    const net::TaskId& self = given_.cluster.self;
    if (self.job != "ps" || answers_.count(self.ToString()) != 0) return;
    const int port = given_.cluster.spec.tasks("ps").at(self.index).port;
    const std::string reason = WhyTaken(port);
    if (reason.empty()) {
      Ok("port", absl::StrCat(port, " is free here"));
    } else {
      Fault("port", absl::StrCat(port, ", the port of ", self.ToString(), ", is taken here: ", reason),
            "stop the process that uses it (`ss -ltnp` lists it), or give the task another port in the "
            "cluster");
    }
  }

  const NetworkExamination& given_;
  std::vector<Finding>& findings_;
  ReachedServers& servers_;
  std::map<std::string, std::string> task_at_;  // [numeric address]
  std::set<std::string> answers_;               // servers that answered
};

}  // namespace

void ExamineNetwork(const NetworkExamination& examination, std::vector<Finding>& findings,
                    ReachedServers& servers) {
  NetworkPreflight(examination, findings, servers).Examine();
}

}  // namespace cairn::cli
