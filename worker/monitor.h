// What Keras' callbacks decide at an epoch's end from the value of one metric: keras/src/callbacks/ of
// Keras 3.15, monitor_callback.py, early_stopping.py, reduce_lr_on_plateau.py. Keras compares in float32,
// these in double.
//
// Rules without I/O, told one value per epoch; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "worker/nn/metrics/metric.h"

namespace cairn::worker {

// Whether `value` is better than `reference` by more than `min_delta` (at least 0). Nothing is better than
// NaN.
bool Improves(nn::Better better, double min_delta, double value, double reference);

// The best value so far. Alone it is what ModelCheckpoint(save_best_only=True) goes by.
class BestValue {
 public:
  explicit BestValue(nn::Better better, double min_delta = 0) : better_(better), min_delta_(min_delta) {}

  // True when `value` is the best now. The first one always is, also a NaN.
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
    int64_t patience = 0;                           // epochs without improvement that are borne
    std::optional<double> baseline = std::nullopt;  // only an epoch beyond it starts the patience anew
    int64_t start_from_epoch = 0;                   // those before are not looked at
  };
  explicit EarlyStopping(const Options& options)
      : options_(options), best_(options.better, options.min_delta) {}

  struct Verdict {
    bool best = false;  // this epoch's parameters are those to restore
    bool stop = false;  // never after epoch 0
  };
  // `epoch` from 0.
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
    int64_t cooldown = 0;   // epochs after that in which nothing counts
    double min_rate = 0;
  };
  explicit ReduceOnPlateau(const Options& options)
      : options_(options), best_(options.better, options.min_delta) {}

  // The learning rate from here on, if it is not to stay at `rate`.
  std::optional<float> OnEpochEnd(double value, float rate);

 private:
  const Options options_;
  BestValue best_;
  int64_t wait_ = 0;
  int64_t cooldown_ = 0;  // epochs left of it
};

}  // namespace cairn::worker
