#include "optim/rules/torch/torch_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Hyperparameters = std::map<std::string, double>;

std::string ErrorOf(const OptimizerConfig& config) {
  const auto optimizer = MakeOptimizer(config);
  return optimizer.ok() ? "accepted" : std::string(optimizer.status().message());
}

std::vector<float> After(const OptimizerConfig& config, const std::vector<float>& gradients) {
  TrainedVariable variable(config, {1});
  std::vector<float> values;
  for (float gradient : gradients) {
    variable.Step({gradient});
    values.push_back(variable.values()[0]);
  }
  return values;
}

TEST(TorchSgd, TheFirstGradientIsNotDampened) {
  // Buffers: 1, then 0.5 * 1 + (1 - 0.75) * 1 = 0.75.
  const OptimizerConfig config = {"torch.SGD", {{"lr", 0.25}, {"momentum", 0.5}, {"dampening", 0.75}}};
  EXPECT_THAT(After(config, {1, 1}), ElementsAre(0.75f, 0.5625f));
}

// Keras' momentum holds steps at the rates of their time.
TEST(TorchSgd, TheRateMultipliesTheWholeBuffer) {
  TrainedVariable variable({"torch.SGD", {{"lr", 0.5}, {"momentum", 0.5}}}, {1});
  variable.Step({1});
  EXPECT_EQ(variable.values()[0], 0.5f);
  variable.StepAt(0.25f, {0});
  EXPECT_EQ(variable.values()[0], 0.375f) << "0.5 - 0.25 * 0.5";
  EXPECT_EQ(variable.slots()[0][0], 0.5f);
}

TEST(TorchSgd, NesterovLooksAhead) {
  const OptimizerConfig config = {"torch.SGD", {{"lr", 0.25}, {"momentum", 0.5}, {"nesterov", 1}}};
  EXPECT_THAT(After(config, {1, 0}), ElementsAre(0.625f, 0.5625f)) << "1 - 0.25 * 1.5, - 0.25 * 0.25";
}

TEST(TorchSgd, NesterovNeedsMomentumWithoutDampening) {
  const std::string fault = "optimizer torch.SGD: nesterov requires a momentum above 0 and a dampening of 0";
  EXPECT_EQ(ErrorOf({"torch.SGD", {{"nesterov", 1}}}), fault);
  EXPECT_EQ(ErrorOf({"torch.SGD", {{"nesterov", 1}, {"momentum", 0.9}, {"dampening", 0.1}}}), fault);
}

// maximize negates the gradient; the penalty is not negated.
TEST(TorchOptions, TheDecayIsAPenaltyAfterTheSign) {
  const OptimizerConfig config = {"torch.SGD", {{"lr", 1}, {"weight_decay", 0.25}, {"maximize", 1}}};
  EXPECT_THAT(After(config, {0.5f}), ElementsAre(1.25f)) << "1 - (-0.5 + 0.25)";
}

TEST(TorchOptions, ClippingComesBeforeThePenalty) {
  const OptimizerConfig clipped = {"torch.SGD", {{"lr", 1}, {"weight_decay", 0.25}, {"clipvalue", 0.5}}};
  EXPECT_THAT(After(clipped, {2}), ElementsAre(0.25f));
  const OptimizerConfig by_norm = {"torch.SGD",
                                   {{"lr", 1}, {"weight_decay", 0.25}, {"global_clipnorm", 0.5}}};
  EXPECT_THAT(After(by_norm, {2}), ElementsAre(0.25f));
}

TEST(TorchOptions, AdamWDecaysTheValuesOnce) {
  EXPECT_THAT(After({"torch.AdamW", {{"lr", 0.5}, {"weight_decay", 0.5}}}, {0}), ElementsAre(0.75f));
  EXPECT_THAT(After({"torch.Adam", {{"lr", 0.5}, {"weight_decay", 0.5}, {"decoupled_weight_decay", 1}}}, {0}),
              ElementsAre(0.75f));
}

TEST(TorchAdam, EpsilonIsAddedAfterTheBiasCorrection) {
  // sqrt(0.25 * 4 / 0.25) = 2, plus 2; with Keras' epsilon the step would be smaller.
  const OptimizerConfig config = {"torch.Adam", {{"lr", 1}, {"beta1", 0.5}, {"beta2", 0.75}, {"eps", 2}}};
  EXPECT_THAT(After(config, {2}), ElementsAre(0.5f));
}

TEST(TorchAdam, TenStepsAgreeWithDouble) {
  const double lr = 0.01, beta1 = 0.8, beta2 = 0.95, eps = 0.01, decay = 0.1;
  std::vector<double> m(4, 0), v(4, 0), largest(4, 0);
  ExpectTenStepsAgree({"torch.Adam",
                       {{"lr", lr},
                        {"beta1", beta1},
                        {"beta2", beta2},
                        {"eps", eps},
                        {"weight_decay", decay},
                        {"amsgrad", 1}}},
                      [&](int t, size_t i, double g, double& w) {
                        g += decay * w;
                        m[i] = beta1 * m[i] + (1 - beta1) * g;
                        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                        largest[i] = std::max(largest[i], v[i]);
                        const double root = std::sqrt(largest[i]) / std::sqrt(1 - std::pow(beta2, t));
                        w -= lr / (1 - std::pow(beta1, t)) * m[i] / (root + eps);
                      });
}

