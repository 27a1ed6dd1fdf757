// The rules for rows. Each function reads exactly its own hyperparameters from `read`, which records the errors.
#pragma once

#include <memory>

#include "embedding/optimizers/rules/row_rule.h"
#include "optim/rules/hyperparameters.h"

namespace cairn::embedding {

// Keras' SGD, with momentum or Nesterov's momentum. With momentum: slot "momentum" [dim]. The momentum of a row decays
// when the row is updated, and not in between, as in TensorFlow's sparse momentum.
std::unique_ptr<const RowRule> MakeSgdRows(optim::HyperparameterReader& read, int dim, optim::Isa isa);

// Keras' Adagrad: slot "accumulator" [dim]; values -= lr g / sqrt(accumulator + epsilon), after adding g^2. TensorFlow
// 2 and torch add epsilon outside of the root: with an initial accumulator far above epsilon^2 they are equal to
// rounding.
std::unique_ptr<const RowRule> MakeAdagradRows(optim::HyperparameterReader& read, int dim, optim::Isa isa);

// FBGEMM's EXACT_ROWWISE_ADAGRAD: one slot "accumulator" for the row; it grows by the mean of the squares of the row's
// gradient; values -= lr g / (sqrt(accumulator) + epsilon).
std::unique_ptr<const RowRule> MakeRowWiseAdagrad(optim::HyperparameterReader& read, int dim, optim::Isa isa);

// Adam. Slots "m" and "v", [dim] each. Epsilon is outside of the root and of the correction, as in Keras.
//
// Lazy, as torch's SparseAdam, without `catch_up`: values and moments of a row change only when the row is updated; the
// correction of the bias is that of the job's step.
//
// With `catch_up`: one more slot, the last step of the row. A row has the values and moments of dense Adam with a
// gradient of 0 in the steps in between, to rounding: the skipped steps are made good by Update(), before the
// row's new gradient, and by Read(). They take the learning rate of the update that makes them good. The sum of the
// skipped steps has a closed form, so their number does not matter; see SkippedAdamSteps for its accuracy, and for the
// betas that it needs. The slot has the bits of a uint32.
std::unique_ptr<const RowRule> MakeAdamRows(optim::HyperparameterReader& read, int dim, optim::Isa isa);

// Keras' Ftrl: slots "accumulator" and "linear", [dim] each. With l1, values are exactly 0 as long as |linear| <= l1.
// Only the learning_rate_power -0.5. The first update of a row replaces its initial values.
std::unique_ptr<const RowRule> MakeFtrlRows(optim::HyperparameterReader& read, int dim, optim::Isa isa);

// Keras' RMSprop: slots "velocity", then "momentum" and "average_gradient" if they are used, [dim] each. As with
// momentum, nothing decays while a row is not updated.
std::unique_ptr<const RowRule> MakeRmspropRows(optim::HyperparameterReader& read, int dim, optim::Isa isa);

}  // namespace cairn::embedding
