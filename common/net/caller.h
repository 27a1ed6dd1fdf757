// Who makes a call: the tasks that a client certificate names. Decided once per call or stream by a Gate
// (access.h).
//
// A name says "this certificate speaks as TASK":
//
//   subject CN                        worker/3   worker   chief   ps/0   ps   evaluator   operator
//   subjectAltName, a DNS name        worker-3.cairn   worker.cairn   chief.cairn   ps-0.cairn operator.cairn
//   *.cairn subjectAltName, a URI             cairn:worker/3   cairn:worker   cairn:*   ...
//
// Without an index it is every task of that job. `*` is every task, and the operator. A certificate may have
// several names; other host names and other CNs say nothing. A value; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cairn::net {

// As a certificate has them.
struct CertificateNames {
  std::string common_name{};
  std::vector<std::string> dns{}, uris{};
};

class Caller {
 public:
  // May do everything: where nothing tells callers apart.
  static Caller Anyone() { return Caller(); }
  // By the names of a certificate. One with a "cairn:" URI that is no task may do nothing by that name.
  static Caller Of(const CertificateNames& names);

  // Of(): some name says a task. Anyone(): false.
  bool named() const { return !unrestricted_; }

  // May speak as this task, "worker/3".
  bool Is(absl::string_view task) const;
  // As some task of the job, or as the operator: "ps", "worker", "operator".
  bool HasRole(absl::string_view job) const;
  // As this very task, by a name with its index, or by `*`: "worker" is not "worker/0".
  bool IsExactly(absl::string_view task) const;

  // "worker/3, operator": for messages.
  std::string ToString() const;

 private:
  struct Role {
    std::string job{};  // "*": every one
    int index = -1;     // -1: of every index
  };
  static bool Parse(absl::string_view text, char separator, Role* role);

  bool unrestricted_ = true;
  std::vector<Role> roles_{};
};

}  // namespace cairn::net
