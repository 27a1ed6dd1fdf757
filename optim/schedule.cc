#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "optim/rules/hyperparameters.h"

namespace cairn::optim {
namespace {

double TakeInitialRate(HyperparameterReader& read) {
  return read.Take("initial_learning_rate", std::nullopt, Domain::kNonNegative);
}

// Half a cosine wave, from 1 to `alpha` as `fraction` goes from 0 to 1.
double Cosine(double fraction, double alpha) {
  return (1 - alpha) * 0.5 * (1 + std::cos(std::numbers::pi * fraction)) + alpha;
}

// The progress of the decay, in units of decay_steps; rounded down for a staircase.
double Turns(int64_t iterations, double decay_steps, bool staircase) {
  const double turns = static_cast<double>(iterations) / decay_steps;
  return staircase ? std::floor(turns) : turns;
}

Schedule MakeExponentialDecay(const ScheduleConfig&, HyperparameterReader& read) {
  const double initial = TakeInitialRate(read);
  const double decay_steps = read.Take("decay_steps", std::nullopt, Domain::kPositive);
  const double decay_rate = read.Take("decay_rate", std::nullopt, Domain::kNonNegative);
  const bool staircase = read.Take("staircase", 0, Domain::kFlag) != 0;
  return [=](int64_t iterations) {
    return initial * std::pow(decay_rate, Turns(iterations, decay_steps, staircase));
  };
}

Schedule MakeInverseTimeDecay(const ScheduleConfig&, HyperparameterReader& read) {
  const double initial = TakeInitialRate(read);
  const double decay_steps = read.Take("decay_steps", std::nullopt, Domain::kPositive);
  const double decay_rate = read.Take("decay_rate", std::nullopt, Domain::kNonNegative);
  const bool staircase = read.Take("staircase", 0, Domain::kFlag) != 0;
  return [=](int64_t iterations) {
    return initial / (1 + decay_rate * Turns(iterations, decay_steps, staircase));
  };
}

Schedule MakePolynomialDecay(const ScheduleConfig&, HyperparameterReader& read) {
  const double initial = TakeInitialRate(read);
  const double decay_steps = read.Take("decay_steps", std::nullopt, Domain::kPositive);
  const double end = read.Take("end_learning_rate", 0.0001, Domain::kNonNegative);
  const double power = read.Take("power", 1, Domain::kNonNegative);
  const bool cycle = read.Take("cycle", 0, Domain::kFlag) != 0;
  return [=](int64_t iterations) {
    const double turns = static_cast<double>(iterations) / decay_steps;
    const double fraction = cycle ? turns / std::max(1.0, std::ceil(turns)) : std::min(turns, 1.0);
    return (initial - end) * std::pow(1 - fraction, power) + end;
  };
}

// The rate rises linearly to warmup_target over warmup_steps, if there is a target, and then follows half a
// cosine wave.
Schedule MakeCosineDecay(const ScheduleConfig& config, HyperparameterReader& read) {
  const double initial = TakeInitialRate(read);
  const double decay_steps = read.Take("decay_steps", std::nullopt, Domain::kPositive);
  const double alpha = read.Take("alpha", 0, Domain::kNonNegative);
  const double target = read.Take("warmup_target", initial, Domain::kNonNegative);
  const double given_warmup = read.Take("warmup_steps", 0, Domain::kNonNegative);
  const double warmup_steps = config.numbers.count("warmup_target") > 0 ? given_warmup : 0;
  return [=](int64_t iterations) {
    const double step = static_cast<double>(iterations);
    if (step < warmup_steps) return (target - initial) * (step / warmup_steps) + initial;
    return target * Cosine(std::min((step - warmup_steps) / decay_steps, 1.0), alpha);
  };
}

// Loshchilov and Hutter, ICLR 2017. Keras computes the number of the turn with a logarithm, which may miss a
// restart by one update. This implementation counts the turns instead, so a turn has at least one update,
// while Keras allows shorter turns. With t_mul below 1 no turn exists beyond some step, and Keras' rate is
// NaN there.
Schedule MakeCosineDecayRestarts(const ScheduleConfig&, HyperparameterReader& read) {
  const double initial = TakeInitialRate(read);
  const double first_decay_steps = read.Take("first_decay_steps", std::nullopt, Domain::kAtLeastOne);
  const double t_mul = read.Take("t_mul", 2, Domain::kAtLeastOne);
  const double m_mul = read.Take("m_mul", 1, Domain::kNonNegative);
  const double alpha = read.Take("alpha", 0, Domain::kNonNegative);
  return [=](int64_t iterations) {
    double step = static_cast<double>(iterations), length = first_decay_steps, turn = 0;
    if (t_mul == 1) {
      turn = std::floor(step / length);
      step -= turn * length;
    }
    while (step >= length) {
      step -= length;
      length *= t_mul;
      ++turn;
    }
    const double peak = std::pow(m_mul, turn);
    return initial * ((1 - alpha) * peak * Cosine(step / length, 0) + alpha);
  };
}

Schedule MakePiecewiseConstantDecay(const ScheduleConfig& config, HyperparameterReader& read) {
  const std::vector<double>& boundaries = config.boundaries;
  const std::vector<double>& values = config.values;
  if (values.empty() || boundaries.size() != values.size() - 1) {
    read.Report(absl::StrCat(boundaries.size(), " boundaries and ", values.size(),
                             " values: there must be one more value than boundaries"));
  }
  // The negation also refuses NaN.
  const auto not_rising = [](double a, double b) { return !(a < b); };
  if (std::adjacent_find(boundaries.begin(), boundaries.end(), not_rising) != boundaries.end()) {
    read.Report(absl::StrCat("boundaries ", absl::StrJoin(boundaries, ", "), " must increase"));
  }
  if (!std::all_of(values.begin(), values.end(), [](double v) { return v >= 0 && std::isfinite(v); })) {
    read.Report(absl::StrCat("values ", absl::StrJoin(values, ", "), " must all be finite and at least 0"));
  }
  return [boundaries, values](int64_t iterations) {
    const auto piece =
        std::lower_bound(boundaries.begin(), boundaries.end(), static_cast<double>(iterations));
    return values[static_cast<size_t>(piece - boundaries.begin())];
  };
}

struct ScheduleRow {
  absl::string_view name;  // Keras' class name
  Schedule (*make)(const ScheduleConfig& config, HyperparameterReader& read);
  bool takes_lists = false;
};
constexpr ScheduleRow kSchedules[] = {
    {"ExponentialDecay", MakeExponentialDecay},
    {"InverseTimeDecay", MakeInverseTimeDecay},
    {"PolynomialDecay", MakePolynomialDecay},
    {"CosineDecay", MakeCosineDecay},
    {"CosineDecayRestarts", MakeCosineDecayRestarts},
    {"PiecewiseConstantDecay", MakePiecewiseConstantDecay, /*takes_lists=*/true},
};

}  // namespace

absl::StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config) {
  for (const ScheduleRow& row : kSchedules) {
    if (!absl::EqualsIgnoreCase(config.name, row.name)) continue;
    HyperparameterReader read(absl::StrCat("schedule ", row.name), config.numbers);
    Schedule schedule = row.make(config, read);
    if (!row.takes_lists && !(config.boundaries.empty() && config.values.empty())) {
      read.Report("only PiecewiseConstantDecay takes boundaries and values");
    }
    CAIRN_RETURN_IF_ERROR(read.Finish());
    return schedule;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown schedule '", config.name,
      "'; supported: ", absl::StrJoin(kSchedules, ", ", [](std::string* out, const ScheduleRow& row) {
        absl::StrAppend(out, row.name);
      })));
}

}  // namespace cairn::optim
