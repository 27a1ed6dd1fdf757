#include "optim/rules/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn::optim {
namespace {

bool Within(Domain domain, double value) {
  // The value is checked as the float that it becomes: a positive epsilon must not become 0, nor a beta below
  // 1 become 1.
  const float x = static_cast<float>(value);
  if (!std::isfinite(x)) return false;
  switch (domain) {
    case Domain::kFinite:
      return true;
    case Domain::kNonNegative:
      return x >= 0;
    case Domain::kPositive:
      return x > 0;
    case Domain::kNonPositive:
      return x <= 0;
    case Domain::kAtLeastOne:
      return value >= 1;  // values just below 1 must not be rounded up to 1
    case Domain::kUnit:
      return x >= 0 && x <= 1;
    case Domain::kPositiveUnit:
      return x > 0 && x <= 1;
    case Domain::kBelowOne:
      return x >= 0 && x < 1;
    case Domain::kCount:
      return value >= 0 && value < 0x1p53 && value == std::floor(value);
    case Domain::kFlag:
      return value == 0 || value == 1;
  }
  return false;
}

absl::string_view Describe(Domain domain) {
  switch (domain) {
    case Domain::kFinite:
      return "a finite number";
    case Domain::kNonNegative:
      return "a finite number of at least 0";
    case Domain::kPositive:
      return "a finite number above 0";
    case Domain::kNonPositive:
      return "a finite number of at most 0";
    case Domain::kAtLeastOne:
      return "a finite number of at least 1";
    case Domain::kUnit:
      return "in [0, 1]";
    case Domain::kPositiveUnit:
      return "in (0, 1]";
    case Domain::kBelowOne:
      return "in [0, 1)";
    case Domain::kCount:
      return "a whole number of at least 0";
    case Domain::kFlag:
      return "0 or 1";
  }
  return "";
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

HyperparameterReader::HyperparameterReader(std::string whose, const std::map<std::string, double>& numbers)
    : whose_(std::move(whose)), numbers_(numbers) {}

const double* HyperparameterReader::Find(absl::string_view name) const {
  const auto found = numbers_.find(std::string(name));
  return found == numbers_.end() ? nullptr : &found->second;
}

double HyperparameterReader::Take(absl::string_view name, std::optional<double> absent, Domain domain) {
  taken_.emplace_back(name);
  const double* found = Find(name);
  if (found != nullptr && Within(domain, *found)) return *found;
  if (found != nullptr) {
    Report(absl::StrCat("hyperparameter '", name, "' is ", *found, ", must be ", Describe(domain)));
  } else if (!absent.has_value()) {
    Report(absl::StrCat("hyperparameter '", name, "' is missing"));
  }
  return absent.value_or(1);
}

void HyperparameterReader::RefuseUnless(absl::string_view name, double off) {
  passed_over_.emplace_back(name);
  const double* found = Find(name);
  if (found == nullptr || *found == off) return;
  Report(absl::StrCat("'", name, "' is ", *found, ", but Cairn lacks this feature; leave it out"));
}

void HyperparameterReader::Ignore(absl::string_view name) {
  passed_over_.emplace_back(name);
}

void HyperparameterReader::Report(absl::string_view fault) {
  if (first_fault_.ok()) first_fault_ = absl::InvalidArgumentError(absl::StrCat(whose_, ": ", fault));
}

absl::Status HyperparameterReader::Finish() const {
  if (!first_fault_.ok()) return first_fault_;
  for (const auto& [name, value] : numbers_) {
    if (Contains(taken_, name) || Contains(passed_over_, name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(whose_, ": unknown hyperparameter '", name, "'; known: ", absl::StrJoin(taken_, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace cairn::optim