TEST(TorchRmsprop, TenStepsAgreeWithDouble) {
  const double lr = 0.01, alpha = 0.9, momentum = 0.5, eps = 0.01;
  std::vector<double> v(4, 0), a(4, 0), m(4, 0);
  ExpectTenStepsAgree({"torch.RMSprop",
                       {{"lr", lr}, {"alpha", alpha}, {"momentum", momentum}, {"eps", eps}, {"centered", 1}}},
                      [&](int, size_t i, double g, double& w) {
                        v[i] = alpha * v[i] + (1 - alpha) * g * g;
                        a[i] = alpha * a[i] + (1 - alpha) * g;
                        m[i] = momentum * m[i] + g / (std::sqrt(v[i] - a[i] * a[i]) + eps);
                        w -= lr * m[i];
                      });
}

// With a constant gradient of 1 the second moment is 1 - alpha^t.
TEST(TorchRmsprop, EpsilonIsOutsideTheRoot) {
  EXPECT_THAT(After({"torch.RMSprop", {{"lr", 1}, {"alpha", 0.75}, {"eps", 0.5}}}, {1}), ElementsAre(0.0f));
}

TEST(TorchAdagrad, TheRateDecaysWithTheCountOfUpdates) {
  const OptimizerConfig config = {"torch.Adagrad",
                                  {{"lr", 1}, {"lr_decay", 1}, {"initial_accumulator_value", 3}, {"eps", 0}}};
  // sum 4, root 2, rate 1; then sum 4 + 12 = 16, root 4, rate 1/2.
  const float root_of_12 = std::sqrt(12.0f);
  EXPECT_THAT(After(config, {1, root_of_12}),
              ElementsAre(0.5f, testing::FloatNear(0.5f - root_of_12 / 8, 1e-6f)));
}

TEST(TorchAdagrad, TenStepsAgreeWithDouble) {
  const double lr = 0.1, lr_decay = 0.1, eps = 0.01;
  std::vector<double> sum(4, 0);
  ExpectTenStepsAgree({"torch.Adagrad", {{"lr", lr}, {"lr_decay", lr_decay}, {"eps", eps}}},
                      [&](int t, size_t i, double g, double& w) {
                        sum[i] += g * g;
                        w -= lr / (1 + (t - 1) * lr_decay) * g / (std::sqrt(sum[i]) + eps);
                      });
}

TEST(TorchAdamax, TenStepsAgreeWithDouble) {
  const double lr = 0.01, beta1 = 0.8, beta2 = 0.9, eps = 0.01;
  std::vector<double> m(4, 0), u(4, 0);
  ExpectTenStepsAgree({"torch.Adamax", {{"lr", lr}, {"beta1", beta1}, {"beta2", beta2}, {"eps", eps}}},
                      [&](int t, size_t i, double g, double& w) {
                        m[i] = beta1 * m[i] + (1 - beta1) * g;
                        u[i] = std::max(beta2 * u[i], std::abs(g) + eps);
                        w -= lr / (1 - std::pow(beta1, t)) * m[i] / u[i];
                      });
}

TEST(TorchNadam, TenStepsAgreeWithDouble) {
  const double lr = 0.01, beta1 = 0.8, beta2 = 0.9, eps = 0.01, decay = 0.5;
  std::vector<double> m(4, 0), v(4, 0), product(4, 1);
  ExpectTenStepsAgree(
      {"torch.NAdam",
       {{"lr", lr}, {"beta1", beta1}, {"beta2", beta2}, {"eps", eps}, {"momentum_decay", decay}}},
      [&](int t, size_t i, double g, double& w) {
        const double mu = beta1 * (1 - 0.5 * std::pow(0.96, t * decay));
        const double next = beta1 * (1 - 0.5 * std::pow(0.96, (t + 1) * decay));
        product[i] *= mu;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        const double root = std::sqrt(v[i] / (1 - std::pow(beta2, t))) + eps;
        w -= lr * (1 - mu) / (1 - product[i]) * g / root + lr * next / (1 - product[i] * next) * m[i] / root;
      });
}

// The rectified rate begins at the sixth step, as in the paper.
TEST(TorchRadam, TenStepsAgreeWithDouble) {
  const double lr = 0.01, beta1 = 0.8, beta2 = 0.999, eps = 0.01;
  std::vector<double> m(4, 0), v(4, 0);
  ExpectTenStepsAgree({"torch.RAdam", {{"lr", lr}, {"beta1", beta1}, {"beta2", beta2}, {"eps", eps}}},
                      [&](int t, size_t i, double g, double& w) {
                        m[i] = beta1 * m[i] + (1 - beta1) * g;
                        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                        const double m_hat = m[i] / (1 - std::pow(beta1, t));
                        const double power = std::pow(beta2, t);
                        const double limit = 2 / (1 - beta2) - 1;
                        const double rho = limit - 2 * t * power / (1 - power);
                        EXPECT_EQ(rho > 5, t > 5);
                        if (rho <= 5) {
                          w -= lr * m_hat;
                          return;
                        }
                        const double r =
                            std::sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho));
                        w -= lr * m_hat * r * std::sqrt(1 - power) / (std::sqrt(v[i]) + eps);
                      });
}

