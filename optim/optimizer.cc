#include "optim/optimizer.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/core/status.h"
#include "optim/rules/adadelta.h"
#include "optim/rules/adagrad.h"
#include "optim/rules/adam.h"
#include "optim/rules/adamax.h"
#include "optim/rules/ftrl.h"
#include "optim/rules/hyperparameters.h"
#include "optim/rules/lamb.h"
#include "optim/rules/lion.h"
#include "optim/rules/nadam.h"
#include "optim/rules/rmsprop.h"
#include "optim/rules/sgd.h"
#include "optim/rules/torch/torch_rules.h"

namespace cairn::optim {
namespace {

// The library that names an optimizer's hyperparameters, and the form of its weight decay.
enum class Style {
  kKeras,           // decoupled
  kTorch,           // coupled, a penalty on the values that is part of the gradient
  kTorchEither,     // coupled, unless `decoupled_weight_decay` is set
  kTorchDecoupled,  // decoupled
};

struct Row {
  absl::string_view name;
  double learning_rate;  // the default
  double weight_decay;   // the default
  std::unique_ptr<const UpdateRule> (*make)(HyperparameterReader& read, Isa isa);
  Style style = Style::kKeras;
};
constexpr Row kOptimizers[] = {
    {"SGD", 0.01, 0, MakeSgd},
    {"Adam", 0.001, 0, MakeAdam},
    {"AdamW", 0.001, 0.004, MakeAdam},
    {"Adagrad", 0.001, 0, MakeAdagrad},
    {"Adadelta", 0.001, 0, MakeAdadelta},
    {"RMSprop", 0.001, 0, MakeRmsprop},
    {"Adamax", 0.001, 0, MakeAdamax},
    {"Nadam", 0.001, 0, MakeNadam},
    {"Ftrl", 0.001, 0, MakeFtrl},
    {"Lion", 0.001, 0, MakeLion},
    {"Lamb", 0.001, 0, MakeLamb},
    {"torch.SGD", 0.001, 0, MakeTorchSgd, Style::kTorch},
    {"torch.Adam", 0.001, 0, MakeTorchAdam, Style::kTorchEither},
    {"torch.AdamW", 0.001, 0.01, MakeTorchAdam, Style::kTorchDecoupled},
    {"torch.RMSprop", 0.01, 0, MakeTorchRmsprop, Style::kTorch},
    {"torch.Adagrad", 0.01, 0, MakeTorchAdagrad, Style::kTorch},
    {"torch.Adadelta", 1, 0, MakeTorchAdadelta, Style::kTorch},
    {"torch.Adamax", 0.002, 0, MakeTorchAdamax, Style::kTorch},
    {"torch.NAdam", 0.002, 0, MakeTorchNadam, Style::kTorchEither},
    {"torch.RAdam", 0.001, 0, MakeTorchRadam, Style::kTorchEither},
};

absl::StatusOr<Schedule> ReadLearningRate(const OptimizerConfig& config, const Row& row,
                                          HyperparameterReader& read) {
  const std::string name = row.style == Style::kKeras ? "learning_rate" : "lr";
  const double rate = read.Take(name, row.learning_rate, Domain::kNonNegative);
  if (!config.schedule.has_value()) return [rate](int64_t) { return rate; };
  if (config.hyperparameters.count(name) > 0)
    read.Report(absl::StrCat("both a ", name, " and a schedule are set"));
  return MakeSchedule(*config.schedule);
}

void ReadWeightDecay(const Row& row, HyperparameterReader& read, CommonOptions& options) {
  const float decay = static_cast<float>(read.Take("weight_decay", row.weight_decay, Domain::kNonNegative));
  const bool coupled =
      row.style == Style::kTorch ||
      (row.style == Style::kTorchEither && read.Take("decoupled_weight_decay", 0, Domain::kFlag) == 0);
  (coupled ? options.l2_penalty : options.weight_decay) = decay;
}

CommonOptions ReadCommonOptions(const Row& row, HyperparameterReader& read) {
  const auto take = [&](absl::string_view name, double absent, Domain domain) {
    return static_cast<float>(read.Take(name, absent, domain));
  };
  CommonOptions options;
  options.clipvalue = take("clipvalue", 0, Domain::kNonNegative);
  options.clipnorm = take("clipnorm", 0, Domain::kNonNegative);
  options.global_clipnorm = take("global_clipnorm", 0, Domain::kNonNegative);
  ReadWeightDecay(row, read, options);
  if (row.style != Style::kKeras) options.maximize = read.Take("maximize", 0, Domain::kFlag) != 0;
  options.use_ema = read.Take("use_ema", 0, Domain::kFlag) != 0;
  options.ema_momentum = take("ema_momentum", 0.99, Domain::kUnit);
  options.ema_overwrite_frequency =
      static_cast<int64_t>(read.Take("ema_overwrite_frequency", 0, Domain::kCount));
  if ((options.clipvalue > 0) + (options.clipnorm > 0) + (options.global_clipnorm > 0) > 1) {
    read.Report("only one of clipvalue, clipnorm and global_clipnorm may be set");
  }
  return options;
}

// Whether both keep the same slots, and need the same norms.
bool HaveSameState(const Optimizer& a, const Optimizer& b) {
  if (a.slot_names() != b.slot_names() || a.norms() != b.norms()) return false;
  for (int slot = 0; slot < static_cast<int>(a.slot_names().size()); ++slot) {
    if (a.initial_slot_value(slot) != b.initial_slot_value(slot)) return false;
  }
  return true;
}

// Reads the keys that every optimizer has and that must be off, or do not affect the update.
void ReadTheRest(const Row& row, HyperparameterReader& read) {
  if (row.style != Style::kKeras) {
    for (const char* implementation : {"foreach", "fused", "capturable"}) read.Ignore(implementation);
    read.RefuseUnless("differentiable", 0);
    if (row.style == Style::kTorchDecoupled) read.RefuseUnless("decoupled_weight_decay", 1);
    return;
  }
  read.RefuseUnless("loss_scale_factor", 1);
  read.RefuseUnless("gradient_accumulation_steps", 1);
  read.RefuseUnless("decay", 0);  // a key of Keras' legacy optimizers
  read.Ignore("jit_compile");
  read.Ignore("is_legacy_optimizer");
}

}  // namespace

Optimizer::Optimizer(OptimizerConfig config, std::unique_ptr<const UpdateRule> rule, Schedule learning_rate,
                     const CommonOptions& options)
    : config_(std::move(config)),
      rule_(std::move(rule)),
      learning_rate_(std::move(learning_rate)),
      options_(options),
      slot_names_(rule_->slot_names().begin(), rule_->slot_names().end()) {
  if (options_.use_ema) slot_names_.push_back("average");
  if (options_.clipnorm > 0 || options_.global_clipnorm > 0) norms_.push_back(Norms::kGradient);
  if (rule_->layerwise()) norms_.push_back(Norms::kLayer);
}

float Optimizer::initial_slot_value(int slot) const {
  return static_cast<size_t>(slot) < rule_->slot_names().size() ? rule_->initial_slot_value(slot) : 0;
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config, Isa isa) {
  for (const Row& row : kOptimizers) {
    if (!absl::EqualsIgnoreCase(config.name, row.name)) continue;
    HyperparameterReader read(absl::StrCat("optimizer ", row.name), config.hyperparameters);
    auto learning_rate = ReadLearningRate(config, row, read);
    auto rule = row.make(read, isa);
    const CommonOptions options = ReadCommonOptions(row, read);
    ReadTheRest(row, read);
    CAIRN_RETURN_IF_ERROR(read.Finish());
    CAIRN_RETURN_IF_ERROR(Annotate(learning_rate.status(), absl::StrCat("optimizer ", row.name)));
    OptimizerConfig canonical = config;
    canonical.name = std::string(row.name);
    return std::make_unique<Optimizer>(std::move(canonical), std::move(rule), *std::move(learning_rate),
                                       options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown optimizer '", config.name,
                   "'; supported: ", absl::StrJoin(kOptimizers, ", ", [](std::string* out, const Row& row) {
                     absl::StrAppend(out, row.name);
                   })));
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeVariant(const Optimizer& optimizer,
                                                       const std::map<std::string, double>& hyperparameters) {
  const auto refusal = [&optimizer](absl::string_view name, absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer ", optimizer.name(), ": hyperparameter '", name, "' ", why));
  };
  OptimizerConfig config = optimizer.config();
  for (const auto& [name, value] : hyperparameters) {
    if (name == "learning_rate" || name == "lr")
      return refusal(name, "is the learning rate, which is set apart");
    config.hyperparameters[name] = value;
  }
  CAIRN_ASSIGN_OR_RETURN(auto variant, MakeOptimizer(config));
  if (HaveSameState(optimizer, *variant)) return variant;
  constexpr absl::string_view kWhy = "changes the optimizer's slots or norms, which all variables share";
  for (const auto& [name, value] : hyperparameters) {
    config.hyperparameters = optimizer.config().hyperparameters;
    config.hyperparameters[name] = value;
    const auto alone = MakeOptimizer(config);
    if (!alone.ok() || !HaveSameState(optimizer, **alone)) return refusal(name, kWhy);
  }
  return refusal(hyperparameters.begin()->first, kWhy);
}

}  // namespace cairn::optim
