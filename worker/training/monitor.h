// The decisions of Keras' callbacks at the end of an epoch, given the value of one metric. They follow
// monitor_callback.py, early_stopping.py and reduce_lr_on_plateau.py in keras/src/callbacks/ of Keras 3.15,
// except that Keras compares in float32, this code in double.
//
// Pure rules without I/O, called once per epoch; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/metrics/metric.h"

namespace cairn::worker {

// Whether `value` is better than `reference` by more than `min_delta` (at least 0). False if either is NaN.
bool Improves(nn::Better better, double min_delta, double value, double reference);

// Tracks the best value so far, which is all that ModelCheckpoint(save_best_only=True) does.
class BestValue {
 public:
  explicit BestValue(nn::Better better, double min_delta = 0) : better_(better), min_delta_(min_delta) {}

  // Returns true if `value` is the new best. The first value is always the new best, even if it is NaN.
  bool Improve(double value);
  std::optional<double> best() const { return best_; }

 private:
  const nn::Better better_;
  const double min_delta_;
  std::optional<double> best_;
};

class EarlyStopping {
 public:
  struct Options {
    nn::Better better = nn::Better::kLower;
    double min_delta = 0;
    int64_t patience = 0;  // epochs without improvement that are tolerated
    // If set, only an epoch that is better than this value resets the patience.
    std::optional<double> baseline = std::nullopt;
    int64_t start_from_epoch = 0;  // earlier epochs are ignored
  };
  explicit EarlyStopping(const Options& options)
      : options_(options), best_(options.better, options.min_delta) {}

  struct Verdict {
    bool best = false;  // the parameters of this epoch are the best so far
    bool stop = false;  // never after epoch 0
  };
  // `epoch` counts from 0.
  Verdict OnEpochEnd(int64_t epoch, double value);

 private:
  const Options options_;
  BestValue best_;
  int64_t wait_ = 0;  // epochs since the last improvement
};

class ReduceOnPlateau {
 public:
  struct Options {
    nn::Better better = nn::Better::kLower;
    double factor = 0.1;  // in [0, 1)
    double min_delta = 1e-4;
    int64_t patience = 10;  // epochs without improvement until the rate is reduced
    int64_t cooldown = 0;   // epochs after a reduction that do not count towards `patience`
    double min_rate = 0;
  };
  explicit ReduceOnPlateau(const Options& options)
      : options_(options), best_(options.better, options.min_delta) {}

  // The new learning rate; nullopt: it stays at `rate`.
  std::optional<float> OnEpochEnd(double value, float rate);

 private:
  const Options options_;
  BestValue best_;
  int64_t wait_ = 0;
  int64_t cooldown_ = 0;  // remaining epochs
};

}  // namespace cairn::worker
