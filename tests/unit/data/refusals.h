// The message with which loading refuses data.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "data/dataset.h"

namespace cairn::data {

inline std::string LoadRefusal(const DataOptions& options) {
  const auto status = LoadTrainingData(options).status();
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

}  // namespace cairn::data
