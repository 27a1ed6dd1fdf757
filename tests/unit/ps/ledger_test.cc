#include "ps/log/ledger.h"

#include "gtest/gtest.h"

namespace cairn::ps {
namespace {

using Admission = Ledger::Admission;

constexpr PushKey Key(uint64_t incarnation, int64_t step) {
  return {.worker = 3, .incarnation = incarnation, .step = step};
}

TEST(Ledger, APushIsNewThenUnderWayThenDecided) {
  Ledger ledger;
  EXPECT_EQ(ledger.Admit(Key(1, 1)).admission, Admission::kNew);
  ledger.Stage(Key(1, 1));
  EXPECT_EQ(ledger.Admit(Key(1, 1)).admission, Admission::kUnderWay);
  ledger.Decide(Key(1, 1), v1::OUTCOME_STALE, /*version=*/7, /*staleness=*/2);
  const Ledger::Verdict verdict = ledger.Admit(Key(1, 1));
  EXPECT_EQ(verdict.admission, Admission::kDecided);
  EXPECT_EQ(verdict.ruling.outcome, v1::OUTCOME_STALE);
  EXPECT_EQ(verdict.ruling.version, 7);
  EXPECT_EQ(verdict.ruling.staleness, 2);
  EXPECT_EQ(ledger.Admit(Key(1, 2)).admission, Admission::kNew);
}

TEST(Ledger, AnOlderStepGetsTheRulingOfTheLastOne) {
  Ledger ledger;
  ledger.Decide(Key(1, 5), v1::OUTCOME_ACCEPTED, 9, 0);
  const Ledger::Verdict verdict = ledger.Admit(Key(1, 4));
  EXPECT_EQ(verdict.admission, Admission::kDecided);
  EXPECT_EQ(verdict.ruling.step, 5);
}

TEST(Ledger, ADecisionMayComeBeforeThePush) {
  Ledger ledger;
  ledger.Decide(Key(2, 1), v1::OUTCOME_REJECTED, 4, 0);
  EXPECT_EQ(ledger.Admit(Key(2, 1)).admission, Admission::kDecided);
}

TEST(Ledger, ANewIncarnationRefusesPushesOfTheOldOne) {
  Ledger ledger;
  ledger.Stage(Key(1, 8));
  EXPECT_EQ(ledger.Admit(Key(2, 1)).admission, Admission::kNew);
  ledger.Stage(Key(2, 1));
  EXPECT_EQ(ledger.Admit(Key(1, 8)).admission, Admission::kOldIncarnation);
  ledger.Decide(Key(1, 8), v1::OUTCOME_REJECTED, 1,
                0);  // the old staged push will be refused; the new incarnation is unaffected
  EXPECT_EQ(ledger.Admit(Key(2, 1)).admission, Admission::kUnderWay);
}

TEST(Ledger, WorkersAreIndependent) {
  Ledger ledger;
  ledger.Stage({.worker = 0, .incarnation = 5, .step = 5});
  EXPECT_EQ(ledger.Admit({.worker = 1, .incarnation = 1, .step = 1}).admission, Admission::kNew);
}

}  // namespace
}  // namespace cairn::ps
