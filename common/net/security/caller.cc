#include "common/net/security/caller.h"

#include <algorithm>
#include <array>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace cairn::net {
namespace {

constexpr std::array<absl::string_view, 5> kJobs = {"chief", "evaluator", "operator", "ps", "worker"};
constexpr absl::string_view kZone = ".cairn";
constexpr absl::string_view kScheme = "cairn:";

// "worker/3" -> "worker"
absl::string_view JobOf(absl::string_view task) {
  return task.substr(0, task.find('/'));
}

int IndexOf(absl::string_view task) {
  int index = -1;
  const size_t slash = task.find('/');
  if (slash == absl::string_view::npos || !absl::SimpleAtoi(task.substr(slash + 1), &index)) return -1;
  return index;
}

}  // namespace

// "worker/3" or "worker", possibly with another separator.
bool Caller::Parse(absl::string_view text, char separator, Role* role) {
  const size_t at = text.rfind(separator);
  const absl::string_view job = text.substr(0, at);
  if (std::find(kJobs.begin(), kJobs.end(), job) == kJobs.end()) return false;
  role->job = std::string(job);
  if (at == absl::string_view::npos) return true;
  const absl::string_view digits = text.substr(at + 1);
  if (digits == "*") return true;
  const bool number = !digits.empty() && digits.find_first_not_of("0123456789") == absl::string_view::npos;
  return number && absl::SimpleAtoi(digits, &role->index);
}

Caller Caller::Of(const CertificateNames& names) {
  Caller caller;
  Role role;
  const auto add = [&](const Role& one) {
    caller.unrestricted_ = false;
    const bool known = std::any_of(caller.roles_.begin(), caller.roles_.end(), [&](const Role& other) {
      return other.job == one.job && other.index == one.index;
    });
    if (!known) caller.roles_.push_back(one);
  };
  if (Parse(names.common_name, '/', &(role = Role()))) add(role);
  for (absl::string_view name : names.dns) {
    if (!absl::ConsumeSuffix(&name, kZone)) continue;
    if (name == "*") {
      add({.job = "*"});
    } else if (Parse(name, '-', &(role = Role()))) {
      add(role);
    }
  }
  for (absl::string_view uri : names.uris) {
    if (!absl::ConsumePrefix(&uri, kScheme)) continue;
    caller.unrestricted_ = false;  // even if the name is misspelt
    if (uri == "*") {
      add({.job = "*"});
    } else if (Parse(uri, '/', &(role = Role()))) {
      add(role);
    }
  }
  return caller;
}

bool Caller::Is(absl::string_view task) const {
  const auto is_it = [&](const Role& role) {
    return role.job == "*" || (role.job == JobOf(task) && (role.index < 0 || role.index == IndexOf(task)));
  };
  return unrestricted_ || std::any_of(roles_.begin(), roles_.end(), is_it);
}

bool Caller::IsExactly(absl::string_view task) const {
  const auto is_it = [&](const Role& role) {
    return role.job == "*" || (role.job == JobOf(task) && role.index >= 0 && role.index == IndexOf(task));
  };
  return unrestricted_ || std::any_of(roles_.begin(), roles_.end(), is_it);
}

bool Caller::HasRole(absl::string_view job) const {
  const auto has_it = [&](const Role& role) { return role.job == "*" || role.job == job; };
  return unrestricted_ || std::any_of(roles_.begin(), roles_.end(), has_it);
}

std::string Caller::ToString() const {
  if (unrestricted_) return "anyone";
  if (roles_.empty()) return "no task";
  return absl::StrJoin(roles_, ", ", [](std::string* out, const Role& role) {
    absl::StrAppend(out, role.job == "*" ? "every task" : role.job);
    if (role.index >= 0) absl::StrAppend(out, "/", role.index);
  });
}

}  // namespace cairn::net
