// A synthetic click log in the form of Criteo's (criteo_line.h), whose best possible AUC is known: a hidden teacher
// draws the labels.
//
//   logit of a line = bias + sum over categories of a weight + sum over pairs of categories of <factors, factors>
//                     + sum over numbers of a weight times log(x + 1),            label ~ Bernoulli(sigmoid(logit))
//
// This is a factorization machine (Rendle, ICDM 2010) with 4 factors. A field with n categories has those of rank 1 to
// n, of which rank r has the probability log(1 + 1/r) / log(n + 1), close to Zipf's law. A seed gives the same files,
// except for the rounding of another C library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::data {

struct SyntheticCtrOptions {
  int64_t train_rows = 1'000'000, test_rows = 100'000;
  uint64_t seed = 0;
  // The factor for the numbers of categories of the fields, which at 1 are those of Criteo's Kaggle set (33.8 million
  // in total). A field has at least 2.
  double scale = 0.01;
};

// How well the teacher's own logits predict the labels of the test set.
struct SyntheticCtrTeacher {
  double auc = 0, log_loss = 0;
  double click_rate = 0;   // the share of lines with label 1
  int64_t categories = 0;  // of all fields together
};

// Writes train.txt, test.txt and teacher.json (the result and the options) into `directory`, which is created if
// missing. Line i does not depend on the number of lines. INVALID_ARGUMENT for numbers of rows outside [1, 1e9] or a
// scale outside (0, 100]; otherwise the system's error.
absl::StatusOr<SyntheticCtrTeacher> WriteSyntheticCtr(const std::string& directory,
                                                      const SyntheticCtrOptions& options);

// The area under the ROC curve: the probability that a line with label 1 has a higher score than one with label 0,
// where equal scores count one half. 0.5 if one of the labels does not occur. `scores` and `labels` have equal sizes.
double ExactAuc(const std::vector<float>& scores, const std::vector<bool>& labels);

}  // namespace cairn::data
