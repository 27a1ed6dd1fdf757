// The identity of a caller: the tasks that its client certificate names. A Gate (gate.h) determines it once
// per call or stream.
//
// Each of these names means "the holder of this certificate speaks as TASK":
//
//   subject CN           worker/3   worker   chief   ps/0   ps   evaluator   operator
//   subjectAltName, DNS  worker-3.cairn   worker.cairn   chief.cairn   ps-0.cairn   operator.cairn   *.cairn
//   subjectAltName, URI  cairn:worker/3   cairn:worker   cairn:*   ...
//
// A name without an index means every task of that job; `*` means every task and the operator. A certificate
// may have several names. Other host names and other CNs are ignored. A value type; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::net {

// The names in a certificate, unparsed.
struct CertificateNames {
  std::string common_name{};
  std::vector<std::string> dns{}, uris{};
};

class Caller {
 public:
  // A caller that may make every call, for servers that do not distinguish callers.
  static Caller Anyone() { return Caller(); }
  // The caller with these names in its certificate. A "cairn:" URI that names no task grants nothing.
  static Caller Of(const CertificateNames& names);

  // Whether a name of the certificate stands for a task. False for Anyone().
  bool named() const { return !unrestricted_; }

  // Whether the caller may speak as this task, "worker/3".
  bool Is(absl::string_view task) const;
  // Whether the caller may speak as some task of `job` ("ps", "worker"), or as the operator ("operator").
  bool HasRole(absl::string_view job) const;
  // Whether the certificate names the task with its index, or has the name `*`: the name "worker" is not
  // enough for "worker/0".
  bool IsExactly(absl::string_view task) const;

  // "worker/3, operator": for messages.
  std::string ToString() const;

 private:
  struct Role {
    std::string job{};  // "*": every job
    int index = -1;     // -1: every index
  };
  static bool Parse(absl::string_view text, char separator, Role* role);

  bool unrestricted_ = true;
  std::vector<Role> roles_{};
};

}  // namespace cairn::net
