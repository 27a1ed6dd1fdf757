// Numbers that Keras' own tests assert of its optimizers (keras/src/optimizers/*_test.py), with
// their tolerances.
#include <cmath>
#include <ostream>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/optim/trained_variable.h"

namespace cairn::optim {
namespace {

struct KerasCase {
  const char* name;
  OptimizerConfig config;
  std::vector<std::vector<double>> values;  // [step][element]
};

void PrintTo(const KerasCase& c, std::ostream* out) {
  *out << c.name;
}

// Compares as Keras does: an absolute and a relative tolerance of the same size.
void ExpectClose(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
  }
}

class KerasSingleStep : public testing::TestWithParam<KerasCase> {};

// test_single_step
TEST_P(KerasSingleStep, Agrees) {
  TrainedVariable variable(GetParam().config, {1, 2, 3, 4});
  variable.Step({1, 6, 7, 2});
  ExpectClose(variable.values(), GetParam().values[0], 1e-4);
}

OptimizerConfig AtRateOneHalf(const char* name) {
  return {name, {{"learning_rate", 0.5}}};
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, KerasSingleStep,
    testing::Values(KerasCase{"Sgd", AtRateOneHalf("SGD"), {{0.5, -1, -0.5, 3}}},
                    KerasCase{"Adagrad", AtRateOneHalf("Adagrad"), {{0.5233, 1.5007, 2.5005, 3.5061}}},
                    KerasCase{"Adadelta", AtRateOneHalf("Adadelta"), {{0.9993, 1.9993, 2.9993, 3.9993}}},
                    KerasCase{"Rmsprop", AtRateOneHalf("RMSprop"), {{-0.5811, 0.4189, 1.4189, 2.4189}}},
                    KerasCase{"Adam", AtRateOneHalf("Adam"), {{0.5, 1.5, 2.5, 3.5}}},
                    KerasCase{"AdamW", AtRateOneHalf("AdamW"), {{0.4980, 1.4960, 2.494, 3.492}}},
                    KerasCase{"Adamax", AtRateOneHalf("Adamax"), {{0.5, 1.5, 2.5, 3.5}}},
                    KerasCase{"Nadam", AtRateOneHalf("Nadam"), {{0.4686, 1.4686, 2.4686, 3.4686}}},
                    KerasCase{"Ftrl", AtRateOneHalf("Ftrl"), {{0.2218, 1.3954, 2.3651, 2.8814}}},
                    KerasCase{"Lion", AtRateOneHalf("Lion"), {{0.5, 1.5, 2.5, 3.5}}},
                    KerasCase{"Lamb", AtRateOneHalf("Lamb"), {{-0.3693, 0.6306, 1.6306, 2.6306}}}));

class KerasGolden : public testing::TestWithParam<KerasCase> {};

// test_correctness_with_golden: values of one, a first gradient of 0.01, and then 0.1, 0.2, ..., 1.
TEST_P(KerasGolden, FiveStepsAgree) {
  TrainedVariable variable(GetParam().config, std::vector<float>(10, 1));
  std::vector<float> gradient(10, 0.01f);
  for (const std::vector<double>& expected : GetParam().values) {
    variable.Step(gradient);
    ExpectClose(variable.values(), expected, 5e-4);
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = 0.1f * static_cast<float>(i + 1);
  }
}

std::vector<std::vector<double>> Rows(const std::vector<double>& values) {
  std::vector<std::vector<double>> rows;
  for (double value : values) rows.emplace_back(10, value);
  return rows;
}

const std::vector<std::vector<double>> kNesterovsValues = {
    std::vector<double>(10, 0.9999),
    {0.9989, 0.9979, 0.9969, 0.9959, 0.9949, 0.9939, 0.9929, 0.9919, 0.9909, 0.9899},
    {0.9979, 0.9959, 0.9939, 0.9919, 0.9899, 0.9879, 0.9859, 0.9839, 0.9819, 0.9799},
    {0.9969, 0.9939, 0.9909, 0.9879, 0.9849, 0.9819, 0.9789, 0.9759, 0.9729, 0.9699},
    {0.9959, 0.9919, 0.9879, 0.9839, 0.9799, 0.9759, 0.9719, 0.9679, 0.9639, 0.9599}};
const std::vector<std::vector<double>> kAdagradsValues = {
    std::vector<double>(10, 0.9963),
    {0.9604, 0.9278, 0.9003, 0.8784, 0.8615, 0.8487, 0.8388, 0.8313, 0.8255, 0.8209},
    {0.9251, 0.8629, 0.8137, 0.7768, 0.7497, 0.7298, 0.7151, 0.704, 0.6956, 0.6891},
    {0.8903, 0.8012, 0.7342, 0.6862, 0.6521, 0.6277, 0.6099, 0.5967, 0.5867, 0.579},
    {0.856, 0.7422, 0.6604, 0.6037, 0.5644, 0.5367, 0.5168, 0.5021, 0.491, 0.4825}};
const std::vector<std::vector<double>> kAdamWsValues = {
    std::vector<double>(10, 0.4998),
    {0.2486, 0.2475, 0.2463, 0.2451, 0.244, 0.2428, 0.2417, 0.2405, 0.2394, 0.2382},
    {0.1223, 0.1198, 0.1174, 0.1149, 0.1124, 0.11, 0.1075, 0.1051, 0.1027, 0.1003},
    {0.0586, 0.0549, 0.0512, 0.0475, 0.0439, 0.0402, 0.0366, 0.033, 0.0294, 0.0258},
    {0.0263, 0.0215, 0.0167, 0.012, 0.0073, 0.0026, -0.0021, -0.0067, -0.0113, -0.0159}};
const std::vector<std::vector<double>> kAdamaxsValues = {
    std::vector<double>(10, 0.8),
    {0.6827, 0.6873, 0.6888, 0.6896, 0.6901, 0.6904, 0.6906, 0.6908, 0.6909, 0.691},
    {0.5333, 0.5407, 0.5431, 0.5444, 0.5451, 0.5456, 0.546, 0.5462, 0.5464, 0.5466},
    {0.368, 0.3773, 0.3804, 0.382, 0.3829, 0.3835, 0.384, 0.3843, 0.3846, 0.3848},
    {0.1933, 0.204, 0.2076, 0.2094, 0.2105, 0.2112, 0.2117, 0.2121, 0.2124, 0.2126}};
const std::vector<std::vector<double>> kNadamsValues = {
    std::vector<double>(10, 0.4281),
    {-0.1738, -0.1731, -0.1726, -0.1723, -0.1721, -0.172, -0.1719, -0.1718, -0.1718, -0.1717},
    {-0.7115, -0.7103, -0.7096, -0.7092, -0.709, -0.7088, -0.7086, -0.7085, -0.7085, -0.7084},
    {-1.2335, -1.2322, -1.2313, -1.2309, -1.2306, -1.2304, -1.2302, -1.2301, -1.23, -1.2299},
    {-1.7492, -1.7478, -1.7469, -1.7464, -1.7461, -1.7459, -1.7457, -1.7456, -1.7455, -1.7454}};
const std::vector<std::vector<double>> kFtrlsValues = {
    std::vector<double>(10, 0.0),
    {-0.0034, -0.0077, -0.0118, -0.0157, -0.0194, -0.023, -0.0263, -0.0294, -0.0325, -0.0354},
    {-0.0078, -0.0162, -0.0242, -0.0317, -0.0387, -0.0454, -0.0516, -0.0575, -0.0631, -0.0685},
    {-0.0121, -0.0246, -0.0363, -0.0472, -0.0573, -0.0668, -0.0757, -0.0842, -0.0922, -0.0999},
    {-0.0164, -0.0328, -0.0481, -0.0623, -0.0753, -0.0875, -0.099, -0.1098, -0.1201, -0.1299}};

INSTANTIATE_TEST_SUITE_P(
    Optimizers, KerasGolden,
    testing::Values(
        KerasCase{"Nesterov", {"SGD", {{"nesterov", 1}}}, kNesterovsValues},
        KerasCase{
            "Adagrad",
            {"Adagrad", {{"learning_rate", 0.2}, {"initial_accumulator_value", 0.3}, {"epsilon", 1e-6}}},
            kAdagradsValues},
        KerasCase{"Adadelta",
                  {"Adadelta", {{"learning_rate", 1}, {"rho", 0.8}, {"epsilon", 1e-6}}},
                  Rows({0.9978, 0.9947, 0.9915, 0.9882, 0.9849})},
        KerasCase{"CenteredRmsprop",
                  {"RMSprop", {{"centered", 1}}},
                  Rows({0.9967, 0.9933, 0.9908, 0.9885, 0.9864})},
        KerasCase{"AmsGrad", {"Adam", {{"amsgrad", 1}}}, Rows({0.999, 0.9982, 0.9974, 0.9965, 0.9955})},
        KerasCase{
            "AdamW", {"AdamW", {{"learning_rate", 1}, {"weight_decay", 0.5}, {"epsilon", 2}}}, kAdamWsValues},
        KerasCase{"Adamax",
                  {"Adamax", {{"learning_rate", 0.2}, {"beta_1", 0.85}, {"beta_2", 0.95}, {"epsilon", 1e-6}}},
                  kAdamaxsValues},
        KerasCase{"Nadam",
                  {"Nadam", {{"learning_rate", 0.5}, {"beta_1", 0.5}, {"beta_2", 0.67}, {"epsilon", 1e-5}}},
                  kNadamsValues},
        KerasCase{"Ftrl",
                  {"Ftrl",
                   {{"learning_rate", 0.05},
                    {"learning_rate_power", -0.2},
                    {"initial_accumulator_value", 0.4},
                    {"l1_regularization_strength", 0.05},
                    {"l2_regularization_strength", 0.15},
                    {"l2_shrinkage_regularization_strength", 0.01},
                    {"beta", 0.3}}},
                  kFtrlsValues},
        KerasCase{"Lion", {"Lion", {}}, Rows({0.999, 0.998, 0.997, 0.996, 0.995})},
        KerasCase{"Lamb", {"Lamb", {}}, Rows({0.999, 0.9982, 0.9974, 0.9965, 0.9955})}));

class KerasWeightDecay : public testing::TestWithParam<const char*> {};

// test_weight_decay: three updates with a zero gradient.
TEST_P(KerasWeightDecay, AgreesWithKeras) {
  TrainedVariable variable({GetParam(), {{"learning_rate", 1}, {"weight_decay", 0.004}}}, {2});
  for (int step = 0; step < 3; ++step) variable.Step({0});
  EXPECT_NEAR(variable.values()[0], 1.9760959, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, KerasWeightDecay,
                         testing::Values("SGD", "Adagrad", "Adadelta", "RMSprop", "Adam", "AdamW", "Adamax",
                                         "Nadam", "Lion", "Lamb"));

// optimizer_test.py, test_ema
TEST(KerasEma, OverwritesTheValuesEveryThirdUpdate) {
  TrainedVariable variable(
      {"SGD", {{"learning_rate", 1}, {"use_ema", 1}, {"ema_momentum", 0.9}, {"ema_overwrite_frequency", 3}}},
      {3, 4, 5, 6});
  const std::vector<double> values[] = {{2, 3, 4, 5}, {1, 2, 3, 4}, {1.71, 2.71, 3.71, 4.71}};
  const std::vector<double> averages[] = {{2, 3, 4, 5}, {1.9, 2.9, 3.9, 4.9}, {1.71, 2.71, 3.71, 4.71}};
  for (int step = 0; step < 3; ++step) {
    variable.Step({1, 1, 1, 1});
    ExpectNear(variable.values(), values[step]);
    ExpectNear(variable.slots()[0], averages[step]);
  }
}

// optimizer_test.py, test_clip_norm and similar tests, with a plain step at rate 1.
TEST(KerasClips, AgreeWithKeras) {
  const auto clipped = [](const char* clip, const std::vector<float>& gradient) {
    TrainedVariable variable({"SGD", {{"learning_rate", 1}, {clip, 1}}}, std::vector<float>(2, 0));
    variable.Step(gradient);
    return variable.values();
  };
  ExpectNear(clipped("clipnorm", {100, 100}), {-0.7071067811865476, -0.7071067811865476});
  ExpectNear(clipped("clipvalue", {100, 100}), {-1, -1});
  ExpectNear(clipped("global_clipnorm", {50, 100}), {-0.4472135954999579, -0.8944271909999159});
}

}  // namespace
}  // namespace cairn::optim
