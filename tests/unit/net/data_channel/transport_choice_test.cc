#include "common/net/data_channel/transport_choice.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace cairn::net {
namespace {

const DataEndpoint kEndpoint = {.local_socket = "socket", .port = 1, .key = "key"};

TEST(TransportChoice, IsGrpcUntilTheEndpointIsKnown) {
  TransportChoice choice({});
  EXPECT_EQ(choice.way().transport, Transport::kGrpc);
  choice.Learn(kEndpoint, 7);
  EXPECT_EQ(choice.way().transport, Transport::kShm);
  EXPECT_EQ(choice.way().endpoint, kEndpoint);
  EXPECT_EQ(choice.way().incarnation, 7u);
}

TEST(TransportChoice, AFailureLeadsToTheNextBestForAWhile) {
  TransportChoice patient({.best = Transport::kTcp, .try_again_after = std::chrono::hours(24)});
  TransportChoice impatient({.best = Transport::kTcp, .try_again_after = Duration(0)});
  for (TransportChoice* choice : {&patient, &impatient}) {
    choice->Learn(kEndpoint, 7);
    choice->Fail(choice->way());
    EXPECT_EQ(choice->way().transport, Transport::kGrpc);
    choice->Learn(kEndpoint, 7);
  }
  EXPECT_EQ(patient.way().transport, Transport::kGrpc);
  EXPECT_EQ(impatient.way().transport, Transport::kTcp);
}

TEST(TransportChoice, AnotherProcessMayBeReachedInTheBestWay) {
  TransportChoice choice({.try_again_after = std::chrono::hours(24)});
  choice.Learn(kEndpoint, 7);
  const TransportChoice::Way before = choice.way();
  choice.Fail(before);
  choice.Learn({.local_socket = "other", .port = 1, .key = "key"}, 8);
  choice.Fail(before);  // of the process that is gone
  EXPECT_EQ(choice.way().transport, Transport::kShm);
}

TEST(TransportChoice, EachChangeIsSaidOnce) {
  std::vector<std::string> said;
  TransportChoice choice({.say = [&](const std::string& how) { said.push_back(how); }});
  for (const Transport used : {Transport::kShm, Transport::kShm, Transport::kGrpc}) choice.Say(used);
  EXPECT_EQ(said, (std::vector<std::string>{"shared memory", "gRPC"}));
}

}  // namespace
}  // namespace cairn::net
