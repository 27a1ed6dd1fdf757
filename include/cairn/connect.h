// How a program reaches the parameter servers of a cluster.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace cairn {

struct ConnectOptions {
  // "host:port" of every server, in the order of their task index. Every program of a job must list the same
  // servers in the same order. Must not be empty.
  std::vector<std::string> servers{};

  // How long to try to reach every server, and to wait for other tasks before training starts.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);

  // Paths of PEM files, for servers that require TLS: the certificate of this program, its key, and the CA of
  // all tasks. All empty: plain text.
  std::string tls_cert{}, tls_key{}, tls_ca{};
  // Path of the file with the job token, for servers that require one. Empty: the token is taken from the
  // environment variable CAIRN_JOB_TOKEN, if it is set.
  std::string job_token_file{};

  // Called with what the library reports, mostly about every 10 s during a wait: "waiting for ps/1 at
  // host:2222: connection refused (20 of at most 300 s)". Called by any thread of the library, also during
  // calls. Null: nothing is reported; the library itself prints nothing.
  std::function<void(const std::string&)> log{};

  // Called by the thread that waits in a call, at least every two seconds and ten times a second while it
  // waits for the answers to a step. false ends the wait with kCancelled. A caller may handle signals here.
  // Null: waits end only by their time limits or by Session::Cancel().
  std::function<bool()> keep_waiting{};
};

}  // namespace cairn
