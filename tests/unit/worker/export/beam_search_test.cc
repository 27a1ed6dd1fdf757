#include "worker/inputs/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace cairn::worker {
namespace {

using ::testing::ElementsAre;

std::vector<float> Logs(std::initializer_list<double> shares) {
  std::vector<float> logits;
  for (const double share : shares) logits.push_back(static_cast<float>(std::log(share) + 7));
  return logits;
}

TEST(BeamSearch, AtFirstTheBeamsAreTheMostProbableTokens) {
  std::vector<Beam> beams = BeamsOf({9}, 2);
  const std::vector<float> logits = Logs({0.2, 0.3, 0.5});
  EXPECT_THAT(ExtendBeams({logits, logits}, std::nullopt, beams), ElementsAre(0, 0));
  EXPECT_THAT(beams[0].tokens, ElementsAre(9, 2));
  EXPECT_THAT(beams[1].tokens, ElementsAre(9, 1));
  EXPECT_NEAR(beams[1].log_probability, std::log(0.3), 1e-6);
}

TEST(BeamSearch, AnUnlikelyTokenMayBeginTheMostProbableText) {
  std::vector<Beam> beams = {{.tokens = {2}, .log_probability = std::log(0.5)},
                             {.tokens = {1}, .log_probability = std::log(0.3)}};
  EXPECT_THAT(ExtendBeams({Logs({0.4, 0.35, 0.25}), Logs({0, 0.9, 0.1})}, std::nullopt, beams),
              ElementsAre(1, 0));
  EXPECT_THAT(beams[0].tokens, ElementsAre(1, 1));
  EXPECT_NEAR(beams[0].log_probability, std::log(0.27), 1e-6);
  EXPECT_THAT(beams[1].tokens, ElementsAre(2, 0));
}

TEST(BeamSearch, ABeamThatHasEndedKeepsItsProbability) {
  std::vector<Beam> beams = {{.tokens = {0}, .log_probability = std::log(0.6)},
                             {.tokens = {2}, .log_probability = std::log(0.4), .ended = true}};
  EXPECT_THAT(ExtendBeams({Logs({0.5, 0.4, 0.1}), {}}, 2, beams), ElementsAre(1, 0));
  EXPECT_THAT(beams[0].tokens, ElementsAre(2, 2));
  EXPECT_NEAR(beams[0].log_probability, std::log(0.4), 1e-6);
  EXPECT_FALSE(beams[1].ended);
  EXPECT_THAT(ExtendBeams({{}, Logs({0.05, 0.05, 0.9})}, 2, beams), ElementsAre(0, 1));
  EXPECT_TRUE(beams[1].ended);
}

TEST(BeamSearch, TheFirstOfEqualTextsIsKept) {
  std::vector<Beam> beams = BeamsOf({}, 2);
  ExtendBeams({Logs({0.3, 0.3, 0.3}), Logs({0.3, 0.3, 0.3})}, std::nullopt, beams);
  EXPECT_THAT(beams[0].tokens, ElementsAre(0));
  EXPECT_THAT(beams[1].tokens, ElementsAre(1));
}

}  // namespace
}  // namespace cairn::worker