struct Defaults {
  const char* optimizer;
  float learning_rate;
  std::vector<std::string> slots;
};

TEST(TorchRules, HaveTorchsDefaultsAndNames) {
  const Defaults rows[] = {{"torch.SGD", 0.001f, {}},
                           {"torch.Adam", 0.001f, {"exp_avg", "exp_avg_sq"}},
                           {"torch.AdamW", 0.001f, {"exp_avg", "exp_avg_sq"}},
                           {"torch.RMSprop", 0.01f, {"square_avg"}},
                           {"torch.Adagrad", 0.01f, {"sum"}},
                           {"torch.Adadelta", 1, {"square_avg", "acc_delta"}},
                           {"torch.Adamax", 0.002f, {"exp_avg", "exp_inf"}},
                           {"torch.NAdam", 0.002f, {"exp_avg", "exp_avg_sq"}},
                           {"torch.RAdam", 0.001f, {"exp_avg", "exp_avg_sq"}}};
  for (const Defaults& row : rows) {
    const auto optimizer = MakeOptimizer({row.optimizer, {}}).value();
    EXPECT_EQ(optimizer->name(), row.optimizer);
    EXPECT_EQ(optimizer->learning_rate(0), row.learning_rate) << row.optimizer;
    EXPECT_EQ(std::vector<std::string>(optimizer->slot_names().begin(), optimizer->slot_names().end()),
              row.slots)
        << row.optimizer;
    EXPECT_EQ(optimizer->options().weight_decay, row.optimizer == std::string("torch.AdamW") ? 0.01f : 0.0f);
  }
}

TEST(TorchRules, KnowTheirOwnNamesOnly) {
  EXPECT_EQ(ErrorOf({"torch.SGD", {{"learning_rate", 1}}}),
            "optimizer torch.SGD: unknown hyperparameter 'learning_rate'; known: lr, momentum, dampening, "
            "nesterov, "
            "clipvalue, clipnorm, global_clipnorm, weight_decay, maximize, use_ema, ema_momentum, "
            "ema_overwrite_frequency");
  EXPECT_THAT(ErrorOf({"torch.Adam", {{"beta_1", 0.9}}}), HasSubstr("unknown hyperparameter 'beta_1'"));
  EXPECT_THAT(ErrorOf({"Adam", {{"maximize", 1}}}), HasSubstr("unknown hyperparameter 'maximize'"));
  OptimizerConfig config = {"torch.SGD", {{"lr", 1}}};
  config.schedule = {"CosineDecay", {{"initial_learning_rate", 1}, {"decay_steps", 2}}};
  EXPECT_THAT(ErrorOf(config), HasSubstr("both a lr and a schedule are set"));
}

TEST(TorchRules, RefuseWhatTorchRefuses) {
  EXPECT_THAT(ErrorOf({"torch.Adam", {{"beta1", 1}}}), HasSubstr("'beta1' is 1, must be in [0, 1)"));
  EXPECT_THAT(ErrorOf({"torch.Adam", {{"eps", -1}}}), HasSubstr("'eps' is -1"));
  EXPECT_THAT(ErrorOf({"torch.SGD", {{"momentum", -0.5}}}), HasSubstr("'momentum' is -0.5"));
  EXPECT_THAT(ErrorOf({"torch.SGD", {{"weight_decay", -0.5}}}), HasSubstr("'weight_decay' is -0.5"));
  EXPECT_THAT(ErrorOf({"torch.RMSprop", {{"alpha", -0.5}}}), HasSubstr("'alpha' is -0.5"));
  EXPECT_THAT(ErrorOf({"torch.NAdam", {{"momentum_decay", -1}}}), HasSubstr("'momentum_decay' is -1"));
  EXPECT_THAT(ErrorOf({"torch.Adagrad", {{"lr_decay", -1}}}), HasSubstr("'lr_decay' is -1"));
}

// All entries of a torch optimizer's `defaults`.
TEST(TorchRules, AcceptTheSettingsThatChangeNoArithmetic) {
  const Hyperparameters implementation = {
      {"foreach", 1}, {"fused", 0}, {"capturable", 0}, {"differentiable", 0}};
  EXPECT_EQ(ErrorOf({"torch.Adam", implementation}), "accepted");
  EXPECT_EQ(ErrorOf({"torch.AdamW", {{"decoupled_weight_decay", 1}}}), "accepted");
  EXPECT_THAT(ErrorOf({"torch.AdamW", {{"decoupled_weight_decay", 0}}}),
              HasSubstr("'decoupled_weight_decay' is 0"));
  EXPECT_THAT(ErrorOf({"torch.SGD", {{"differentiable", 1}}}), HasSubstr("Cairn lacks this feature"));
}

}  // namespace
}  // namespace cairn::optim
