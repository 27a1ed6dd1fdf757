#include "worker/training/monitor.h"

#include <algorithm>

namespace cairn::worker {

bool Improves(nn::Better better, double min_delta, double value, double reference) {
  return better == nn::Better::kLower ? value + min_delta < reference : value - min_delta > reference;
}

bool BestValue::Improve(double value) {
  if (best_.has_value() && !Improves(better_, min_delta_, value, *best_)) return false;
  best_ = value;
  return true;
}

EarlyStopping::Verdict EarlyStopping::OnEpochEnd(int64_t epoch, double value) {
  if (epoch < options_.start_from_epoch) return {};
  ++wait_;
  if (best_.Improve(value)) {
    if (!options_.baseline.has_value() ||
        Improves(options_.better, options_.min_delta, value, *options_.baseline)) {
      wait_ = 0;
    }
    return {.best = true};
  }
  return {.stop = wait_ >= options_.patience && epoch > 0};
}

std::optional<float> ReduceOnPlateau::OnEpochEnd(double value, float rate) {
  if (cooldown_ > 0) {
    --cooldown_;
    wait_ = 0;
  }
  if (best_.Improve(value)) {
    wait_ = 0;
    return std::nullopt;
  }
  if (cooldown_ > 0 || ++wait_ < options_.patience) return std::nullopt;
  if (rate <= static_cast<float>(options_.min_rate)) return std::nullopt;
  cooldown_ = options_.cooldown;
  wait_ = 0;
  return static_cast<float>(std::max(double{rate} * options_.factor, options_.min_rate));
}

}  // namespace cairn::worker
