#include "optim/store/optimizer_of.h"

namespace cairn::optim {

OptimizerConfig OptimizerConfigOf(const v1::OptimizerConfig& proto) {
  OptimizerConfig config = {
      .name = proto.name(),
      .hyperparameters = {proto.hyperparameters().begin(), proto.hyperparameters().end()}};
  if (proto.has_learning_rate_schedule()) {
    const v1::LearningRateSchedule& schedule = proto.learning_rate_schedule();
    config.schedule = {.name = schedule.name(),
                       .numbers = {schedule.numbers().begin(), schedule.numbers().end()},
                       .boundaries = {schedule.boundaries().begin(), schedule.boundaries().end()},
                       .values = {schedule.values().begin(), schedule.values().end()}};
  }
  return config;
}

}  // namespace cairn::optim
